"""Fixed work and natural EOS: which arm decodes which prompts when, and what happens at the end.

Both protocols are rounds of turns, run by one loop: arms take turns block by block, so that
whatever the machine does meanwhile falls on all of them. What is recorded already is skipped. At
the deadline a run ends with what it has and says what is missing; Ctrl-C goes through to the
caller, and a run directory can be gone on with.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lenity.errors import ProtocolError
from lenity.requests import GenerationSettings
from lenity.workbench.arms import Arms
from lenity.workbench.config import Arm, FixedWork, NaturalEos
from lenity.workbench.jobs import Job, Scorer
from lenity.workbench.records import SampleRecord
from lenity.workbench.rundir import Key

Progress = Callable[[int, int, float], None]
"""Told requests recorded, requests in all, and seconds since this process began the protocol."""


@runtime_checkable
class Sink(Protocol):
    """Where records go; a RunDir is one."""

    def __contains__(self, key: object) -> bool:
        """Return whether this (arm, repeat, task, item) is recorded."""
        ...

    def append(self, *records: SampleRecord) -> None:
        """Record requests, all or none of them."""
        ...


class Deadline:
    """Minutes a piece of work may take, from now on; None is as many as it needs."""

    def __init__(
        self, max_minutes: float | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start the clock."""
        self.max_minutes, self._clock = max_minutes, clock
        self._end = None if max_minutes is None else clock() + 60 * max_minutes

    @property
    def seconds_left(self) -> float:
        """Seconds until the end, negative behind it; inf without one."""
        return float("inf") if self._end is None else self._end - self._clock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a protocol ended.

    ``done`` of ``total`` requests are recorded; ``failed`` counts the failures among those that
    this process recorded. ``missing`` counts what the deadline left out, by arm.
    """

    done: int
    total: int
    failed: int
    seconds: float
    missing: dict[str, int]

    @property
    def is_complete(self) -> bool:
        """Whether every request of every arm is recorded, failed ones included."""
        return not self.missing

    def __str__(self) -> str:
        """Return the outcome in one line, with what is missing."""
        text = f"{self.done} of {self.total} requests recorded"
        if self.failed:
            text += f", {self.failed} of them failed"
        if self.missing:
            text += "; missing: " + ", ".join(f"{n} of {arm}" for arm, n in self.missing.items())
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A block of prompts that one arm decodes, in calls of at most ``call_size`` prompts."""

    arm: Arm
    repeat: int
    jobs: tuple[Job, ...]
    settings: tuple[GenerationSettings, ...]
    call_size: int

    @property
    def keys(self) -> list[Key]:
        """Return what the turn records, in order."""
        return [(self.arm.name, self.repeat, job.task, job.item_id) for job in self.jobs]


Round = tuple[Turn, ...]
"""Every arm's turn at one block."""


def fixed_work(
    arms: Arms,
    jobs: Sequence[Job],
    settings: FixedWork,
    sink: Sink,
    *,
    progress: Progress | None = None,
    deadline: Deadline | None = None,
) -> Outcome:
    """Decode exactly ``new_tokens`` for every job in every arm, ``repeats`` times; record it.

    Arms run in the order given (see ``config.triplet``), block by block; the blocks' order is
    rotated by one each repeat. Stop ids are ignored. A batch begins together and ends together.
    Raises ProtocolError where a prompt leaves no room for the tokens.
    """
    _check_jobs(jobs)
    _check_room(arms, jobs, settings.new_tokens)
    run = _Run(arms, sink, progress, deadline)
    return run.all(plan_fixed_work(arms.arms, jobs, settings), jobs, settings.warmup_tokens)


def natural_eos(
    arms: Arms,
    jobs: Sequence[Job],
    settings: NaturalEos,
    sink: Sink,
    *,
    scorer: Scorer | None = None,
    progress: Progress | None = None,
    deadline: Deadline | None = None,
) -> Outcome:
    """Let every job stop by itself in every arm, score it, and record it; paired by prompt.

    A request ends at the target's end-of-sequence ids, at a string of ``stop``, or truncated. A
    block's prompts enter the batch as others end.
    """
    _check_jobs(jobs)
    run = _Run(arms, sink, progress, deadline, scorer)
    return run.all(plan_natural_eos(arms.arms, jobs, settings), jobs, settings.warmup_tokens)


def plan_fixed_work(
    arms: Sequence[Arm], jobs: Sequence[Job], settings: FixedWork
) -> tuple[Round, ...]:
    """Return the rounds of fixed work, in order."""

    def own(arm: Arm, index: int, repeat: int) -> GenerationSettings:
        return GenerationSettings(
            gamma=arm.gamma,
            max_new_tokens=settings.new_tokens,
            ignore_eos=True,
            temperature=settings.temperature,
            seed=settings.seed + index,
        )

    blocks = _blocks(len(jobs), settings.block_size)
    rounds: list[Round] = []
    for repeat in range(settings.repeats):
        start = repeat % max(1, len(blocks))
        rounds += [
            _round(arms, jobs, block, repeat, own) for block in blocks[start:] + blocks[:start]
        ]
    return tuple(rounds)


def plan_natural_eos(
    arms: Sequence[Arm], jobs: Sequence[Job], settings: NaturalEos
) -> tuple[Round, ...]:
    """Return the rounds of natural EOS, in order."""

    def own(arm: Arm, index: int, repeat: int) -> GenerationSettings:
        return GenerationSettings(
            gamma=arm.gamma,
            max_new_tokens=settings.max_new_tokens or jobs[index].max_new_tokens,
            stop=settings.stop,
            temperature=settings.temperature,
            seed=settings.seed + repeat * len(jobs) + index,
        )

    blocks = _blocks(len(jobs), settings.block_size)
    return tuple(
        _round(arms, jobs, block, repeat, own, call_size=settings.block_size)
        for repeat in range(settings.repeats)
        for block in blocks
    )


def _blocks(count: int, size: int) -> list[range]:
    """Return the indices of each block of prompts."""
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def _round(
    arms: Sequence[Arm],
    jobs: Sequence[Job],
    block: range,
    repeat: int,
    own: Callable[[Arm, int, int], GenerationSettings],
    *,
    call_size: int | None = None,
) -> Round:
    """Return every arm's turn at a block; calls are as large as the arm's batch if not said."""
    return tuple(
        Turn(
            arm=arm,
            repeat=repeat,
            jobs=tuple(jobs[i] for i in block),
            settings=tuple(own(arm, i, repeat) for i in block),
            call_size=call_size or arm.batch_size,
        )
        for arm in arms
    )


class _Run:
    """One protocol on its way: what is done, how long it took, how much time is left."""

    def __init__(
        self,
        arms: Arms,
        sink: Sink,
        progress: Progress | None,
        deadline: Deadline | None,
        scorer: Scorer | None = None,
    ) -> None:
        self._arms, self._sink, self._scorer = arms, sink, scorer
        self._progress, self._deadline = progress, deadline or Deadline()
        self._started = time.perf_counter()
        self._spent: dict[str, tuple[float, int]] = {}  # arm -> seconds, requests
        self._done = self._total = self._failed = 0

    def all(self, rounds: Sequence[Round], jobs: Sequence[Job], warmup_tokens: int) -> Outcome:
        """Run what is not recorded yet, until it is, or time is up."""
        todo = self._missing(rounds)
        self._total = sum(len(turn.jobs) for turns in rounds for turn in turns)
        self._done = self._total - sum(todo.values())
        self._tell()
        if warmup_tokens:
            self._warm_up([arm for arm in self._arms.arms if todo[arm.name]], jobs, warmup_tokens)
        for turns in rounds:
            if not self._fits(turns) or not all(self._take(turn) for turn in turns):
                break
        left = self._missing(rounds)
        missing = {arm.name: left[arm.name] for arm in self._arms.arms if left[arm.name]}
        return Outcome(
            done=self._done,
            total=self._total,
            failed=self._failed,
            seconds=time.perf_counter() - self._started,
            missing=missing,
        )

    def _missing(self, rounds: Sequence[Round]) -> Counter[str]:
        return Counter(
            turn.arm.name
            for turns in rounds
            for turn in turns
            for key in turn.keys
            if key not in self._sink
        )

    def _warm_up(self, arms: Sequence[Arm], jobs: Sequence[Job], tokens: int) -> None:
        for arm in arms:
            settings = GenerationSettings(gamma=arm.gamma, max_new_tokens=tokens, ignore_eos=True)
            self._arms.warm_up(arm, jobs, settings)

    def _fits(self, turns: Round) -> bool:
        """Return whether a round is likely to end in time, at the pace of those before."""
        left, expected = self._deadline.seconds_left, 0.0
        for turn in turns:
            seconds, requests = self._spent.get(turn.arm.name, (0.0, 1))
            expected += seconds / requests * sum(key not in self._sink for key in turn.keys)
        return expected <= left and left > 0

    def _take(self, turn: Turn) -> bool:
        """Run what a turn has left; return whether time was enough."""
        rest = [
            (job, own)
            for key, job, own in zip(turn.keys, turn.jobs, turn.settings, strict=True)
            if key not in self._sink
        ]
        for start in range(0, len(rest), turn.call_size):
            if self._deadline.seconds_left <= 0:
                return False
            self._call(turn, *zip(*rest[start : start + turn.call_size], strict=True))
        return True

    def _call(
        self, turn: Turn, jobs: Sequence[Job], settings: Sequence[GenerationSettings]
    ) -> None:
        began = time.perf_counter()
        records = self._arms.run(turn.arm, jobs, settings, repeat=turn.repeat, scorer=self._scorer)
        self._sink.append(*records)
        seconds, requests = self._spent.get(turn.arm.name, (0.0, 0))
        self._spent[turn.arm.name] = (
            seconds + time.perf_counter() - began,
            requests + len(records),
        )
        self._done += len(records)
        self._failed += sum(record.status == "failed" for record in records)
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._done, self._total, time.perf_counter() - self._started)


def _check_jobs(jobs: Sequence[Job]) -> None:
    """Refuse no prompts, and two of one name. Raises ProtocolError."""
    if not jobs:
        raise ProtocolError("Expected at least one prompt to run, got none. Choose more items.")
    (name, count), *_ = Counter(job.name for job in jobs).most_common(1)
    if count > 1:
        raise ProtocolError(
            f"Expected each prompt once, got {name} {count} times. A request is known by its task "
            f"and item; give the second another id, or ask for more repeats."
        )


def _check_room(arms: Arms, jobs: Sequence[Job], new_tokens: int) -> None:
    """Refuse fixed work that would end at the context's end. Raises ProtocolError."""
    limit = arms.target.max_positions
    for job in jobs:
        length = len(job.prompt_ids)
        if limit is not None and length + new_tokens > limit:
            raise ProtocolError(
                f"Expected room for {new_tokens} new tokens after every prompt, but {job.name} has "
                f"{length} tokens and {arms.target.name} a context of {limit}. Leave that item "
                f"out, or ask for at most {max(0, limit - length)} new tokens."
            )
