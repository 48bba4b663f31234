"""Fixed work: strict, relaxed, strict on the same prompts, and which of these triplets count.

gain = relaxed tokens a second / mean of the two stricts' - 1 (ASD, arXiv 2608.03447). The second
strict shows what the machine did meanwhile. A dropped triplet is listed with its reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float

from lenity.errors import ProtocolError
from lenity.workbench.config import STRICT_A, STRICT_B
from lenity.workbench.intervals import RESAMPLES, Interval, bootstrap_gain, student_t_interval
from lenity.workbench.metrics import Counts
from lenity.workbench.records import Frozen, SampleRecord

MAX_DRIFT = 0.03
"""Of the two stricts' speeds, as a share of their mean."""

Clock = Literal["wall", "decode"]
"""End to end with the prompt's pass, or the stages of rounds only."""


class RunTotals(Frozen):
    """One arm's pass over the prompts, in one repeat."""

    output_hash: str
    """Of every request's new token ids"""
    requests: int
    """Requests that ended as they should"""
    failed: int = 0
    """Requests that did not; their tokens and seconds are not in"""
    tokens: int
    """Emitted"""
    seconds: float
    """Of the machine, see Counts"""

    @property
    def tokens_per_second(self) -> float:
        """Tokens / seconds."""
        return self.tokens / self.seconds

    @classmethod
    def of(cls, records: Iterable[SampleRecord], clock: Clock = "wall") -> RunTotals:
        """Return the totals of one arm's records of one repeat. Raises ProtocolError."""
        rows = sorted(records, key=lambda record: (record.task, record.item_id))
        counts = Counts.of(rows)
        outputs = "\n".join(f"{r.task} {r.item_id} {r.status} {r.output_hash}" for r in rows)
        return cls(
            output_hash=hashlib.sha256(outputs.encode()).hexdigest()[:16],
            requests=counts.requests,
            failed=counts.failed,
            tokens=counts.emitted,
            seconds=_seconds(counts, clock),
        )


def _seconds(counts: Counts, clock: Clock) -> float:
    seconds = counts.wall_seconds if clock == "wall" else counts.decode_seconds
    if counts.requests and not seconds > 0:
        raise ProtocolError(
            f"Expected {clock} seconds above 0, got {seconds:g} over {counts.requests} requests. "
            f"Record times, or compare target passes."
        )
    return seconds


class Triplet(Frozen):
    """Strict, relaxed, strict: one repeat of fixed work."""

    repeat: int
    """Which repetition of the protocol"""
    before: RunTotals
    """The first strict"""
    relaxed: RunTotals
    """The arm that is judged"""
    after: RunTotals
    """The second strict"""

    @property
    def strict_tokens_per_second(self) -> float:
        """Mean of the two stricts' tokens a second."""
        return (self.before.tokens_per_second + self.after.tokens_per_second) / 2

    @property
    def gain(self) -> float:
        """Relaxed tokens a second / mean of the two stricts' - 1."""
        return self.relaxed.tokens_per_second / self.strict_tokens_per_second - 1

    @property
    def drift(self) -> float:
        """(Second strict's tokens a second - the first's) / their mean."""
        change = self.after.tokens_per_second - self.before.tokens_per_second
        return change / self.strict_tokens_per_second


class Dropped(Frozen):
    """A repeat that does not count."""

    repeat: int
    reason: str


class Triplets(Frozen):
    """The triplets of an arm: those that count, and those that do not with their reasons."""

    kept: tuple[Triplet, ...]
    dropped: tuple[Dropped, ...] = ()

    @property
    def gains(self) -> tuple[float, ...]:
        """Gain of each kept triplet."""
        return tuple(triplet.gain for triplet in self.kept)

    @property
    def largest_drift(self) -> float | None:
        """Largest drift between the stricts of a kept triplet, unsigned; none without one."""
        return max((abs(triplet.drift) for triplet in self.kept), default=None)

    @property
    def interval(self) -> Interval | None:
        """Student-t interval of the gain over kept triplets; none for fewer than 2."""
        return student_t_interval(self.gains) if len(self.kept) > 1 else None


def sort_out(triplets: Iterable[Triplet], max_drift: float = MAX_DRIFT) -> Triplets:
    """Return the triplets that count, and the others with the reason.

    One counts when no request failed in it, all three arms emitted equally many tokens, the two
    stricts equal ones, and their speeds differ by at most ``max_drift`` of their mean.
    """
    kept, dropped = [], []
    for triplet in triplets:
        reason = _why_not(triplet, max_drift)
        if reason:
            dropped.append(Dropped(repeat=triplet.repeat, reason=reason))
        else:
            kept.append(triplet)
    return Triplets(kept=tuple(kept), dropped=tuple(dropped))


def _why_not(triplet: Triplet, max_drift: float) -> str:
    """Return why a triplet does not count; empty where it does."""
    runs = (triplet.before, triplet.relaxed, triplet.after)
    if any(run.failed for run in runs) or not triplet.relaxed.requests:
        return f"{[run.failed for run in runs]} requests failed in strict, relaxed, strict"
    if len({(run.requests, run.tokens) for run in runs}) > 1:
        work = ", ".join(f"{run.tokens} tokens of {run.requests} requests" for run in runs)
        return f"unequal work: {work}"
    if triplet.before.output_hash != triplet.after.output_hash:
        hashes = f"{triplet.before.output_hash} and {triplet.after.output_hash}"
        return f"the stricts' outputs differ: {hashes}"
    if abs(triplet.drift) > max_drift:
        return f"drift of {triplet.drift:+.1%} between the stricts, at most {max_drift:.0%} allowed"
    return ""


def make_triplets(
    records: Iterable[SampleRecord],
    relaxed: str,
    *,
    clock: Clock = "wall",
    max_drift: float = MAX_DRIFT,
) -> Triplets:
    """Return the triplets of a fixed-work run by repeat: strict-a, the arm ``relaxed``, strict-b.

    A repeat that an arm has not run is dropped as incomplete. Raises ProtocolError for a record
    whose counters do not add up.
    """
    by_repeat: dict[int, dict[str, list[SampleRecord]]] = {}
    for record in records:
        by_repeat.setdefault(record.repeat, {}).setdefault(record.arm, []).append(record)
    names, complete, dropped = (STRICT_A, relaxed, STRICT_B), [], []
    for repeat, arms in sorted(by_repeat.items()):
        missing = [name for name in names if name not in arms]
        if missing:
            reason = f"no records of {', '.join(missing)}"
            dropped.append(Dropped(repeat=repeat, reason=reason))
            continue
        first, middle, last = (RunTotals.of(arms[name], clock) for name in names)
        complete.append(Triplet(repeat=repeat, before=first, relaxed=middle, after=last))
    found = sort_out(complete, max_drift)
    every = sorted((*found.dropped, *dropped), key=lambda item: item.repeat)
    return Triplets(kept=found.kept, dropped=tuple(every))


def prompt_gain(
    records: Sequence[SampleRecord],
    triplets: Triplets,
    relaxed: str,
    rng: np.random.Generator,
    *,
    clock: Clock = "wall",
    resamples: int = RESAMPLES,
) -> Interval:
    """Return the gain over the kept triplets' records, with its bootstrap interval over prompts.

    (relaxed tokens / relaxed seconds) / (the same of both stricts together) - 1, each sum over
    all prompts and repeats: a prompt's repeats are resampled together. Requests of dropped repeats
    are excluded. Raises ProtocolError for fewer than 2 prompts.
    """
    repeats = {triplet.repeat for triplet in triplets.kept}
    kept = [record for record in records if record.repeat in repeats]
    prompts = sorted({(record.task, record.item_id) for record in kept})
    ours = _work([r for r in kept if r.arm == relaxed], prompts, clock)
    strict = _work([r for r in kept if r.arm in (STRICT_A, STRICT_B)], prompts, clock)
    return bootstrap_gain(ours, strict, rng, resamples=resamples)


def _work(
    records: Sequence[SampleRecord], prompts: Sequence[tuple[str, str]], clock: Clock
) -> Float[np.ndarray, "P 2"]:
    """Return tokens and seconds of every prompt, summed over its repeats."""
    place = {prompt: row for row, prompt in enumerate(prompts)}
    work = np.zeros((len(prompts), 2))
    for record in records:
        counts = Counts.of([record])
        work[place[record.task, record.item_id]] += counts.emitted, _seconds(counts, clock)
    return work
