"""ASD's longest feasible prefix (arXiv 2608.03447, section 3), walked token by token."""

from fractions import Fraction

from tests.reference.rows import argmax, is_masked, regret, units

INF = float("inf")


def asd(
    rows,
    draft,
    *,
    budget=INF,
    gate=INF,
    block_cap=None,
    position_value="remaining",
    g0_is_strict=False,
    require_remaining=False,
    spent_units=0,
    may_relax=None,
):
    """Return (accepted length, units charged, relaxed positions) of one request.

    ``rows`` scores ``draft`` token by token; K is the length of the draft.
    """
    size = len(draft)
    is_strict = budget == 0 or (g0_is_strict and gate == 0)
    left = INF if budget == INF else units(budget) - spent_units
    total, relaxed = 0, []
    for i in range(1, size + 1):
        row, token = rows[i - 1], draft[i - 1]
        if token == argmax(row):
            continue
        if is_strict or is_masked(row, token) or (may_relax and not may_relax[i - 1]):
            return i - 1, total, relaxed
        nats = regret(row, token)
        value = Fraction(size - i + 1)
        if position_value == "share":
            value /= size
        is_spent = require_remaining and left - total <= 0
        is_dear = total + units(nats) > left
        is_steep = gate != INF and nats / value > Fraction(gate)
        is_many = block_cap is not None and len(relaxed) + 1 > block_cap
        if is_spent or is_dear or is_steep or is_many:
            return i - 1, total, relaxed
        total += units(nats)
        relaxed.append(i - 1)
    return size, total, relaxed
