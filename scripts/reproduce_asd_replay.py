"""What replay of the strict traces says: ASD against priced, and against the local rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lenity.workbench.intervals import Interval
from lenity.workbench.matched import AtLevel, Spending, compare, halves, paired_difference
from scripts.reproduce_asd import (
    ASD,
    ASD_GRID,
    FAMILIES,
    NUM_TOKENS,
    PACED_GRID,
    PRICED_GRID,
    RATIOS,
    THRESHOLDS,
    spending,
    strict_traces,
)

SEED = 0
RESAMPLES = 4000
REGRETS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
"""Nats of mean regret per request of 96 tokens at which rules are compared."""
GAINS = (2.1, 2.2, 2.4, 2.6, 2.8)
"""Tokens per target pass at which their regret is."""
FAMILY_REGRETS = (2.0, 8.0)
ONE_KNOB = tuple(
    f"asd:budget={b},gate=0.25,block_cap=2" for b in (0.25, 0.5, 1, 2, 4, 8, 16, 32, "inf")
)
"""ASD with the budget moved only, gate and cap as published."""
KNOBS = {
    "budget": ((0, 1, 2, 4, 8, 12, 16, 32, 64), "asd:budget={},gate=0.25,block_cap=2"),
    "gate": ((0, 0.05, 0.1, 0.125, 0.25, 0.5, 1, "inf"), "asd:budget=8,gate={},block_cap=2"),
    "block_cap": ((1, 2, 4, "none"), "asd:budget=8,gate=0.25,block_cap={}"),
}
GAMMAS = (2, 3, 5, 7)
CAPS = (2.0, 4.0, 8.0, 16.0)
"""B of ASD where its dearest request sets what the local rules may spend."""


def replayed(run: Path) -> dict[str, Any]:
    """Return ASD against priced on strict traces, by replay, over fine grids of knobs.

    Each rule's settings are the hull of its grid on one half of the prompts, judged on the other.
    """
    traces = strict_traces(run)
    asd, priced = spending(traces, ASD_GRID), spending(traces, PRICED_GRID)
    paced, one_knob = spending(traces, PACED_GRID), spending(traces, ONE_KNOB)
    families = np.array([key[1].split("/")[1] for key in asd.prompts])
    return {
        "prompts": len(traces),
        "grid": {"asd": len(ASD_GRID), "priced": len(PRICED_GRID), "paced": len(PACED_GRID)},
        "strict": round(float(asd.tokens_per_pass[0]), 4),
        "priced_asd": [at(crossed(priced, asd), level) for level in REGRETS],
        "priced_one_knob": [at(crossed(priced, one_knob), level) for level in REGRETS],
        "paced_priced": [at(crossed(paced, priced), level) for level in REGRETS],
        "same_gain": [at(crossed(priced, asd), gain, "tokens_per_pass") for gain in GAINS],
        "families": {
            family: [at(crossed(priced, asd, families == family), x) for x in FAMILY_REGRETS]
            for family in FAMILIES
        },
        "hulls": {"asd": points(asd), "priced": points(priced)},
    }


def knobs(run: Path) -> dict[str, Any]:
    """Return what replay says of every value of B, g, M and K around the paper's setting.

    Knob -> value -> family ("all" first) -> gain over strict, regret, coverage. K cuts the recorded
    blocks; its gain is over strict at the same K.
    """
    traces = strict_traces(run)
    families = np.array([trace.item_id.split("/")[1] for trace in traces])
    groups = {"all": np.ones(len(traces), dtype=bool)}
    groups |= {family: families == family for family in FAMILIES}
    out: dict[str, Any] = {}
    for knob, (values, spec) in KNOBS.items():
        found = spending(traces, [spec.format(value) for value in values])
        out[knob] = {
            str(value): {name: point(found.only(kept), i + 1) for name, kept in groups.items()}
            for i, value in enumerate(values)
        }
    out["gamma"] = {}
    for gamma in GAMMAS:
        found = spending(traces, [ASD], gamma=gamma)
        out["gamma"][str(gamma)] = {n: point(found.only(kept), 1) for n, kept in groups.items()}
    return out


def point(curve: Spending, index: int) -> dict[str, Any]:
    """Return one setting of a curve whose first setting is strict."""
    rng = np.random.default_rng(SEED)
    own, strict = curve.settings([index]), curve.settings([0])
    return {
        "tokens_per_pass": round(float(own.tokens_per_pass[0]), 4),
        "strict": round(float(strict.tokens_per_pass[0]), 4),
        "gain": interval(paired_difference(own, strict, rng, resamples=RESAMPLES)),
        "coverage": round(float(own.coverage[0]), 4),
        "mean_regret": round(float(own.mean_regret[0]), 3),
        "max_regret": round(float(own.max_regret[0]), 3),
    }


def crossed(
    own: Spending, other: Spending, is_judged: np.ndarray | None = None
) -> list[tuple[Spending, Spending]]:
    """Return both rules on each half, at the settings that were best on the other half."""
    first = halves(own.prompts)
    judged = np.ones(len(first), dtype=bool) if is_judged is None else is_judged
    return [
        (
            own.settings(own.only(~half).hull()).only(half & judged),
            other.settings(other.only(~half).hull()).only(half & judged),
        )
        for half in (first, ~first)
    ]


def at(pairs: Sequence[tuple[Spending, Spending]], level: float, axis: Any = "regret") -> Any:
    """Return a level as the summary has it."""
    rng = np.random.default_rng(SEED)
    return level_row(compare(pairs, level, rng, axis=axis, resamples=RESAMPLES))


def level_row(found: AtLevel) -> dict[str, Any]:
    """Return level, both values, and own / other - 1 with its interval."""
    return {
        "level": found.level,
        "own": round(found.own, 4),
        "other": round(found.other, 4),
        "difference": interval(found.difference),
    }


def interval(found: Interval) -> list[float]:
    """Return estimate, low, high."""
    return [round(float(v), 5) for v in (found.estimate, found.low, found.high)]


def points(curve: Spending) -> list[list[Any]]:
    """Return the hull over all prompts: spec, mean regret, tokens per pass."""
    x, y = curve.mean_regret, curve.tokens_per_pass
    return [[curve.specs[i], round(float(x[i]), 3), round(float(y[i]), 4)] for i in curve.hull()]


def local_rules(run: Path) -> list[dict[str, Any]]:
    """Return ASD at several budgets against each local rule, in both readings, by replay.

    Thresholds are chosen on every second prompt, so that the dearest of these costs what ASD's
    costs there, and all rules are judged on the others.
    """
    traces = strict_traces(run, NUM_TOKENS)
    grids = {
        "margin": [f"margin:ratio={value}" for value in RATIOS],
        "fuzzy": [f"fuzzy:threshold={value}" for value in THRESHOLDS],
    }
    local = {name: spending(traces, grid) for name, grid in grids.items()}
    rows: list[dict[str, Any]] = []
    for budget in CAPS:
        asd = spending(traces, [f"asd:budget={budget:g},gate=0.25,block_cap=2"])
        held = {
            n: spending(traces, [f"{s},budget={budget:g}" for s in g]) for n, g in grids.items()
        }
        rows.append({"budget": budget, "asd": judged(asd, 1), "rules": {}})
        for reading, curves in (("local", local), ("ledger", held)):
            for name, curve in curves.items():
                rows[-1]["rules"][f"{name}, {reading}"] = against(asd, curve)
    return rows


def judged(curve: Spending, index: int) -> dict[str, Any]:
    """Return a setting's gain over strict and regret on the second half of the prompts."""
    kept = curve.only(~halves(curve.prompts))
    rng = np.random.default_rng(SEED)
    gain = paired_difference(kept.settings([index]), kept.settings([0]), rng, resamples=RESAMPLES)
    return {
        "spec": curve.specs[index],
        "gain": interval(gain),
        "mean_regret": round(float(kept.mean_regret[index]), 3),
        "max_regret": round(float(kept.max_regret[index]), 3),
    }


def against(asd: Spending, curve: Spending) -> dict[str, Any]:
    """Return a local rule tuned to ASD's dearest request, and ASD / it - 1."""
    half = halves(asd.prompts)
    cap = float(asd.only(half).max_regret[1])
    index = curve.only(half).dearest_within(cap) or 0
    rng = np.random.default_rng(SEED)
    own, other = asd.only(~half).settings([1]), curve.only(~half).settings([index])
    difference = paired_difference(own, other, rng, resamples=RESAMPLES)
    return {**judged(curve, index), "asd_over_it": interval(difference)}


def predicted(run: Path, specs: Sequence[str]) -> Spending:
    """Return what replay predicts of the settings that were then run live."""
    return spending(strict_traces(run, NUM_TOKENS), specs)
