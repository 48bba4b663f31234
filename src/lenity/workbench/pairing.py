"""Two arms side by side: the same prompt, the same repeat, whatever happened in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from lenity.errors import ProtocolError
from lenity.workbench.records import SampleRecord
from lenity.workbench.repetition import is_complete

Key = tuple[str, str, int]
"""Task, item, repeat: what is the same on both sides of a pair."""
Measure = Callable[[SampleRecord], float | None]
"""One number of a request; none where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedValues:
    """One number a prompt in each arm, repeats averaged; ``excluded`` says what is not in."""

    prompts: tuple[tuple[str, str], ...]
    """Task and item"""
    strict: Float[np.ndarray, " P"]
    relaxed: Float[np.ndarray, " P"]
    num_pairs: int
    """Requests behind them, of either arm"""
    excluded: tuple[str, ...]
    """One line for each pair left out: which, and why"""

    @property
    def differences(self) -> Float[np.ndarray, " P"]:
        """Relaxed - strict, one a prompt."""
        return self.relaxed - self.strict


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Requests of two arms, strict first, matched by task, item and repeat."""

    pairs: tuple[tuple[SampleRecord, SampleRecord], ...]
    excluded: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        strict: Iterable[SampleRecord],
        relaxed: Iterable[SampleRecord],
        *,
        names: tuple[str, str] = ("strict", "relaxed"),
    ) -> Pairs:
        """Match two arms. A pair with a failed, interrupted or missing side is left out, listed.

        ``names`` are what the list calls them. Raises ProtocolError where an arm holds a request
        twice.
        """
        left, right = _by_key(strict), _by_key(relaxed)
        pairs, excluded = [], []
        for key in dict.fromkeys([*left, *right]):
            ours, theirs = left.get(key), right.get(key)
            reason = _why_not(ours, names[0]) or _why_not(theirs, names[1])
            if reason or ours is None or theirs is None:
                excluded.append(f"{key[0]} {key[1]}, repeat {key[2]}: {reason}")
            else:
                pairs.append((ours, theirs))
        return cls(pairs=tuple(pairs), excluded=tuple(excluded))

    def values(self, measure: Measure, name: str) -> PairedValues:
        """Return ``measure`` of both arms by prompt: the mean over its repeats, one vote each.

        Pairs in which either side has no such number are left out. Raises ProtocolError where
        fewer than 2 prompts have one.
        """
        by_prompt: dict[tuple[str, str], list[tuple[float, float]]] = {}
        excluded = list(self.excluded)
        for ours, theirs in self.pairs:
            before, after = measure(ours), measure(theirs)
            if before is None or after is None:
                excluded.append(f"{ours.task} {ours.item_id}, repeat {ours.repeat}: no {name}")
            else:
                by_prompt.setdefault((ours.task, ours.item_id), []).append((before, after))
        if len(by_prompt) < 2:
            raise ProtocolError(
                f"Expected at least 2 prompts with a {name} in both arms, got {len(by_prompt)} "
                f"({len(excluded)} pairs left out; {'; '.join(excluded[:3]) or 'none seen'}). "
                f"Measure more prompts."
            )
        means = np.array([np.mean(values, axis=0) for values in by_prompt.values()])
        return PairedValues(
            prompts=tuple(by_prompt),
            strict=means[:, 0],
            relaxed=means[:, 1],
            num_pairs=sum(map(len, by_prompt.values())),
            excluded=tuple(excluded),
        )


def _why_not(record: SampleRecord | None, arm: str) -> str:
    """Return why a side of a pair cannot be used; empty where it can."""
    if record is None:
        return f"not in {arm}"
    if record.status == "failed":
        return f"failed in {arm} ({record.error})"
    return "" if is_complete(record) else f"interrupted in {arm}"


def _by_key(records: Iterable[SampleRecord]) -> dict[Key, SampleRecord]:
    found: dict[Key, SampleRecord] = {}
    for record in records:
        key = (record.task, record.item_id, record.repeat)
        if key in found:
            raise ProtocolError(
                f"Expected one request of {record.task} {record.item_id}, repeat "
                f"{record.repeat}, in an arm, got a second one (arms {found[key].arm} and "
                f"{record.arm}). Give the records of one arm."
            )
        found[key] = record
    return found


def score(record: SampleRecord) -> float | None:
    """Return the task's score, 0 to 1; none where the task has no scorer."""
    return record.score


def mean_logprob(record: SampleRecord) -> float | None:
    """Return the sum of the target's log-probabilities / new tokens, nats; none without them.

    Every token has the probability the target gave it after those before it, drafted or not, so
    this is the teacher-forced mean.
    """
    if not record.logprobs:
        return None
    mean = float(np.mean(record.logprobs))
    if not np.isfinite(mean):
        raise ProtocolError(
            f"{record.arm}, {record.item_id}: expected finite log-probabilities, got a mean of "
            f"{mean}. A token the target gives no chance was emitted; look at the run."
        )
    return mean
