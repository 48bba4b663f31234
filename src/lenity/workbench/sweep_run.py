"""A sweep at work: every arm on the same prompts, recorded in a run directory."""

from __future__ import annotations

from typing import Any

from lenity.workbench.arms import Arms
from lenity.workbench.audit_run import Study
from lenity.workbench.facts import drafter_facts, target_facts
from lenity.workbench.manifest import begin
from lenity.workbench.protocols import natural_eos
from lenity.workbench.provenance import collect
from lenity.workbench.rundir import RunDir
from lenity.workbench.sweep import SweepSettings, preset, steps
from lenity.workbench.trace_log import TraceLog


def run_sweep(
    study: Study, settings: SweepSettings, *, traces: bool | None = None
) -> tuple[RunDir, dict[str, int]]:
    """Run or go on with a sweep; return its directory and what is missing, by arm.

    With ``traces`` every verified round is written down, for replay and the opportunity map; None
    does so unless the sweep shows throughput. A complete run is left open for its report;
    ``finish`` it then.
    """
    if traces is None:
        traces = not preset(settings.preset).is_timed
    chosen = study.selection(settings.questions, "discovery")
    arms = Arms(study.target, [step.arm for step in steps(settings)], drafters=study.drafters)
    provenance = collect(
        target=target_facts(study.target),
        drafters=[drafter_facts(arms.drafters[settings.drafter], study.target)],
        template_hash=chosen.template_hash,
        data=chosen.revisions,
    )
    stored: dict[str, Any] = {
        "sweep": settings.model_dump(mode="json"),
        "prompts": chosen.digest,
    }
    run = RunDir.create(study.folder, begin("sweep", stored, provenance))
    if run.is_finished:
        return run, {}
    log = TraceLog(run, divergence=settings.divergence) if traces else None
    arms.traces = log
    with run.held():
        try:
            outcome = natural_eos(
                arms,
                chosen.jobs,
                settings.natural,
                run,
                scorer=chosen.scorer,
                progress=study.progress,
                deadline=study.deadline,
            )
        finally:
            if log is not None:
                log.close()
    return run, outcome.missing
