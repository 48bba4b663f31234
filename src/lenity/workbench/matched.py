"""Rules at equal regret: what each gains where all of them give away the same.

A rule over a grid of its knobs is a curve: mean regret per request against tokens per target pass.
Two rules are compared at a level of mean regret, or at a level of tokens per target pass, each
curve read by linear interpolation between its settings, strict (0 regret) among them; beyond its
last setting a curve goes on flat, for no rule has to spend. Intervals resample prompts, the same
ones for both rules, with the settings held fixed.

Of a large grid only the upper concave hull is worth running. Chosen and judged on the same prompts
it would look better than it is, the more so the larger the grid: choose it on one half of the
prompts and judge it on the other (``halves``).

For the other reading of "equal regret" see ``dearest_within``: the setting that gains most while
no request spends more than a cap (the largest realised regret of ASD, arXiv 2608.03447, fig. 6c).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int
from pydantic import Field

from lenity.errors import ProtocolError
from lenity.workbench.intervals import Interval, bootstrap
from lenity.workbench.records import Frozen, SampleRecord
from lenity.workbench.replay import Prediction

Key: TypeAlias = tuple[str, str]
"""Task and item."""
Axis = Literal["regret", "tokens_per_pass"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Settings of one rule on the same prompts: what each request emitted, needed and spent."""

    specs: tuple[str, ...]
    prompts: tuple[Key, ...]
    tokens: Float[np.ndarray, "S P"]
    passes: Float[np.ndarray, "S P"]
    regret: Float[np.ndarray, "S P"]
    """Nats"""
    relaxed: Float[np.ndarray, "S P"]
    """Tokens that strict would have rejected; ties among them cost nothing"""

    @classmethod
    def of_records(cls, arms: Mapping[str, Iterable[SampleRecord]]) -> Spending:
        """Return what was measured, by spec; prompts that failed in an arm are in none.

        Raises ProtocolError where the arms share no prompt.
        """
        found = {
            spec: {(r.task, r.item_id): r for r in records if r.status == "ok" and r.token_ids}
            for spec, records in arms.items()
        }
        rows = list(found.values())
        prompts = tuple(key for key in rows[0] if all(key in row for row in rows)) if rows else ()
        if not prompts:
            raise ProtocolError(
                f"Expected prompts that every one of {', '.join(found)} answered, got none. Run "
                f"the arms on the same prompts."
            )
        return cls(
            specs=tuple(found),
            prompts=prompts,
            tokens=_table([[len(row[key].token_ids) for key in prompts] for row in rows]),
            passes=_table([[_passes(row[key]) for key in prompts] for row in rows]),
            regret=_table([[row[key].regret_spent for key in prompts] for row in rows]),
            relaxed=_table([[len(row[key].relaxed) for key in prompts] for row in rows]),
        )

    @classmethod
    def of_predictions(cls, predictions: Sequence[Prediction], prompts: Sequence[Key]) -> Spending:
        """Return what replay predicts, in the order of the traces."""
        return cls(
            specs=tuple(said.policy for said in predictions),
            prompts=tuple(prompts),
            tokens=_table([said.tokens for said in predictions]),
            passes=_table([said.passes for said in predictions]),
            regret=_table([said.regret for said in predictions]),
            relaxed=_table([said.relaxed for said in predictions]),
        )

    @property
    def tokens_per_pass(self) -> Float[np.ndarray, " S"]:
        """Sum of tokens / sum of passes, a setting."""
        return np.asarray(self.tokens.sum(1) / self.passes.sum(1))

    @property
    def mean_regret(self) -> Float[np.ndarray, " S"]:
        """Nats per request, a setting."""
        return np.asarray(self.regret.mean(1))

    @property
    def max_regret(self) -> Float[np.ndarray, " S"]:
        """Nats of the dearest request, a setting."""
        return np.asarray(self.regret.max(1))

    @property
    def coverage(self) -> Float[np.ndarray, " S"]:
        """Requests with a relaxed token / requests, a setting."""
        return np.asarray((self.relaxed > 0).mean(1))

    def settings(self, chosen: Sequence[int]) -> Spending:
        """Return some settings, in that order."""
        index = list(chosen)
        return replace(
            self,
            specs=tuple(self.specs[i] for i in index),
            tokens=self.tokens[index],
            passes=self.passes[index],
            regret=self.regret[index],
            relaxed=self.relaxed[index],
        )

    def named(self, specs: Sequence[str]) -> Spending:
        """Return settings by spec, in that order."""
        return self.settings([self.specs.index(spec) for spec in specs])

    def only(self, is_kept: Bool[np.ndarray, " P"]) -> Spending:
        """Return the same settings on some of the prompts."""
        return replace(
            self,
            prompts=tuple(key for key, keep in zip(self.prompts, is_kept, strict=True) if keep),
            tokens=self.tokens[:, is_kept],
            passes=self.passes[:, is_kept],
            regret=self.regret[:, is_kept],
            relaxed=self.relaxed[:, is_kept],
        )

    def hull(self) -> tuple[int, ...]:
        """Return the settings on the upper concave hull of (mean regret, tokens per pass).

        From the cheapest one up to the one with most tokens per pass; what lies between two of
        them gains no more than their mixture would.
        """
        x, y = self.mean_regret, self.tokens_per_pass
        kept: list[int] = []
        for i in np.lexsort((-y, x)).tolist():
            if kept and y[i] <= y[kept[-1]]:
                continue
            while len(kept) > 1 and _is_below(x, y, kept[-2], kept[-1], i):
                kept.pop()
            kept.append(i)
        return tuple(kept)

    def dearest_within(self, cap: float | int) -> int | None:
        """Return the setting that gains most of those whose dearest request costs at most cap."""
        allowed = np.flatnonzero(self.max_regret <= cap)
        return int(allowed[self.tokens_per_pass[allowed].argmax()]) if allowed.size else None


def halves(prompts: Sequence[Key]) -> Bool[np.ndarray, " P"]:
    """Return which prompts are in the first half: by a hash of task and item, whatever the order.

    Every second one would put whole families on one side where families take turns.
    """
    digests = (hashlib.sha256(f"{task} {item}".encode()).digest() for task, item in prompts)
    return np.array([digest[0] % 2 == 0 for digest in digests], dtype=np.bool_)


class AtLevel(Frozen):
    """Two rules where they spend the same, or gain the same."""

    axis: Axis
    """What is equal: mean regret per request (nats), or tokens per target pass"""
    level: float
    own: float
    """The other quantity of the rule itself"""
    other: float
    """The other quantity of the rule it is compared with"""
    difference: Interval
    """own / other - 1"""
    num_prompts: int = Field(ge=2)


def compare(
    pairs: Sequence[tuple[Spending, Spending]],
    level: float,
    rng: np.random.Generator,
    *,
    axis: Axis = "regret",
    resamples: int = 10_000,
) -> AtLevel:
    """Return how a rule stands to another at one level.

    ``pairs`` holds (rule, other) on prompts that no other pair has: one pair, or one for each half
    whose settings were chosen on the other half; their values are averaged. Raises ProtocolError
    where the two of a pair are not on the same prompts.
    """
    sizes = [3 * len(rule.specs) + 1 for pair in pairs for rule in pair]
    sums = _sums(pairs, sizes)
    starts = np.cumsum([0, *sizes])
    spans = [slice(start, end) for start, end in pairwise(starts)]

    def value(sums: Float[np.ndarray, "R K"], which: int) -> Float[np.ndarray, " R"]:
        rows = [_read(sums[:, span], level, axis) for span in spans[which::2]]
        return np.asarray(np.mean(rows, axis=0))

    def difference(sums: Float[np.ndarray, "R K"]) -> Float[np.ndarray, " R"]:
        return value(sums, 0) / value(sums, 1) - 1

    total = sums.sum(0, keepdims=True)
    return AtLevel(
        axis=axis,
        level=level,
        own=float(value(total, 0)[0]),
        other=float(value(total, 1)[0]),
        difference=bootstrap(sums, difference, rng, resamples=resamples),
        num_prompts=len(sums),
    )


def paired_difference(
    own: Spending, other: Spending, rng: np.random.Generator, *, resamples: int = 10_000
) -> Interval:
    """Return tokens per pass of one setting / those of another - 1, prompts resampled.

    Raises ProtocolError unless both are one setting on the same prompts.
    """
    _check_prompts(own, other)
    sums = np.concatenate([own.tokens, own.passes, other.tokens, other.passes]).T
    if sums.shape[1] != 4:
        raise ProtocolError(
            f"Expected one setting of either rule, got {len(own.specs)} and {len(other.specs)}. "
            f"Take one of each with settings([i])."
        )
    return bootstrap(
        sums,
        lambda s: (s[:, 0] / s[:, 1]) / (s[:, 2] / s[:, 3]) - 1,
        rng,
        resamples=resamples,
    )


def _table(rows: Sequence[Sequence[float | int]]) -> Float[np.ndarray, "S P"]:
    return np.array(rows, dtype=np.float64)


def _passes(record: SampleRecord) -> int:
    return max(sum(counts.target_passes for counts in record.rounds), 1)


def _is_below(
    x: Float[np.ndarray, " S"], y: Float[np.ndarray, " S"], left: int, middle: int, right: int
) -> bool:
    """Return whether the middle point is on or below the line from left to right."""
    rise = (y[right] - y[left]) * (x[middle] - x[left])
    return bool((y[middle] - y[left]) * (x[right] - x[left]) <= rise)


def _check_prompts(own: Spending, other: Spending) -> None:
    if own.prompts != other.prompts:
        raise ProtocolError(
            f"Expected both rules on the same prompts in the same order, got {len(own.prompts)} "
            f"and {len(other.prompts)}. Read them from arms of one run."
        )


def _rows(spending: Spending) -> Float[np.ndarray, "P K"]:
    """Return a rule as columns that prompts can be resampled by: tokens, passes, regret, and 1."""
    ones = np.ones((1, len(spending.prompts)))
    return np.concatenate([spending.tokens, spending.passes, spending.regret, ones]).T


def _sums(
    pairs: Sequence[tuple[Spending, Spending]], sizes: Sequence[int]
) -> Float[np.ndarray, "P K"]:
    """Return one row a prompt; the columns of pairs that do not have it are 0."""
    rows: list[Float[np.ndarray, "P K"]] = []
    start, width = 0, sum(sizes)
    for own, other in pairs:
        _check_prompts(own, other)
        block = np.concatenate([_rows(own), _rows(other)], axis=1)
        padded = np.zeros((len(block), width))
        padded[:, start : start + block.shape[1]] = block
        rows.append(padded)
        start += block.shape[1]
    return np.concatenate(rows)


def _read(sums: Float[np.ndarray, "R K"], level: float, axis: Axis) -> Float[np.ndarray, " R"]:
    """Return a curve's value at a level in every resample."""
    size = (sums.shape[1] - 1) // 3
    gain = sums[:, :size] / sums[:, size : 2 * size]
    spent = sums[:, 2 * size : 3 * size] / sums[:, 3 * size :]
    x, y = (spent, gain) if axis == "regret" else (gain, spent)
    order: Int[np.ndarray, "R S"] = x.argsort(1, kind="stable")
    x, y = np.take_along_axis(x, order, 1), np.take_along_axis(y, order, 1)
    return np.array([np.interp(level, *pair) for pair in zip(x, y, strict=True)])
