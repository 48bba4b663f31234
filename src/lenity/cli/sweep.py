"""``lenity sweep``: one knob on the same prompts, for the tables and figures of the papers."""

from __future__ import annotations

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
    Tasks,
    close_run,
    make_study,
    print_tables,
    progress_bar,
    say_missing,
)
from lenity.cli.terminal import out, print_document, working

if TYPE_CHECKING:
    from lenity.workbench.sweep import SweepSettings


def sweep(
    preset: Annotated[
        str, typer.Argument(help="budget, gate, block_cap, gamma, min_prefix or skipping")
    ],
    folder: Out,
    tasks: Tasks,
    drafter: Annotated[str, typer.Option(help="Spec of the drafter")],
    model: Model = DEMO_MODEL,
    policy: Annotated[str, typer.Option(help="Rule whose knob is moved")] = (
        "asd:budget=8,gate=0.25,block_cap=2"
    ),
    skip: Annotated[str | None, typer.Option(help="Skip rule whose knob is moved")] = None,
    gamma: Annotated[int, typer.Option(min=1, help="Draft tokens per round")] = 5,
    value: Annotated[
        list[str] | None, typer.Option(help="Values of the knob; repeatable (default: preset's)")
    ] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Ask strict about skipped drafts, without effect")
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
    from lenity.workbench.sweep import steps

    settings = _settings(asked)
    steps(settings)  # what cannot be swept is refused before anything is loaded
    with working(f"Loading {asked['model']}"):
        from lenity.models.loading import load

        target = load(asked["model"], dtype=asked["dtype"], device=asked["device"])
    from lenity.workbench.sweep_report import sweep_report
    from lenity.workbench.sweep_run import run_sweep

    with progress_bar("Sweep") as tell:
        run, missing = run_sweep(make_study(target, asked, tell), settings)
    report = sweep_report(run, missing)
    page = close_run(run, report, missing)
    if asked["as_json"]:
        print_document({"run_id": run.manifest.run_id, "report": str(page), "missing": missing})
    else:
        print_tables(report.own_tables)
        out().print(f"Report: {page}")
    say_missing(missing, asked["folder"])


def _settings(asked: dict[str, Any]) -> SweepSettings:
    from lenity.workbench.config import NaturalEos
    from lenity.workbench.select import Questions
    from lenity.workbench.sweep import SweepSettings

    return SweepSettings(
        preset=asked["preset"],
        questions=Questions(tasks=tuple(asked["tasks"]), num_prompts=asked["prompts"]),
        drafter=asked["drafter"],
        policy=asked["policy"],
        skip=asked["skip"],
        gamma=asked["gamma"],
        values=tuple(asked["value"] or ()),
        shadow=asked["shadow"],
        batch_size=asked["batch_size"],
        natural=NaturalEos(max_new_tokens=asked["max_new_tokens"]),
    )
