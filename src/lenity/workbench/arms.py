"""Arms at work: prompts through ``lenity.Decoder``, one record per request.

A request that fails is recorded as failed and the arm goes on. Ctrl-C leaves nothing half
recorded: what was being decoded is dropped, and decoded again when the run is gone on with.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from lenity.drafters import Drafter, drafter
from lenity.engine.decode import Decoder
from lenity.engine.tracing import RoundTrace, Tracer
from lenity.errors import ConfigError, ProtocolError
from lenity.models.base import LanguageModel
from lenity.requests import GenerationSettings, Request
from lenity.types import FinishReason, Generation, RoundRecord, TokenKind, TokenReceipt
from lenity.workbench.config import Arm
from lenity.workbench.jobs import Job, Scorer
from lenity.workbench.records import KIND_LETTERS, RelaxedToken, RoundCounts, SampleRecord
from lenity.workbench.trace import RequestTrace
from lenity.workbench.trace_log import TraceLog

_log = logging.getLogger(__name__)

MAX_ERROR_LENGTH = 500
"""Characters of an error that are recorded."""


class Arms:
    """Arms on one target, each with its own decoder; equal drafter specs share one drafter."""

    def __init__(
        self,
        target: LanguageModel,
        arms: Sequence[Arm],
        *,
        drafters: Mapping[str, Drafter] | None = None,
        traces: TraceLog | None = None,
    ) -> None:
        """Load what the arms need; ``drafters`` are loaded ones, by the spec arms call them.

        ``traces`` gets what policies read of every round; watching costs time, so that no speed is
        measured with it.
        Raises ProtocolError for two arms of one name, ConfigError for a relaxed arm that drafts
        nothing, and what loading a drafter or a survival predictor raises.
        """
        names = [arm.name for arm in arms]
        if len(set(names)) < len(names):
            raise ProtocolError(
                f"Expected arms of different names, got {', '.join(names)}. Rename one of them."
            )
        self.target, self.arms, self.traces = target, tuple(arms), traces
        self.drafters: dict[str, Drafter] = dict(drafters or {})
        self._decoders = {arm.name: self._decoder(arm) for arm in arms}

    def _decoder(self, arm: Arm) -> Decoder:
        drafts = None
        if arm.drafter is not None:
            if arm.drafter not in self.drafters:
                self.drafters[arm.drafter] = drafter(arm.drafter)
            drafts = self.drafters[arm.drafter]
        made = Decoder(
            target=self.target,
            drafter=drafts,
            policy=arm.policy,
            max_batch_size=arm.batch_size,
            skip=arm.skip,
            shadow=arm.shadow,
        )
        if made.skip is not None:
            made.skip.load(self.target.device)
        if not made.policy.is_strict and (drafts is None or arm.gamma == 0):
            raise ConfigError(
                f"Expected draft tokens for {arm.policy} in arm {arm.name} to judge, got drafter "
                f"{arm.drafter} and gamma {arm.gamma}. Name a drafter and a gamma above 0."
            )
        return made

    def warm_up(self, arm: Arm, jobs: Sequence[Job], settings: GenerationSettings) -> None:
        """Decode one prompt without recording it. Raises what made the first three fail.

        An arm that can decode none of them is broken, and its requests would all be failures.
        """
        first = jobs[:3]
        for job in first:
            try:
                generation = self._decoders[arm.name].generate(_request(job, settings))
            except Exception:
                if job is first[-1]:
                    raise
            else:
                _check_not_interrupted([generation])
                return

    def run(
        self,
        arm: Arm,
        jobs: Sequence[Job],
        settings: Sequence[GenerationSettings],
        *,
        repeat: int = 0,
        scorer: Scorer | None = None,
    ) -> list[SampleRecord]:
        """Return the records of jobs handed to the decoder together, each with its own settings.

        Not more than the arm's batch size are decoded at once; the others enter as rows end. Where
        the call fails, each job is tried alone, so that a bad one takes no other with it. Raises
        KeyboardInterrupt on Ctrl-C.
        """
        traces = self.traces
        tracer = None if traces is None else Tracer(divergence=traces.divergence)
        started = perf_counter()
        try:
            generations = self._generate(arm, jobs, settings, tracer)
        except Exception as error:  # whatever it is belongs to a request, and is recorded there
            if len(jobs) == 1:
                _log.warning("%s failed in %s: %s", jobs[0].name, arm.name, error)
                return [_failed(arm, jobs[0], repeat, error)]
            return [
                record
                for job, own in zip(jobs, settings, strict=True)
                for record in self.run(arm, [job], [own], repeat=repeat, scorer=scorer)
            ]
        walls = share_wall(generations, perf_counter() - started)
        records = [
            _scored(to_record(generation, arm.name, job, repeat=repeat, wall_seconds=wall), scorer)
            for generation, job, wall in zip(generations, jobs, walls, strict=True)
        ]
        if traces is not None and tracer is not None:
            rounds = tracer.take()
            traces.append(
                _trace(record, generation, rounds.get(index, ()), settings[index].temperature)
                for index, (record, generation) in enumerate(zip(records, generations, strict=True))
            )
        return records

    def _generate(
        self,
        arm: Arm,
        jobs: Sequence[Job],
        settings: Sequence[GenerationSettings],
        tracer: Tracer | None,
    ) -> list[Generation]:
        requests = [_request(job, own) for job, own in zip(jobs, settings, strict=True)]
        decoder = self._decoders[arm.name]
        generations: list[Generation] = decoder.generate(requests, observer=tracer)
        _check_not_interrupted(generations)
        return generations


def _request(job: Job, settings: GenerationSettings) -> Request:
    return Request(prompt=list(job.prompt_ids), settings=settings, name=job.name)


def _trace(
    record: SampleRecord,
    generation: Generation,
    rounds: Sequence[RoundTrace],
    temperature: float,
) -> RequestTrace:
    return RequestTrace.of(
        generation,
        rounds,
        arm=record.arm,
        repeat=record.repeat,
        task=record.task,
        item_id=record.item_id,
        temperature=temperature,
    )


def _check_not_interrupted(generations: Sequence[Generation]) -> None:
    """Hand on the Ctrl-C that the decoder answered by returning what it had."""
    if any(g.finish_reason is FinishReason.INTERRUPTED for g in generations):
        raise KeyboardInterrupt


def share_wall(generations: Sequence[Generation], seconds: float) -> list[float]:
    """Return each request's seconds from admission to its last token, of a call that took so many.

    A request's own are its prompt's pass and the rounds it was in, whole, whoever shared them.
    What no stage accounts for (bookkeeping between rounds) is added in proportion, so that a
    request alone has exactly the call's seconds. Prompts' passes of batch-mates are not in.
    """
    own = [g.prefill_seconds + sum(r.seconds.total for r in g.rounds) for g in generations]
    machine = sum(
        g.prefill_seconds + sum(r.seconds.total / r.batch_size for r in g.rounds)
        for g in generations
    )
    if machine <= 0:
        return [seconds / len(generations)] * len(generations)
    return [value * seconds / machine for value in own]


def to_record(
    generation: Generation, arm: str, job: Job, *, repeat: int = 0, wall_seconds: float = 0.0
) -> SampleRecord:
    """Return what a run stores of a generation."""
    return SampleRecord(
        arm=arm,
        repeat=repeat,
        task=job.task,
        item_id=job.item_id,
        family=job.family,
        prompt_ids=generation.prompt_ids,
        token_ids=generation.token_ids,
        text=generation.text,
        finish_reason=generation.finish_reason.value,
        kinds="".join(KIND_LETTERS[token.kind.value] for token in generation.receipt),
        relaxed=tuple(
            _relaxed(position, token)
            for position, token in enumerate(generation.receipt)
            if token.kind is TokenKind.RELAXED
        ),
        logprobs=tuple(token.logprob for token in generation.receipt),
        rounds=tuple(map(_counts, generation.rounds)),
        prefill_seconds=generation.prefill_seconds,
        wall_seconds=wall_seconds,
    )


def _relaxed(position: int, token: TokenReceipt) -> RelaxedToken:
    return RelaxedToken(
        position=position, regret=token.regret, rank=token.rank, choice_id=token.choice_id
    )


def _counts(record: RoundRecord) -> RoundCounts:
    seconds = record.seconds
    counters = {
        name: getattr(record, name)
        for name in RoundCounts.model_fields
        if not name.endswith("_seconds")
    }
    return RoundCounts(
        **counters,
        draft_seconds=seconds.draft,
        target_seconds=seconds.target,
        verify_seconds=seconds.verify,
        commit_seconds=seconds.commit,
    )


def _scored(record: SampleRecord, scorer: Scorer | None) -> SampleRecord:
    """Return the record with its score; a scorer that fails makes it a failed one."""
    if scorer is None:
        return record
    try:
        score = scorer(record)
    except Exception as error:  # a request without a score would count as one without a task
        return _fail(record, error, "scorer: ")
    if score is None:
        return record
    return record.model_copy(update={"score": score.value, "score_detail": score.detail})


def _failed(arm: Arm, job: Job, repeat: int, error: Exception) -> SampleRecord:
    blank: dict[str, Any] = {
        "arm": arm.name,
        "repeat": repeat,
        "task": job.task,
        "item_id": job.item_id,
        "family": job.family,
        "prompt_ids": job.prompt_ids,
    }
    return SampleRecord(**blank, status="failed", error=_describe(error))


def _fail(record: SampleRecord, error: Exception, where: str) -> SampleRecord:
    return record.model_copy(update={"status": "failed", "error": where + _describe(error)})


def _describe(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= MAX_ERROR_LENGTH else text[: MAX_ERROR_LENGTH - 1] + "…"
