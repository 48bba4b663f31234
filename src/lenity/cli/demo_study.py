"""The end of the demo: tune, freeze, audit, small enough for two cores and honest about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lenity.cli.options import DEMO_MODEL
from lenity.cli.studies import close_run, print_tables, progress_bar
from lenity.cli.terminal import out, say, stage

if TYPE_CHECKING:
    from lenity.models.base import LanguageModel
    from lenity.workbench.audit_run import Study
    from lenity.workbench.operating_point import OperatingPoint

TASKS = ("small_exact", "own_prompts")
"""Questions of which a model of 135M parameters can answer some, and prompts without an answer."""
DRAFTER = "eagle3:model=demo:smollm2"
RULES = (
    "asd:budget=2,gate=0.25,block_cap=1",
    "asd:budget=8,gate=0.25,block_cap=2",
    "asd:budget=16,gate=1,block_cap=none",
    "priced:budget=4,price=2",
    "priced:budget=8,price=1",
)
"""Rules that are predicted; the two best are measured."""
PROMPTS = 16


def study(folder: Path) -> dict[str, Any]:
    """Tune and audit on the demo model in bfloat16; return what was chosen and judged.

    A folder that holds both runs already is read, not run again.
    """
    from lenity.models.loading import load

    with stage("Loading the model for tune and audit"):
        target = load(DEMO_MODEL, dtype="bfloat16")
    point = _tune(target, folder / "tune")
    document: dict[str, Any] = {"operating_point": str(folder / "tune" / "operating-point.yaml")}
    if point.is_off:
        out().print("Speculation does not pay on this machine: there is nothing to audit.")
        return document | {"verdict": None, "report": str(folder / "tune" / "report.html")}
    return document | _audit(target, folder / "audit", point)


def _study(target: LanguageModel, folder: Path, progress: Any) -> Study:
    from lenity.workbench.audit_run import Study

    return Study(target=target, folder=folder, progress=progress)


def _tune(target: LanguageModel, folder: Path) -> OperatingPoint:
    from lenity.workbench.config import FixedWork, NaturalEos
    from lenity.workbench.operating_point import load_operating_point
    from lenity.workbench.select import Questions
    from lenity.workbench.tune import TuneSettings
    from lenity.workbench.tune_report import tune_report
    from lenity.workbench.tune_run import POINT_FILE, run_tune

    settings = TuneSettings(
        questions=Questions(tasks=TASKS, num_prompts=PROMPTS // 2),
        drafter=DRAFTER,
        gammas=(2, 4),
        policies=RULES,
        trace_prompts=PROMPTS // 2,
        finalists=2,
        rungs=1,
        fixed=FixedWork(new_tokens=32, repeats=1, warmup_tokens=8),
        natural=NaturalEos(max_new_tokens=48),
    )
    say("Tuning on discovery prompts")
    with progress_bar("Tune") as tell:
        run, _, missing = run_tune(_study(target, folder, tell), settings)
    report = tune_report(run)
    close_run(run, report, missing)
    print_tables(tuple(t for t in report.own_tables if t.name == "finalists"))
    if report.verdict is not None:
        out().print(report.verdict.words)
    return load_operating_point(folder / POINT_FILE)


def _audit(target: LanguageModel, folder: Path, point: OperatingPoint) -> dict[str, Any]:
    from lenity.workbench.audit import AuditSettings, judge
    from lenity.workbench.audit_report import audit_report
    from lenity.workbench.audit_run import run_audit
    from lenity.workbench.config import FixedWork, NaturalEos
    from lenity.workbench.select import Questions

    settings = AuditSettings(
        questions=Questions(tasks=TASKS, num_prompts=PROMPTS),
        work_prompts=2,
        fixed=FixedWork(new_tokens=32, repeats=3, warmup_tokens=8),
        natural=NaturalEos(max_new_tokens=48),
    )
    say("Auditing the frozen point on held-out prompts")
    with progress_bar("Audit") as tell:
        run, missing = run_audit(_study(target, folder, tell), point, settings)
    found = judge(run)
    page = close_run(run, audit_report(run, found, missing), missing)
    out().print(f"Audit: {found.decision.words}")
    out().print(
        f"{settings.questions.num_prompts} prompts decide little; `lenity audit` with more does. "
        f"Report: {page}"
    )
    return {"verdict": found.decision.outcome, "report": str(page)}
