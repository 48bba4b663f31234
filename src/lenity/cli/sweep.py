"""``lenity sweep``: one knob on the same prompts, for the tables and figures of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lenity.cli.options import DEMO_MODEL, Device, Dtype, Json, Model
from lenity.cli.studies import (
    AllowCode,
    Batch,
    Data,
    MaxMinutes,
    MaxTokens,
    Out,
    Prompts,
    close_run,
    make_study,
    print_tables,
    progress_bar,
    say_missing,
)
from lenity.cli.terminal import out, print_document, working
from lenity.errors import ConfigError

if TYPE_CHECKING:
    from lenity.workbench.report.data import ReportData
    from lenity.workbench.rundir import RunDir
    from lenity.workbench.sweep import SweepSettings

Skip = Annotated[
    str | None,
    typer.Option(help="Skip rule whose knob is moved, or whose further knobs all rules share"),
]
Predictors = Annotated[
    list[Path] | None,
    typer.Option(
        "--predictor",
        help="Survival predictor, or a run of `lenity train survival`, for learned skip rules; "
        "repeatable",
    ),
]
Family = Annotated[
    str | None, typer.Option(help="What predictors are told of the prompts: code or maths")
]
Source = Annotated[
    Path | None,
    typer.Option(
        "--from", help="Run of `lenity train survival`: blocks of the sweeps without a model"
    ),
]


def sweep(
    preset: Annotated[
        str,
        typer.Argument(
            help="budget, gate, block_cap, gamma, matched_regret; min_prefix, gate_ablation, "
            "skipping; without a model: survival, proposition"
        ),
    ],
    folder: Out,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--task", "-t", help="Task and knobs, such as gsm8k or small_exact; repeatable"
        ),
    ] = None,
    drafter: Annotated[str | None, typer.Option(help="Spec of the drafter")] = None,
    model: Model = DEMO_MODEL,
    policy: Annotated[str, typer.Option(help="Rule whose knob is moved")] = (
        "asd:budget=8,gate=0.25,block_cap=2"
    ),
    skip: Skip = None,
    predictor: Predictors = None,
    family: Family = None,
    source: Source = None,
    gamma: Annotated[int, typer.Option(min=1, help="Draft tokens per round")] = 5,
    value: Annotated[
        list[str] | None,
        typer.Option(
            help="Value of the knob, or rules of matched_regret, gate_ablation and skipping; "
            "repeatable (default: preset's)"
        ),
    ] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Ask strict about skipped drafts, without effect")
    ] = False,
    divergence: Annotated[
        bool, typer.Option("--divergence", help="Trace how far the two laws are apart, for fuzzy")
    ] = False,
    data: Data = None,
    prompts: Prompts = 16,
    max_new_tokens: MaxTokens = None,
    batch_size: Batch = 4,
    max_minutes: MaxMinutes = None,
    allow_code: AllowCode = False,
    dtype: Dtype = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Move one knob over its grid; a killed sweep goes on when the same command is given again."""
    _run(locals())


def _run(asked: dict[str, Any]) -> None:
    from lenity.workbench.sweep import OFFLINE, preset

    if asked["preset"] in OFFLINE:
        _run_offline(asked)
        return
    preset(asked["preset"])
    settings = _settings(asked)
    from lenity.workbench.sweep_run import checked_steps, run_sweep

    checked_steps(settings)  # what cannot be swept is refused before the target is loaded
    with working(f"Loading {asked['model']}"):
        from lenity.models.loading import load

        target = load(asked["model"], dtype=asked["dtype"], device=asked["device"])
    from lenity.workbench.sweep_report import sweep_report

    with progress_bar("Sweep") as tell:
        run, missing = run_sweep(make_study(target, asked, tell), settings)
    report = sweep_report(run, missing)
    _tell(asked, run, report, missing)


def _tell(asked: dict[str, Any], run: RunDir, report: ReportData, missing: dict[str, int]) -> None:
    page = close_run(run, report, missing)
    if asked["as_json"]:
        print_document({"run_id": run.manifest.run_id, "report": str(page), "missing": missing})
    else:
        print_tables(report.own_tables)
        out().print(f"Report: {page}")
    say_missing(missing, asked["folder"])


def _run_offline(asked: dict[str, Any]) -> None:
    """Compute a sweep that needs no model."""
    from lenity.workbench.sweep_offline import offline_report, run_offline
    from lenity.workbench.sweep_proposition import PropositionSweep, proposition_sweep
    from lenity.workbench.sweep_survival import SurvivalSweep, log_of, survival_sweep

    source, values = asked["source"], tuple(asked["value"] or ())
    settings: SurvivalSweep | PropositionSweep
    if asked["preset"] == "proposition":
        log = None if source is None else log_of(source, "raw")
        settings = proposition_sweep(asked["gamma"], values, source=log)
    elif source is None:
        raise ConfigError(
            "Expected recorded blocks for the sweep 'survival', got none. Give --from RUN, a run "
            "of `lenity train survival`."
        )
    else:
        settings = survival_sweep(source, values)
    with working("Computing"):
        run = run_offline(asked["folder"], settings, source)
        report = offline_report(run)
    _tell(asked, run, report, {})


def _settings(asked: dict[str, Any]) -> SweepSettings:
    from lenity.workbench.config import NaturalEos
    from lenity.workbench.select import Questions
    from lenity.workbench.sweep import SweepSettings
    from lenity.workbench.sweep_skipping import find_predictors

    if not asked["tasks"] or asked["drafter"] is None:
        raise ConfigError(
            f"Expected --task and --drafter for the sweep {asked['preset']!r}, got tasks "
            f"{asked['tasks'] or 'none'} and the drafter {asked['drafter'] or 'none'}. Give both."
        )
    return SweepSettings(
        preset=asked["preset"],
        questions=Questions(tasks=tuple(asked["tasks"]), num_prompts=asked["prompts"]),
        drafter=asked["drafter"],
        policy=asked["policy"],
        skip=asked["skip"],
        predictors=find_predictors(asked["predictor"] or ()),
        family=asked["family"],
        gamma=asked["gamma"],
        values=tuple(asked["value"] or ()),
        shadow=asked["shadow"],
        divergence=asked["divergence"],
        batch_size=asked["batch_size"],
        natural=NaturalEos(max_new_tokens=asked["max_new_tokens"]),
    )
