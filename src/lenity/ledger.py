"""The regret ledger: what each request gave away, in integers of 2^-20 nat.

Regret is rounded to the nearest unit once, when it is read; sums are then exact, independent of
order and of batch-mates, and a budget can be spent to the last unit. The error is at most 2^-21
nat (4.8e-7) per relaxed token.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenity.types import UNITS_PER_NAT

UNLIMITED_UNITS = 1 << 62
"""The budget that stands for infinity; no sum of a request's regrets comes near it."""

_REGRET_CEILING_UNITS = 1 << 50
"""Regret above 2^30 nats (a masked token's inf) counts as this much; 4096 of them fit in int64."""


def to_units(regret: Float[Tensor, "*N"]) -> Int[Tensor, "*N"]:
    """Return regret (nats, inf allowed) as ledger units, rounded to nearest."""
    scaled = regret.to(torch.float64) * UNITS_PER_NAT
    return scaled.clamp(0, _REGRET_CEILING_UNITS).round().to(torch.int64)


def nats_to_units(regret: float) -> int:
    """Return one regret on the host as ledger units: to_units, element for element."""
    return round(min(max(regret * UNITS_PER_NAT, 0.0), _REGRET_CEILING_UNITS))


def budget_units(budget: float) -> int:
    """Return a budget in nats (inf allowed) as ledger units; 2^42 nats are as good as inf."""
    units = budget * UNITS_PER_NAT
    return UNLIMITED_UNITS if units >= UNLIMITED_UNITS else round(units)


def to_nats(units: int) -> float:
    """Return ledger units as nats."""
    return units / UNITS_PER_NAT


class Ledger:
    """Regret spent per request of a batch; the only memory a policy has between rounds.

    Rows enter at zero, are charged for what was emitted, and leave with their request.
    """

    def __init__(self) -> None:
        """Start with no rows."""
        self._spent: list[int] = []
        self._read: Tensor | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._spent)

    def open_row(self) -> None:
        """Add a request that has spent nothing."""
        self._read = None
        self._spent.append(0)

    def keep(self, rows: Iterable[int]) -> None:
        """Keep these rows, in this order; the others are closed."""
        self._read = None
        self._spent = [self._spent[row] for row in rows]

    def charge(self, row: int, units: int) -> None:
        """Add what a request's emitted relaxed tokens cost."""
        assert units >= 0, units
        if not units:
            return
        self._read = None
        self._spent[row] += units

    def spent(self, row: int) -> int:
        """Return what one request has spent, in units."""
        return self._spent[row]

    def spent_units(self, device: torch.device | str = "cpu") -> Int[Tensor, " B"]:
        """Return what every request has spent, in units; made anew only when it has changed."""
        if self._read is None or self._read.device != torch.device(device):
            self._read = torch.tensor(self._spent, dtype=torch.int64, device=device)
        return self._read
