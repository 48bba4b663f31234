"""What passes and drafts cost on a machine, and the speed that follows from it and an acceptance.

Pure: the numbers come from timing.py, a file or a test. One formula, with a conditional acceptance
c_i at every draft position i (see acceptance.py):

    speedup(gamma) = E[emitted] * T(1) / (T_draft(gamma) + T(gamma + 1))
    E[emitted]     = 1 + c_0 + c_0 c_1 + … + c_0 … c_{gamma - 1}

T(w) is a target pass over w tokens, all at one batch size; plain decoding is 1. Where only a share
s of a row's rounds has a draft (an n-gram drafter without a match), E is 1 + s (E - 1), and a pass
is wide when any of the B rows drafted: T is w T(gamma + 1) + (1 - w) T(1), w = 1 - (1 - s)^B.
Verification, commits and sampling are not in it, so a prediction errs to the high side. A wide pass
counts for at least as much as any narrower one, however it was timed: what is left of a speedup
above E is noise, and nothing accepted never predicts a gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from lenity.errors import ConfigError
from lenity.registry import read_file

NOISY = 0.25
"""Spread of timings, relative to their median, beyond which a prediction should not be trusted."""


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PassCost(_Stored):
    """Wall seconds of a target pass, LM head included."""

    width: int = Field(ge=1)
    """Tokens per row"""
    batch: int = Field(ge=1)
    """Rows"""
    seconds: float = Field(gt=0)
    """Median"""
    low_seconds: float = Field(gt=0)
    """First quartile"""
    high_seconds: float = Field(gt=0)
    """Third quartile"""


class DraftCost(_Stored):
    """Wall seconds a drafter takes in a round: proposing, and learning what was accepted."""

    gamma: int = Field(ge=1)
    """Draft tokens asked for per row"""
    batch: int = Field(ge=1)
    """Rows"""
    seconds: float = Field(ge=0)
    """Median"""
    low_seconds: float = Field(ge=0)
    """First quartile"""
    high_seconds: float = Field(ge=0)
    """Third quartile"""


class CostCurves(_Stored):
    """Costs of one target, and of one drafter for it, on one machine. Raises ConfigError."""

    schema_version: Literal[1] = 1
    """Of this file"""
    target: str
    """Name the target was loaded by"""
    drafter: str | None
    """Spec of the drafter; none: drafts are taken to cost nothing"""
    dtype: str
    """Dtype of the target"""
    device: str
    """Device of the target"""
    threads: int
    """Threads of torch"""
    context: int
    """Tokens cached before each timed pass"""
    repeats: int
    """Timings behind each median"""
    versions: dict[str, str]
    """Of the packages that decide the speed"""
    passes: tuple[PassCost, ...]
    """Over width and batch"""
    drafts: tuple[DraftCost, ...] = ()
    """Over gamma and batch"""

    @property
    def batches(self) -> tuple[int, ...]:
        """Batch sizes that were measured."""
        return tuple(sorted({cost.batch for cost in self.passes}))

    @property
    def max_gamma(self) -> int:
        """Most draft tokens that can be predicted for: a pass over them and the anchor is known."""
        widest = max(cost.width for cost in self.passes) - 1
        longest = max((cost.gamma for cost in self.drafts), default=widest)
        return min(widest, longest)

    @property
    def is_noisy(self) -> bool:
        """Whether other work on the machine shows.

        Quartiles of a pass apart by more than NOISY of its median, or a wide pass that took less
        than a pass over one token by more than that.
        """
        return any(
            cost.high_seconds - cost.low_seconds > NOISY * cost.seconds
            or cost.seconds < (1 - NOISY) * self.pass_seconds(1, cost.batch)
            for cost in self.passes
        )

    def pass_seconds(self, width: int, batch: int) -> float:
        """Return T(width), on the line between the widths measured, never less for a wider pass."""
        found = sorted((c.width, c.seconds) for c in self.passes if c.batch == batch)
        rising = accumulate((seconds for _, seconds in found), max)
        return _interpolate(dict(zip((size for size, _ in found), rising, strict=True)), width)

    def draft_seconds(self, gamma: int, batch: int) -> float:
        """Return T_draft(gamma), on the line between the gammas measured; 0 without a drafter."""
        found = {c.gamma: c.seconds for c in self.drafts if c.batch == batch}
        return _interpolate(found, gamma) if self.drafts else 0.0

    def write(self, file: Path) -> None:
        """Write JSON; the file appears whole or not at all. Raises ConfigError."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_name(f"{file.name}.part")
            part.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
            part.replace(file)
        except OSError as error:
            raise ConfigError(
                f"Expected to write the cost curves to {file}, got: {error}. Set LENITY_CACHE to a "
                f"folder you can write to."
            ) from None

    @classmethod
    def read(cls, file: Path) -> CostCurves:
        """Return what ``write`` wrote. Raises ConfigError."""
        return read_file(
            cls,
            file,
            expected="cost curves, got something else",
            advice="Measure them again with `lenity doctor --curves`.",
        )


def _interpolate(points: dict[int, float], at: int) -> float:
    known = sorted(points)
    if not known or not known[0] <= at <= known[-1]:
        raise ConfigError(
            f"Expected a size between those measured, {known or 'none at this batch size'}, got "
            f"{at}. Measure it too."
        )
    after = next(size for size in known if size >= at)
    before = max(size for size in known if size <= at)
    if after == before:
        return points[after]
    share = (at - before) / (after - before)
    return points[before] * (1 - share) + points[after] * share


def expected_tokens(
    conditional: Sequence[float], gamma: int, *, drafting_share: float = 1.0
) -> float:
    """Return E[emitted] of a round; positions beyond the curve are never accepted."""
    kept = accumulate(conditional[:gamma], mul)
    return 1 + drafting_share * sum(kept)


def round_seconds(
    curves: CostCurves, gamma: int, *, batch: int = 1, drafting_share: float = 1.0
) -> float:
    """Return what a round costs: the draft, and a pass over it and the anchor (see the module)."""
    if not gamma:
        return curves.pass_seconds(1, batch)
    wide_share = 1 - (1 - drafting_share) ** batch
    wide, narrow = curves.pass_seconds(gamma + 1, batch), curves.pass_seconds(1, batch)
    return curves.draft_seconds(gamma, batch) + wide_share * wide + (1 - wide_share) * narrow


def predict_speedup(
    curves: CostCurves,
    conditional: Sequence[float],
    gamma: int,
    *,
    batch: int = 1,
    drafting_share: float = 1.0,
) -> float:
    """Return how many times as fast as plain decoding: E[emitted] T(1) / (T_draft + T(gamma + 1)).

    ``conditional`` is the conditional acceptance by position, in rounds that drafted. gamma 0 is
    plain decoding, 1.
    """
    tokens = expected_tokens(conditional, gamma, drafting_share=drafting_share)
    cost = round_seconds(curves, gamma, batch=batch, drafting_share=drafting_share)
    return tokens * curves.pass_seconds(1, batch) / cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The gamma that predicts most at a batch size; 0 means off: no gamma predicts a gain."""

    batch: int
    gamma: int
    speedup: float


def recommend(
    curves: CostCurves,
    conditional: Sequence[float],
    *,
    batch: int = 1,
    drafting_share: float = 1.0,
) -> Advice:
    """Return the gamma from 0 to what was measured whose speedup is largest; the smaller of equals.

    No gamma beyond the acceptance curve is tried: nothing is known there.
    """
    longest = min(curves.max_gamma, len(conditional))
    speedups = [
        predict_speedup(curves, conditional, gamma, batch=batch, drafting_share=drafting_share)
        for gamma in range(longest + 1)
    ]
    best = max(range(len(speedups)), key=lambda gamma: (speedups[gamma], -gamma))
    return Advice(batch=batch, gamma=best, speedup=speedups[best])
