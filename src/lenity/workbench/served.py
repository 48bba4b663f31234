"""Audit of a served engine: prompts out, answers back, two arms, a verdict on quality and text.

Whatever decodes behind the URL, only its answers are seen. Token ids are not known, so that
length and repetition are counted in words between white space; no ledger is kept, and speed, which
is the machine's, the network's and the load's as well, is not judged. Needs no model and no torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from lenity.errors import ConfigError
from lenity.tasks import Item
from lenity.tasks.base import Message, user
from lenity.tasks.chat import RenderOptions
from lenity.workbench.endpoint import Answer, Client, Endpoint, RequestFailedError
from lenity.workbench.facts import TargetFacts
from lenity.workbench.gates import Bounds, Decision, Gate, decide, text_gates
from lenity.workbench.jobs import Job, Scorer
from lenity.workbench.judge_prompts import JudgeSettings
from lenity.workbench.judge_run import ask_judge, check_judge, judge_for
from lenity.workbench.judgements import JudgeSummary, judged
from lenity.workbench.manifest import begin
from lenity.workbench.pairing import Pairs
from lenity.workbench.provenance import collect
from lenity.workbench.records import Frozen, SampleRecord
from lenity.workbench.rundir import RunDir
from lenity.workbench.select import Questions, Selection, select
from lenity.workbench.verdicts import (
    MARGIN,
    Quality,
    QualityVerdict,
    SignalCheck,
    check_signal,
    judge_quality,
)

if TYPE_CHECKING:
    from lenity.workbench.protocols import Deadline, Progress

BASELINE, CANDIDATE = "baseline", "candidate"
"""Names of the arms."""
SERVED = "served"
"""Under which a run's settings keep ServedSettings; only runs of this kind have it."""


class ServedSettings(Frozen):
    """All that decides what is asked and how it is judged; stated before anything is sent."""

    candidate: Endpoint
    """The engine judged"""
    baseline: Endpoint
    """What it is compared with: the same model, verified strictly or decoded plainly"""
    questions: Questions
    """Which prompts; of the split, the audit's side"""
    max_new_tokens: int | None = Field(default=None, ge=1)
    """Tokens of an answer at most; none takes each task's own"""
    margin: float = Field(default=MARGIN, gt=0, lt=1)
    """Of non-inferiority, in the task's score"""
    bounds: Bounds = Bounds()
    """What the text may differ by, in words"""
    judge: JudgeSettings | None = None
    """Whose opinion of answers is asked, beside the verdict; none asks nobody"""
    seed: int = Field(default=0, ge=0)
    """Of the resampling"""
    resamples: int = Field(default=10_000, ge=100)
    """Of every bootstrap"""

    def endpoint(self, arm: str) -> Endpoint:
        """Return the engine of an arm."""
        return self.candidate if arm == CANDIDATE else self.baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedStudy:
    """Where and how the engines are asked; nothing of it decides an answer."""

    folder: Path
    data: Path | None = None
    task_options: Mapping[str, bool] | None = None
    deadline: Deadline | None = None
    progress: Progress | None = None
    timeout_seconds: float = 120.0
    retries: int = 3
    key_variable: str | None = None
    judge_key_variable: str | None = None
    wait: Callable[[float], None] = time.sleep

    def client(self, endpoint: Endpoint) -> Client:
        """Return what asks an engine."""
        return Client(
            endpoint=endpoint,
            timeout_seconds=self.timeout_seconds,
            retries=self.retries,
            key_variable=self.key_variable,
            wait=self.wait,
        )


class _Bytes:
    """Stands for the engine's tokenizer, which is not known: prompts are told apart by bytes."""

    def encode(self, text: str) -> list[int]:
        """Return the bytes of a text."""
        return list(text.encode())


def run_served(study: ServedStudy, settings: ServedSettings) -> tuple[RunDir, dict[str, int]]:
    """Ask both engines what is not recorded yet; return the run and what is missing, by arm.

    A run that is complete is left open for its report; ``finish`` it then. A request that failed
    is recorded as failed. Raises ConfigError for tasks without right answers and a judge that does
    not answer, and, the run then being left to be gone on with, for an engine that is not there or
    will answer nothing.
    """
    chosen = _choose(study, settings)
    scorer = chosen.scorer
    if scorer is None:
        raise ConfigError(
            f"Expected a task with right answers, got {', '.join(settings.questions.tasks)}: an "
            f"engine's answers can be judged by nothing else. Take one that is scored, such as "
            f"gsm8k or small_exact."
        )
    judge = judge_for(settings.judge, chosen.tasks, study.judge_key_variable)
    provenance = collect(target=TargetFacts(name=settings.candidate.model), data=chosen.revisions)
    stored: dict[str, Any] = {
        SERVED: settings.model_dump(mode="json"),
        "prompts": chosen.digest,
    }
    check_judge(judge, study.folder)
    run = RunDir.create(study.folder, begin("audit", stored, provenance))
    if run.is_finished:
        return run, {}
    with run.held():
        missing = _record(study, settings, chosen, scorer, run)
        missing |= ask_judge(
            run, (BASELINE, CANDIDATE), judge, deadline=study.deadline, progress=study.progress
        )
    return run, missing


def _choose(study: ServedStudy, settings: ServedSettings) -> Selection:
    plain = settings.questions.model_copy(update={"render": RenderOptions(form="text")})
    options = dict(study.task_options or {})
    return select(plain, _Bytes(), "audit", data=study.data, options=options)


def _record(
    study: ServedStudy,
    settings: ServedSettings,
    chosen: Selection,
    scorer: Scorer,
    run: RunDir,
) -> dict[str, int]:
    """Ask prompt by prompt, the baseline first; return what time left out."""
    items = {(own.label, item.id): item for own, members in chosen.tasks for item in members}
    clients = {arm: study.client(settings.endpoint(arm)) for arm in (BASELINE, CANDIDATE)}
    todo = [(arm, job) for job in chosen.jobs for arm in clients if _key(arm, job) not in run]
    total, started = len(chosen.jobs) * len(clients), time.perf_counter()
    for index, (arm, job) in enumerate(todo):
        if study.deadline is not None and study.deadline.seconds_left <= 0:
            left = [name for name, _ in todo[index:]]
            return {name: left.count(name) for name in clients if name in left}
        length = settings.max_new_tokens or job.max_new_tokens
        run.append(_answer(clients[arm], arm, job, items[job.task, job.item_id], length, scorer))
        if study.progress is not None:
            done = total - len(todo) + index + 1
            study.progress(done, total, time.perf_counter() - started)
    return {}


def _key(arm: str, job: Job) -> tuple[str, int, str, str]:
    return arm, 0, job.task, job.item_id


def _answer(
    client: Client, arm: str, job: Job, item: Item, length: int, scorer: Scorer
) -> SampleRecord:
    """Return the record of one request, scored, or failed with its reason."""
    blank: dict[str, Any] = {
        "arm": arm,
        "task": job.task,
        "item_id": job.item_id,
        "family": job.family,
    }
    prompt = bytes(job.prompt_ids).decode()
    messages: Sequence[Message] = item.messages or (user(prompt),)
    began = time.perf_counter()
    try:
        answer: Answer = client.ask(messages, prompt, length)
    except RequestFailedError as error:
        return SampleRecord(**blank, status="failed", error=str(error))
    record = SampleRecord(
        **blank,
        text=answer.text,
        finish_reason=answer.finish_reason,
        wall_seconds=time.perf_counter() - began,
    )
    try:
        score = scorer(record)
    except Exception as error:  # a request without a score would count as one without a task
        told = f"scorer: {type(error).__name__}: {error}"
        return record.model_copy(update={"status": "failed", "error": told})
    if score is None:
        return record
    return record.model_copy(update={"score": score.value, "score_detail": score.detail})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAudit:
    """What a recorded audit of a served engine says. ``records`` have words for token ids."""

    decision: Decision
    quality: QualityVerdict
    signal: SignalCheck
    judged: tuple[JudgeSummary, ...]
    records: Mapping[str, Sequence[SampleRecord]]


def is_served(run: RunDir) -> bool:
    """Return whether a run is the audit of a served engine."""
    return SERVED in run.manifest.settings


def served_settings(run: RunDir) -> ServedSettings:
    """Return the settings a recorded audit of a served engine was made with. Raises RunDirError."""
    return run.settings(SERVED, ServedSettings)


def judge_served(run: RunDir) -> ServedAudit:
    """Return what a recorded audit says. Raises ProtocolError below 2 prompts answered by both.

    Quality by the task's score; where the baseline solves too little for the margin to mean
    something, "non-inferior" would be cheap, and quality stays undecided.
    """
    settings = served_settings(run)
    rng = np.random.default_rng(settings.seed)
    records: dict[str, list[SampleRecord]] = {BASELINE: [], CANDIDATE: []}
    for record in run.records():
        records[record.arm].append(in_words(record))
    pairs = Pairs.of(records[BASELINE], records[CANDIDATE])
    signal = check_signal(pairs, margin=settings.margin)
    quality = judge_quality(pairs, rng, margin=settings.margin, resamples=settings.resamples)
    if quality.outcome is Quality.NON_INFERIOR and not signal.has_signal:
        quality = quality.model_copy(update={"outcome": Quality.INCONCLUSIVE})
    gates = text_gates(pairs, rng, bounds=settings.bounds, resamples=settings.resamples)
    decision = decide(quality, gates)
    own = tuple(_reworded(gate) for gate in decision.gates)
    return ServedAudit(
        decision=decision.model_copy(update={"gates": own}),
        quality=quality,
        signal=signal,
        judged=judged(pairs, settings.judge, run),
        records=records,
    )


def in_words(record: SampleRecord) -> SampleRecord:
    """Return a record with its text's words, numbered as they first come, for token ids.

    Measures of length and repetition then count words. Such a record is for judging, not for
    storing: its counters are those of no decoder.
    """
    seen: dict[str, int] = {}
    ids = tuple(seen.setdefault(word, len(seen)) for word in (record.text or "").split())
    return record.model_copy(update={"token_ids": ids})


def _reworded(gate: Gate) -> Gate:
    """Return a gate in the words of this audit: the baseline need not be strict, nor words tokens.

    The other audits call the arm compared with strict.
    """
    words = gate.words.replace("strict's tokens", "the baseline's words")
    return gate.model_copy(update={"words": words.replace("strict", "the baseline")})
