"""The published grids of arXiv 2608.14787, with what another pair makes necessary."""

from __future__ import annotations

MIN_PREFIX = 2
"""K_min of the grids: as many draft tokens as strict accepts, 3.7, times the paper's share of
drafting in a round's cost, 0.4, is 1.5; a skip of more pays there."""
MIN_PREFIXES = (0, 3, 4, 5, 6, 8)

RAW = [(b, c) for b in (0.90, 0.95) for c in (0.995, 0.99, 0.98, 0.97, 0.95, 0.93, 0.90)]
RAW += [(0.80, 0.93), (0.80, 0.85), (0.70, 0.70), (0.60, 0.50)]
MARGINAL = (0.99, 0.98, 0.97, 0.95, 0.93, 0.90, 0.85)
CONDITIONAL = (0.99, 0.98, 0.97, 0.95, 0.93, 0.90, 0.85, 0.80)
LENIENCE = (0.99, 0.975, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3)
TOP_K, PERIODS, COUNTS = (2, 3, 5), (3, 4, 8), (2, 4)
GATED = {"raw": (0.90, 0.93), "conditional": (0.90, 0.90)}
"""Gates that are left out one by one, and at which K_min is moved."""
WHOLE = {"raw": "raw 0.9 0.93", "conditional": "conditional 0.9 0.9"}
"""Arms of the grids at which gates are left out and K_min is moved."""
PAPER_DRAFT_SHARE = 0.4
"""c_D / (c_D + c_V) that fits the paper's K_min table: speeds over relative blocks and calls."""


def grids() -> dict[str, list[tuple[float, float]]]:
    """Return the local and prefix gates of every signal.

    ``product`` is the rule conditional with the drafter's own confidence for a predictor, over
    conditional's grid; the paper has none.
    """
    return {
        "raw": RAW,
        "marginal": [(gate, gate) for gate in MARGINAL],
        "conditional": [(0.90, prefix) for prefix in CONDITIONAL],
        "product": [(0.90, prefix) for prefix in CONDITIONAL],
    }
