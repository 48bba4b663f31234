"""An audit at work: the frozen point's arms on held-out prompts, recorded in a run directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lenity.errors import ConfigError
from lenity.workbench.arms import Arms
from lenity.workbench.audit import (
    EOS_RELAXED,
    EOS_STRICT,
    EVIDENCE,
    POINT,
    AuditSettings,
    arms_of,
    evidence_text,
)
from lenity.workbench.config import PLAIN
from lenity.workbench.facts import drafter_facts, target_facts
from lenity.workbench.judge_run import ask_judge, check_judge, judge_for
from lenity.workbench.manifest import begin
from lenity.workbench.operating_point import OperatingPoint
from lenity.workbench.pairing import Pairs
from lenity.workbench.protocols import Deadline, Outcome, Progress, fixed_work, natural_eos
from lenity.workbench.provenance import collect
from lenity.workbench.records import SampleRecord
from lenity.workbench.rescore import Rescorer
from lenity.workbench.rundir import RunDir
from lenity.workbench.samples import SAMPLES, make_samples, samples_text
from lenity.workbench.select import Questions, Selection, select

if TYPE_CHECKING:
    from lenity.drafters import Drafter
    from lenity.models.base import LanguageModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Where and how a study runs, whatever it studies."""

    target: LanguageModel
    folder: Path
    data: Path | None = None
    task_options: Mapping[str, bool] | None = None
    deadline: Deadline | None = None
    progress: Progress | None = None
    drafters: Mapping[str, Drafter] | None = None
    judge_key_variable: str | None = None

    def selection(self, questions: Questions, side: Any) -> Selection:
        """Return the prompts of one side. Raises ConfigError."""
        tokenizer = self.target.tokenizer
        if tokenizer is None:
            raise ConfigError(
                f"Expected a target with a tokenizer, got {self.target.name}, which has none. Load "
                f"it with the tokenizer it was trained with."
            )
        return select(
            questions, tokenizer, side, data=self.data, options=dict(self.task_options or {})
        )


def questions_for(point: OperatingPoint, asked: Questions) -> Questions:
    """Return what an audit asks: with the split of the point, wherever it has one."""
    if point.data is None:
        return asked
    return asked.model_copy(update={"seed": point.data.seed, "share": point.data.share})


def run_audit(
    study: Study, point: OperatingPoint, settings: AuditSettings
) -> tuple[RunDir, dict[str, int]]:
    """Run or go on with the audit of a point; return its directory and what is missing, by arm.

    A run that is complete is left open for its report; ``finish`` it then. Raises
    ModelMismatchError where the loaded target, drafter or template is not the point's, and
    ConfigError for a judge that does not answer.
    """
    settings = settings.model_copy(update={"questions": questions_for(point, settings.questions)})
    fixed_arms, natural_arms = arms_of(point, settings)
    chosen = study.selection(settings.questions, "audit")
    judge = judge_for(settings.judge, chosen.tasks, study.judge_key_variable)
    at_work = Arms(study.target, fixed_arms, drafters=study.drafters)
    at_rest = Arms(study.target, natural_arms, drafters=at_work.drafters)
    assert point.drafter is not None
    drafts = drafter_facts(at_work.drafters[point.drafter.spec], study.target)
    provenance = collect(
        target=target_facts(study.target),
        drafters=[drafts],
        template_hash=chosen.template_hash,
        data=chosen.revisions,
    )
    point.check_against(
        target=provenance.target, drafter=drafts, template_hash=chosen.template_hash
    )
    stored: dict[str, Any] = {
        "audit": settings.model_dump(mode="json"),
        "point": point.without_verdict().model_dump(mode="json"),
        "prompts": chosen.digest,
    }
    check_judge(judge, study.folder)
    run = RunDir.create(study.folder, begin("audit", stored, provenance))
    if run.is_finished:
        return run, {}
    with run.held():
        run.write_artefact(POINT, point.model_dump_json(indent=1) + "\n")
        outcomes = _record(study, settings, chosen, run, (at_work, at_rest))
        _look_closer(run, study.target)
        arms = (EOS_STRICT, EOS_RELAXED)
        opinions = ask_judge(run, arms, judge, deadline=study.deadline, progress=study.progress)
    return run, missing_of(outcomes) | opinions


def _record(
    study: Study,
    settings: AuditSettings,
    chosen: Selection,
    run: RunDir,
    arms: tuple[Arms, Arms],
) -> list[Outcome]:
    """Run both protocols: fixed work on the first prompts, natural EOS on all."""
    at_work, at_rest = arms
    return [
        fixed_work(
            at_work,
            chosen.jobs[: settings.work_prompts],
            settings.fixed,
            run,
            progress=study.progress,
            deadline=study.deadline,
        ),
        natural_eos(
            at_rest,
            chosen.jobs,
            settings.natural,
            run,
            scorer=chosen.scorer,
            progress=study.progress,
            deadline=study.deadline,
        ),
    ]


def missing_of(outcomes: list[Outcome]) -> dict[str, int]:
    """Return what several protocols left out, by arm."""
    out: dict[str, int] = {}
    for outcome in outcomes:
        for arm, count in outcome.missing.items():
            out[arm] = out.get(arm, 0) + count
    return out


def _look_closer(run: RunDir, target: LanguageModel) -> None:
    """Ask the target about every divergence, and write token views, while it is loaded."""
    records: dict[str, list[SampleRecord]] = {}
    for record in run.records(where=lambda r: r.arm in (PLAIN, EOS_STRICT, EOS_RELAXED)):
        records.setdefault(record.arm, []).append(record)
    found = {}
    rescorer = None
    for reference, arm in ((PLAIN, EOS_STRICT), (EOS_STRICT, EOS_RELAXED)):
        pairs = Pairs.of(records.get(reference, ()), records.get(arm, ()))
        if any(one.token_ids != other.token_ids for one, other in pairs.pairs):
            rescorer = rescorer or Rescorer(target)
            found[arm] = rescorer.all_evidence(pairs)
    run.write_artefact(EVIDENCE, evidence_text(found))
    if target.tokenizer is not None:
        both = records.get(EOS_STRICT, []) + records.get(EOS_RELAXED, [])
        views = make_samples(both, (EOS_STRICT, EOS_RELAXED), target.tokenizer)
        run.write_artefact(SAMPLES, samples_text(views))
