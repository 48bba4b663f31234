"""What relaxing could gain: how cheap mismatches are, and how far exact tokens go on behind them.

    Omega(tau, p) = share of mismatches with regret <= tau, i + p <= K and the next p draft tokens
                    all equal to the target's choice       (arXiv 2608.03447, section 2)

over all mismatch positions i = 1..K of all evaluated blocks, not only the first of each: behind it
the rows hold under the draft's own prefix, which is the text if the mismatch is accepted. The
denominator is all mismatches, guarded and masked ones too. The scalar loop: at every mismatch,
count the matches that follow without a break, and compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from lenity.workbench.records import Frozen
from lenity.workbench.trace import RequestTrace, TracedRound

TAUS = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Nats: from exact ties to a token that is e^8 times less likely."""


class Opportunity(Frozen):
    """Counts behind Omega over a grid; two maps of one grid add up to the map of both."""

    taus: tuple[float, ...]
    """Regrets, nats, ascending"""
    num_following: tuple[int, ...]
    """p: exact draft tokens that must follow"""
    hits: tuple[tuple[int, ...], ...]
    """Mismatches with regret <= tau (rows) that p exact tokens follow (columns)"""
    num_mismatches: int = Field(ge=0)
    """All mismatches: the denominator"""
    num_positions: int = Field(ge=0)
    """Draft positions evaluated, matches included"""
    num_rounds: int = Field(ge=0)
    """Rounds with a draft"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Refuse counts that do not fit the grid."""
        shape = {len(row) for row in self.hits}
        if len(self.hits) != len(self.taus) or shape != {len(self.num_following)}:
            raise ValueError("hits needs a row a tau and a column a p")
        return self

    @property
    def shares(self) -> tuple[tuple[float, ...], ...] | None:
        """Omega, a row a tau and a column a p; none where nothing mismatched."""
        if not self.num_mismatches:
            return None
        return tuple(tuple(hit / self.num_mismatches for hit in row) for row in self.hits)

    def __add__(self, other: Opportunity) -> Opportunity:
        """Return the map of both. Raises ValueError for another grid."""
        if (self.taus, self.num_following) != (other.taus, other.num_following):
            raise ValueError("maps of different grids do not add up; make both on one grid")
        hits = (np.array(self.hits) + np.array(other.hits)).tolist()
        return Opportunity(
            taus=self.taus,
            num_following=self.num_following,
            hits=tuple(map(tuple, hits)),
            num_mismatches=self.num_mismatches + other.num_mismatches,
            num_positions=self.num_positions + other.num_positions,
            num_rounds=self.num_rounds + other.num_rounds,
        )


def opportunity(
    traces: Iterable[RequestTrace],
    taus: Sequence[float] = TAUS,
    num_following: Sequence[int] | None = None,
) -> Opportunity:
    """Return Omega's counts over traces; without ``num_following``, p = 0 .. largest K - 1."""
    rounds = [r for trace in traces for r in trace.rounds if r.draft_ids]
    if num_following is None:
        num_following = range(max((len(r.draft_ids) for r in rounds), default=1))
    regret, following = _mismatches(rounds)
    is_cheap = regret[:, None] <= np.asarray(tuple(taus), dtype=np.float64)
    is_followed = following[:, None] >= np.asarray(tuple(num_following))
    hits = is_cheap.T.astype(np.int64) @ is_followed.astype(np.int64)
    return Opportunity(
        taus=tuple(taus),
        num_following=tuple(num_following),
        hits=tuple(map(tuple, hits.tolist())),
        num_mismatches=len(regret),
        num_positions=sum(len(r.draft_ids) for r in rounds),
        num_rounds=len(rounds),
    )


def _mismatches(rounds: Sequence[TracedRound]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return every mismatch's regret and the exact draft tokens right behind it."""
    regrets: list[float] = []
    following: list[int] = []
    for traced in rounds:
        found = traced.mismatches
        ends = [*found[1:], len(traced.draft_ids)]
        regrets += [traced.regret[i] for i in found]
        following += [end - i - 1 for i, end in zip(found, ends, strict=False)]
    return np.array(regrets, dtype=np.float64), np.array(following, dtype=np.int64)
