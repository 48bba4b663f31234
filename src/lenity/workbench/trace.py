"""Traces at rest: what policies read of every round of a request, one JSON line a request.

A trace of a strict run is enough to judge any greedy policy without a model (``replay``), to see
what relaxing could gain (``opportunity``) and to find where to begin (``seed_point``). Reading one
needs no torch. Logits and regrets are float32 values, written with the fewest digits that name
them and read back exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, Field, PlainSerializer, model_validator

from lenity.errors import ProtocolError
from lenity.workbench.lines import LineLog, read_lines
from lenity.workbench.manifest import parse
from lenity.workbench.records import Frozen

if TYPE_CHECKING:
    from lenity.engine.tracing import RoundTrace
    from lenity.types import Generation

TRACE_VERSION = 1
"""Of the lines of a trace file; readers refuse a newer one."""
TRACES = "traces.jsonl"
"""Name of the file in a run directory."""


def _to_single(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(np.asarray(values, dtype=np.float32).tolist())


def _shortest(values: tuple[float, ...]) -> tuple[float, ...]:
    """Return the decimal numbers with the fewest digits that round to these float32 values."""
    return tuple(float(str(value)) for value in np.asarray(values, dtype=np.float32))


Singles = Annotated[
    tuple[float, ...],
    AfterValidator(_to_single),
    PlainSerializer(_shortest, return_type=tuple[float, ...]),
]
"""float32 values, one a position; inf and nan are written as strings."""


class TracedRound(Frozen):
    """One round as lenity.engine.tracing.RoundTrace has it. K draft tokens, K + 1 scored rows."""

    start: int = Field(ge=1)
    """Committed tokens before the round, prompt included; the last is the anchor"""
    draft_ids: tuple[int, ...]
    """Draft tokens (K)"""
    top_ids: tuple[int, ...]
    """The target's choice in each row (K + 1)"""
    top_logit: Singles
    """Its logit (K + 1)"""
    draft_logit: Singles
    """The draft token's logit (K); -inf where it is masked"""
    regret: Singles
    """Top logit less draft logit, nats (K)"""
    guarded: tuple[int, ...] = ()
    """Positions where a special or stop token is drafted or is the target's choice"""
    closed: tuple[int, ...] = ()
    """Positions behind the end of a relaxed phase"""
    ending: tuple[int, ...] = ()
    """Positions whose draft token ends the request where it is kept"""
    accepted: int = Field(ge=0)
    """Draft tokens kept and emitted"""
    emitted: int = Field(ge=1)
    """Tokens committed after stop handling"""
    second_logit: Singles | None = None
    """The second largest logit (K + 1); none where it was not kept"""
    draft_rank: tuple[int, ...] | None = None
    """The draft token's place, 0 the best (K); none where it was not kept"""
    divergence: dict[str, Singles] | None = None
    """Between the laws of target and drafter, by kind (K each); none where it was not asked for"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Refuse a round whose parts do not fit together."""
        size = len(self.draft_ids)
        per_draft = [self.draft_logit, self.regret, *(self.divergence or {}).values()]
        per_draft += [self.draft_rank] if self.draft_rank is not None else []
        per_row = [self.top_ids, self.top_logit]
        per_row += [self.second_logit] if self.second_logit is not None else []
        marked = (*self.guarded, *self.closed, *self.ending)
        fits = (
            all(len(values) == size for values in per_draft)
            and all(len(values) == size + 1 for values in per_row)
            and all(0 <= position < size for position in marked)
            and self.accepted <= size
            and self.emitted - self.accepted in (0, 1)
        )
        if not fits:
            raise ValueError(f"a round of {size} draft tokens whose parts do not fit: {self}")
        return self

    @property
    def mismatches(self) -> tuple[int, ...]:
        """Positions whose draft token is not the target's choice."""
        pairs = zip(self.draft_ids, self.top_ids, strict=False)
        return tuple(i for i, (drafted, top) in enumerate(pairs) if drafted != top)


class RequestTrace(Frozen):
    """The rounds of one request that the target verified, in order."""

    schema_version: int = TRACE_VERSION
    """Of this line"""
    arm: str
    """Name of the arm within the run, as in the request's record"""
    repeat: int = Field(default=0, ge=0)
    """Which repetition of the protocol"""
    task: str
    """Name and version of the task"""
    item_id: str
    """Of the prompt within its task"""
    policy: str
    """Rule that decided the rounds"""
    drafter: str
    """Whatever proposed the draft tokens"""
    gamma: int = Field(ge=0)
    """Draft tokens asked for per round"""
    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """0 chose the argmax"""
    prompt_length: int = Field(ge=1)
    """Tokens of the prompt"""
    finish_reason: str | None = None
    """Why the request ended"""
    rounds: tuple[TracedRound, ...]
    """In order; skipped rounds, which the target did not see, are missing"""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        """Refuse rounds that overlap."""
        at = self.prompt_length
        for traced in self.rounds:
            if traced.start < at:
                raise ValueError(f"{self.item_id}: a round at {traced.start}, before {at}")
            at = traced.start + traced.emitted
        return self

    @classmethod
    def of(cls, generation: Generation, rounds: Sequence[RoundTrace], **names: Any) -> RequestTrace:
        """Return the trace of a finished request from a Tracer's rounds of it.

        ``names`` are arm, repeat, task, item_id, and the temperature where it is not 0. Rounds
        that were seen but not committed (an interruption) are left out.
        """
        end = len(generation.prompt_ids) + len(generation.token_ids)
        return cls(
            policy=generation.effective_policy,
            drafter=generation.drafter,
            gamma=generation.gamma,
            prompt_length=len(generation.prompt_ids),
            finish_reason=str(generation.finish_reason),
            rounds=tuple(
                TracedRound.model_validate(asdict(traced))
                for traced in rounds
                if traced.start + traced.emitted <= end
            ),
            **names,
        )

    @property
    def key(self) -> tuple[str, int, str, str]:
        """Arm, repeat, task, item: the key of the request's record."""
        return self.arm, self.repeat, self.task, self.item_id

    @property
    def num_emitted(self) -> int:
        """New tokens of the traced rounds."""
        return sum(traced.emitted for traced in self.rounds)

    @property
    def is_whole(self) -> bool:
        """Whether the rounds follow one another without a gap."""
        ends = [self.prompt_length, *(r.start + r.emitted for r in self.rounds)]
        return [r.start for r in self.rounds] == ends[:-1]


def append_traces(log: LineLog, traces: Iterable[RequestTrace]) -> None:
    """Add traces to a file, all or none. Raises RunDirError."""
    log.append([trace.model_dump_json(exclude_none=True) for trace in traces])


def read_traces(
    path: Path, *, where: Callable[[RequestTrace], bool] | None = None
) -> Iterator[RequestTrace]:
    """Yield the traces of a file in order; a torn last line is left out.

    A file that is not there has none. Raises RunDirError at a damaged line or a newer version.
    """
    for number, line in read_lines(path):
        trace = parse(RequestTrace, line, f"{path}, line {number}", TRACE_VERSION)
        if where is None or where(trace):
            yield trace


def check_strict(traces: Iterable[RequestTrace], purpose: str) -> None:
    """Refuse traces that are not of a whole, greedy, strict run. Raises ProtocolError."""
    for trace in traces:
        if trace.policy != "strict" or trace.temperature or not trace.is_whole:
            got = f"{trace.policy} at temperature {trace.temperature:g}"
            raise ProtocolError(
                f"Expected the trace of a strict run at temperature 0 for {purpose}, got "
                f"{got if trace.is_whole else f'rounds with gaps ({got})'} for {trace.task} "
                f"{trace.item_id}. Trace the strict arm, without a skip rule."
            )
