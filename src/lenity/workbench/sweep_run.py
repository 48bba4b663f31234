"""A sweep at work: every arm on the same prompts, recorded in a run directory."""

from __future__ import annotations

from typing import Any

import torch

from lenity.policies import policy
from lenity.skipping import skip_rule
from lenity.workbench.arms import Arms
from lenity.workbench.audit_run import Study
from lenity.workbench.facts import drafter_facts, target_facts
from lenity.workbench.manifest import begin
from lenity.workbench.protocols import natural_eos
from lenity.workbench.provenance import collect
from lenity.workbench.rundir import RunDir
from lenity.workbench.sweep import Step, SweepSettings, preset, steps
from lenity.workbench.sweep_skipping import check_family
from lenity.workbench.trace_log import TraceLog


def checked_steps(settings: SweepSettings) -> list[Step]:
    """Return the arms of a sweep, strict first, whose rules can be made of what is on the disk.

    No model is loaded. Raises ConfigError or RegistryError for a knob, a predictor or a family
    that no arm could decode with.
    """
    check_family(settings.family)
    found = steps(settings)
    for step in found:
        policy(step.arm.policy)
        if step.arm.skip is not None:
            skip_rule(step.arm.skip).load(torch.device("cpu"))
    return found


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
    asked = [step.arm for step in checked_steps(settings)]
    chosen = study.selection(settings.questions, "discovery")
    arms = Arms(study.target, asked, drafters=study.drafters)
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
