"""Proposition 1 of arXiv 2608.14787 as a simulation: equal position by position, far apart online.

L is drawn from a law, Y_j = 1{L >= j}, and two scores of the same per-position law are compared:
    shared       q_j = low + (high - low) Y_j Z     one Z ~ Bernoulli(rho) a block
    independent  q_j = low + (high - low) Y_j Z_j   one a position
The first K scores all pass a threshold in (low, high] with probability P(L >= K) rho and
P(L >= K) rho^K.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lenity.errors import ProtocolError
from lenity.workbench.diagnostics import LoggedBlocks, PositionMetrics, position_metrics
from lenity.workbench.records import Frozen


class Half(Frozen):
    """One of the two scores."""

    frequencies: tuple[float, ...]
    """Share of blocks whose first K scores pass, K = 1..G"""
    expected: tuple[float, ...]
    """Its probability"""
    positions: tuple[PositionMetrics, ...]
    """What position-wise metrics see"""


class Simulation(Frozen):
    """The two scores side by side."""

    num_blocks: int
    shared: Half
    independent: Half


def simulate(
    law: Sequence[float],
    rho: float,
    *,
    low: float = 0.3,
    high: float = 0.95,
    num_blocks: int = 10_000,
    seed: int = 0,
) -> Simulation:
    """Return what is drawn where ``law[l]`` = P(L = l), l = 0..G. Raises ProtocolError."""
    chances = np.asarray(law, dtype=np.float64)
    is_law = chances.ndim == 1 and len(chances) > 1 and (chances >= 0).all()
    if not is_law or abs(chances.sum() - 1) > 1e-9 or not 0 <= rho <= 1 or not 0 <= low < high <= 1:
        raise ProtocolError(
            f"Expected probabilities of L = 0..G that sum to 1, 0 <= rho <= 1 and "
            f"0 <= low < high <= 1, got {list(law)}, {rho}, {low} and {high}. Correct them."
        )
    rng = np.random.default_rng(seed)
    gamma = len(chances) - 1
    accepted = rng.choice(gamma + 1, size=num_blocks, p=chances)
    coins = rng.random((num_blocks, gamma)) < rho
    tail = chances[::-1].cumsum()[::-1][1:]
    power = np.arange(1, gamma + 1)
    halves = []
    for is_high, expected in ((coins[:, :1], tail * rho), (coins, tail * rho**power)):
        is_passing = (power <= accepted[:, None]) & is_high
        scores = np.where(is_passing, high, low)
        blocks = LoggedBlocks.of("marginal", scores, accepted)
        halves.append(
            Half(
                frequencies=tuple(np.logical_and.accumulate(is_passing, 1).mean(0).tolist()),
                expected=tuple(expected.tolist()),
                positions=position_metrics(blocks),
            )
        )
    return Simulation(num_blocks=num_blocks, shared=halves[0], independent=halves[1])
