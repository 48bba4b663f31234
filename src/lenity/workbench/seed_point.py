"""Where to begin: ASD's knobs read off a strict run, without trying any.

Decode strictly; at the first mismatch of each block log r / (K - i + 1), the price per position it
could unlock, where it is above 0; take the 25th percentile q25 (linear interpolation at index
(n - 1) / 4) and set B = g = q25, M = 1. From the calibration of the authors' repository
(Kissmetothemoon/ASD); the paper does not have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite

import numpy as np
from pydantic import Field

from lenity.errors import ProtocolError
from lenity.registry import join_spec
from lenity.workbench.records import Frozen
from lenity.workbench.trace import RequestTrace, check_strict

QUANTILE = 0.25
BLOCK_CAP = 1
"""M of the seed: one relaxed token a round."""


class SeedPoint(Frozen):
    """ASD's knobs to start a search from, and what they were read off."""

    budget: float = Field(gt=0)
    """B = q25, nats"""
    gate: float = Field(gt=0)
    """g = q25, nats per remaining position"""
    block_cap: int = BLOCK_CAP
    """M"""
    num_positive: int = Field(ge=1)
    """First mismatches with a regret above 0, masked tokens left out: those in the quantile"""
    num_first: int = Field(ge=1)
    """Blocks with a mismatch"""

    @property
    def policy(self) -> str:
        """The rule in the spelling of the command line."""
        knobs = {"budget": self.budget, "gate": self.gate, "block_cap": self.block_cap}
        return join_spec("asd", knobs)


def first_prices(traces: Iterable[RequestTrace]) -> tuple[float, ...]:
    """Return r / (K - i + 1) at the first mismatch i of every block that has one, in order."""
    return tuple(
        traced.regret[found[0]] / (len(traced.draft_ids) - found[0])
        for trace in traces
        for traced in trace.rounds
        if (found := traced.mismatches)
    )


def quantile(values: Sequence[float], level: float = QUANTILE) -> float:
    """Return the quantile by linear interpolation at index (n - 1) * level."""
    return float(np.quantile(np.asarray(values, dtype=np.float64), level, method="linear"))


def seed_point(traces: Sequence[RequestTrace]) -> SeedPoint:
    """Return the seed of strict traces. Raises ProtocolError where nothing can be read off them."""
    check_strict(traces, "a seed point")
    prices = first_prices(traces)
    positive = [price for price in prices if price > 0 and isfinite(price)]
    if not positive:
        raise ProtocolError(
            f"Expected first mismatches with a regret above 0, got {len(prices)} first mismatches "
            f"and none of that kind. Trace more prompts, or a drafter that errs."
        )
    found = quantile(positive)
    return SeedPoint(budget=found, gate=found, num_positive=len(positive), num_first=len(prices))
