"""``lenity audit``: a frozen operating point on prompts nobody tuned on, with a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lenity.cli.options import Json
from lenity.cli.studies import (
    AllowCode,
    Data,
    JudgeAll,
    JudgeKey,
    JudgeModel,
    JudgeUrl,
    MaxMinutes,
    MaxTokens,
    Out,
    Prompts,
    Tasks,
    WorkTokens,
    close_run,
    judge_settings,
    make_study,
    print_opinion,
    print_tables,
    progress_bar,
    say_missing,
)
from lenity.cli.terminal import out, print_document, working

if TYPE_CHECKING:
    from lenity.workbench.audit import AuditSettings
    from lenity.workbench.operating_point import OperatingPoint

REJECTED = 1
"""Exit status of a verdict other than accepted."""


def audit(
    point: Annotated[Path, typer.Argument(help="Operating point, as `lenity tune` wrote it")],
    folder: Out,
    tasks: Tasks,
    data: Data = None,
    prompts: Prompts = 64,
    work_prompts: Annotated[int, typer.Option(min=1, help="Prompts of fixed work")] = 8,
    work_tokens: WorkTokens = 128,
    repeats: Annotated[int, typer.Option(min=1, help="Triplets of fixed work")] = 4,
    max_new_tokens: MaxTokens = None,
    margin: Annotated[
        float, typer.Option(help="Of non-inferiority, in the score: 0.01 is one point")
    ] = 0.01,
    max_minutes: MaxMinutes = None,
    allow_code: AllowCode = False,
    noise_floor: Annotated[
        bool, typer.Option("--noise-floor/--no-noise-floor", help="Decode plainly as well")
    ] = True,
    judge_url: JudgeUrl = None,
    judge_model: JudgeModel = None,
    judge_key: JudgeKey = None,
    judge_all: JudgeAll = False,
    as_json: Json = False,
) -> None:
    """Audit a frozen operating point: speed at fixed work, quality at natural EOS, verdict.

    Exits 0 when it is accepted, 1 when it is not or time was up. The verdict is written into the
    operating point.
    """
    _run(locals())


def _run(asked: dict[str, Any]) -> None:
    from lenity.workbench.audit import judge
    from lenity.workbench.audit_report import audit_report
    from lenity.workbench.audit_run import run_audit
    from lenity.workbench.operating_point import (
        load_arguments,
        load_operating_point,
        save_operating_point,
    )

    frozen = load_operating_point(asked["point"])
    settings = _settings(asked)
    with working(f"Loading {frozen.target.name}"):
        from lenity.models.loading import load

        target = load(**load_arguments(frozen))
    with progress_bar("Audit") as tell:
        run, missing = run_audit(make_study(target, asked, tell), frozen, settings)
    found = judge(run)
    report = audit_report(run, found, missing)
    page = close_run(run, report, missing)
    if not missing:
        judged = frozen.judged(found.decision.outcome, run.manifest.run_id, found.numbers)
        save_operating_point(judged, asked["point"])
    if asked["as_json"]:
        print_document(_document(frozen, found, run.manifest.run_id, page, missing))
    else:
        out().print(found.decision.words)
        for line in (found.quality.words, found.speed.words if found.speed else None):
            if line:
                out().print(line)
        print_opinion(found.judged)
        print_tables(report.own_tables)
        out().print(f"Report: {page}")
    say_missing(missing, asked["folder"])
    if found.decision.outcome != "accepted":
        raise typer.Exit(REJECTED)


def _settings(asked: dict[str, Any]) -> AuditSettings:
    from lenity.workbench.audit import AuditSettings
    from lenity.workbench.config import FixedWork, NaturalEos
    from lenity.workbench.select import Questions

    return AuditSettings(
        questions=Questions(tasks=tuple(asked["tasks"]), num_prompts=asked["prompts"]),
        work_prompts=asked["work_prompts"],
        fixed=FixedWork(new_tokens=asked["work_tokens"], repeats=asked["repeats"]),
        natural=NaturalEos(max_new_tokens=asked["max_new_tokens"]),
        margin=asked["margin"],
        noise_floor=asked["noise_floor"],
        judge=judge_settings(asked),
    )


def _document(
    point: OperatingPoint, found: Any, run_id: str, page: Path, missing: dict[str, int]
) -> dict[str, Any]:
    return {
        "verdict": found.decision.outcome,
        "words": found.decision.words,
        "gates": [gate.model_dump(mode="json") for gate in found.decision.gates],
        "numbers": found.numbers,
        "operating_point": point.digest,
        "divergences": {str(k): n for k, n in found.divergences.counts.items()},
        "run_id": run_id,
        "report": str(page),
        "judge": [one.model_dump(mode="json") for one in found.judged],
        "missing": missing,
    }
