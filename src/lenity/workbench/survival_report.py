"""Plots and tables of what recorded blocks say: by position, of gates, before and after permuting.

Cross-entropies stand beside those of the mere position. Permuting blocks within each position
leaves every position's metrics as they are (diagnostics.permuted asserts it) and takes the
dependence between positions away: what the gates still pass is what positions alone explain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lenity.workbench.calibration import ReliabilityBin as Bin
from lenity.workbench.diagnosis import Diagnosis
from lenity.workbench.diagnostics import PositionMetrics
from lenity.workbench.intervals import Interval
from lenity.workbench.report.plot_data import (
    Reliability,
    ReliabilityBin,
    ReliabilityCurve,
    Sweep,
    SweepCurve,
    SweepPoint,
)
from lenity.workbench.sweep_skipping import ABLATED
from lenity.workbench.tables import COUNT, NATS, PERCENT, PLAIN, Column, Table, Unit, Value

AREA = Unit(digits=3)
TOKENS = Unit(name="tokens")
POSITION_ONLY = "position only"
_GATES = dict(zip(("full", "local", "prefix"), ABLATED, strict=True))
"""Names of a GateOutcome -> those of the sweep of gates."""

Found = Mapping[str, Diagnosis]


def survival_plots(found: Sequence[Diagnosis], protocol: str) -> tuple[Sweep, ...]:
    """Return the curves: quality by position, what gates let through, what permuting leaves."""
    by_signal: Found = {str(own.signal): own for own in found}
    everywhere = {k: v for k, v in by_signal.items() if k != "conditional"}
    at_risk = {k: v for k, v in by_signal.items() if k == "conditional"}
    plots = [
        _bce("bce-all", "Cross-entropy by position, all blocks", everywhere, protocol),
        _bce("bce-at-risk", "Cross-entropy by position, blocks at risk", at_risk, protocol),
        _auroc(by_signal, protocol),
        _passing(by_signal, protocol),
        _permutation(by_signal, protocol),
        _ablated("gates-agreement", "Skipped tokens that strict accepts", by_signal, protocol),
        _ablated("gates-length", "Tokens that pass, mean of all blocks", by_signal, protocol),
    ]
    return tuple(plot for plot in plots if plot is not None)


def points(
    xs: Sequence[float | int | str], ys: Sequence[Interval | float | None]
) -> list[SweepPoint]:
    """Return the points whose y is known."""
    return [SweepPoint(x=x, y=y) for x, y in zip(xs, ys, strict=True) if y is not None]


def curve(label: str, points: list[SweepPoint], *, is_reference: bool = False) -> list[SweepCurve]:
    """Return the line through points; none where there is no point."""
    if not points:
        return []
    return [SweepCurve(label=label, points=tuple(points), is_reference=is_reference)]


def by_position(
    label: str,
    positions: Sequence[PositionMetrics],
    measure: Callable[[PositionMetrics], float | None],
    *,
    is_reference: bool = False,
) -> list[SweepCurve]:
    """Return a measure over positions, where it is known."""
    found = points([p.position for p in positions], [measure(p) for p in positions])
    return curve(label, found, is_reference=is_reference)


def _bce(key: str, title: str, found: Found, protocol: str) -> Sweep | None:
    curves = [c for s, own in found.items() for c in by_position(s, own.positions, lambda p: p.bce)]
    if not curves:
        return None
    one = next(iter(found.values()))
    curves += by_position(POSITION_ONLY, one.positions, lambda p: p.baseline_bce, is_reference=True)
    return Sweep(
        protocol=protocol,
        key=key,
        title=title,
        x_label="Position in the draft",
        y_label="Cross-entropy of survival",
        y_unit=NATS,
        curves=tuple(curves),
        note="Position only: the share that survives at the position in the other folds",
    )


def _auroc(found: Found, protocol: str) -> Sweep | None:
    curves = [
        c for s, own in found.items() for c in by_position(s, own.positions, lambda p: p.auroc)
    ]
    if not curves:
        return None
    xs = [float(point.x) for curve in curves for point in curve.points]
    chance = points([min(xs), max(xs)], [0.5, 0.5])
    return Sweep(
        protocol=protocol,
        key="auroc",
        title="AUROC by position",
        x_label="Position in the draft",
        y_label="AUROC of survival",
        y_unit=AREA,
        curves=(*curves, *curve("chance, and position only", chance, is_reference=True)),
        note="Where at least 10 blocks survive and 10 do not; conditional: of blocks at risk",
    )


def _passing(found: Found, protocol: str) -> Sweep:
    curves: list[SweepCurve] = []
    for signal, own in found.items():
        shares = {
            f"{signal}": own.permutation.passing_before,
            f"{signal}, permuted": own.permutation.passing_after,
        }
        for label, ys in shares.items():
            curves += curve(label, points(range(1, len(ys) + 1), ys))
    return Sweep(
        protocol=protocol,
        key="passing",
        title="Blocks by the tokens that their gates pass",
        x_label="Tokens k that pass",
        y_label="Blocks whose gates pass at least k tokens",
        y_unit=PERCENT,
        curves=tuple(curves),
    )


def _permutation(found: Found, protocol: str) -> Sweep:
    before = [own.permutation.before for own in found.values()]
    after = [permuted_mean(own) for own in found.values()]
    return Sweep(
        protocol=protocol,
        key="permutation",
        title="What the gates pass before and after permuting blocks within positions",
        x_label="Signal",
        y_label="Tokens that pass, mean of all blocks",
        y_unit=TOKENS,
        curves=(
            *curve("as drafted", points(list(found), before)),
            *curve("permuted", points(list(found), after)),
        ),
        note="Cross-entropy and AUROC of every position are the same before and after",
    )


def permuted_mean(own: Diagnosis) -> Interval:
    """Return the mean feasible prefix of permuted blocks and its middle 95 % of permutations."""
    means = own.permutation.repetitions
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(
        estimate=own.permutation.after,
        low=float(low),
        high=float(high),
        method="middle of permutations",
        num_units=len(means),
    )


def _ablated(key: str, title: str, found: Found, protocol: str) -> Sweep | None:
    is_length = key == "gates-length"
    curves: list[SweepCurve] = []
    for signal, own in found.items():
        xs = [_GATES[outcome.gates] for outcome in own.ablation]
        ys = [o.skipped / o.blocks if is_length else o.strict_token for o in own.ablation]
        curves += curve(signal, points(xs, ys))
    if not curves:
        return None
    return Sweep(
        protocol=protocol,
        key=key,
        title=title,
        x_label="Gates at work",
        y_label=title,
        y_unit=TOKENS if is_length else PERCENT,
        curves=tuple(curves),
    )


def survival_reliability(found: Sequence[Diagnosis], protocol: str) -> tuple[Reliability, ...]:
    """Return what scores say against what came true, of positions and of prefixes."""
    kinds = {
        "positions": ("Scores of positions", [own.reliability for own in found]),
        "prefixes": ("Scores of prefixes", [own.prefix_reliability for own in found]),
    }
    names = [own.signal for own in found]
    return tuple(
        Reliability(
            protocol=protocol,
            key=f"reliability-{key}",
            title=title,
            curves=tuple(
                ReliabilityCurve(label=name, bins=_bins(bins))
                for name, bins in zip(names, all_bins, strict=True)
                if bins
            ),
            forecast_label="Score",
            observed_label="Survival",
        )
        for key, (title, all_bins) in kinds.items()
        if any(all_bins)
    )


def _bins(bins: Sequence[Bin]) -> tuple[ReliabilityBin, ...]:
    return tuple(
        ReliabilityBin(forecast=b.mean_score, observed=b.rate, count=b.count) for b in bins
    )


def survival_tables(found: Sequence[Diagnosis]) -> tuple[Table, ...]:
    """Return a row a signal; a row a signal and choice of gates; a row a signal and position."""
    return _signals_table(found), _ablation_table(found), _positions_table(found)


def _signals_table(found: Sequence[Diagnosis]) -> Table:
    rows: list[dict[str, Value]] = [
        {
            "signal": own.signal,
            "local": own.gates.local,
            "prefix": own.gates.prefix,
            "blocks": own.blocks,
            "bce": own.bce,
            "baseline": own.baseline_bce,
            "auroc": own.auroc,
            "ece": own.prefix_calibration_error,
            "before": own.permutation.before,
            "after": permuted_mean(own),
            "p_value": own.p_value,
        }
        for own in found
    ]
    columns = (
        Column(key="signal", label="Signal"),
        Column(key="local", label="Local gate", unit=PLAIN),
        Column(key="prefix", label="Prefix gate", unit=PLAIN),
        Column(key="blocks", label="Blocks", unit=COUNT),
        Column(key="bce", label="Cross-entropy", unit=NATS),
        Column(key="baseline", label="Of the position alone", unit=NATS),
        Column(key="auroc", label="AUROC", unit=AREA),
        Column(key="ece", label="Calibration error of prefixes", unit=AREA),
        Column(key="before", label="Pass, as drafted", unit=TOKENS),
        Column(key="after", label="Pass, permuted", unit=TOKENS),
        Column(key="p_value", label="p of the permutation", unit=AREA),
    )
    note = "Means over positions; permuted: mean and middle 95 % of permutations."
    return Table.of("signals", "Signals", columns, rows, note=note)


def _ablation_table(found: Sequence[Diagnosis]) -> Table:
    rows: list[dict[str, Value]] = [
        {
            "signal": own.signal,
            "gates": _GATES[outcome.gates],
            "skips": outcome.skipped_blocks / outcome.blocks,
            "length": outcome.skipped / outcome.blocks,
            "strict_token": outcome.strict_token,
            "full_prefix": outcome.full_prefix,
        }
        for own in found
        for outcome in own.ablation
    ]
    columns = (
        Column(key="signal", label="Signal"),
        Column(key="gates", label="Gates at work"),
        Column(key="skips", label="Blocks with a prefix that passes", unit=PERCENT),
        Column(key="length", label="Tokens that pass, per block", unit=PLAIN),
        Column(key="strict_token", label="Of those, accepted by strict", unit=PERCENT),
        Column(key="full_prefix", label="Prefixes accepted whole", unit=PERCENT),
    )
    note = "Recorded blocks, each judged by itself; K_min, staleness and guards left out."
    return Table.of("gates", "Gates left out", columns, rows, note=note)


def _positions_table(found: Sequence[Diagnosis]) -> Table:
    rows: list[dict[str, Value]] = [
        {
            "signal": own.signal,
            "position": p.position,
            "blocks": p.count,
            "survive": p.positives / p.count,
            "bce": p.bce,
            "baseline": p.baseline_bce,
            "auroc": p.auroc,
        }
        for own in found
        for p in own.positions
    ]
    columns = (
        Column(key="signal", label="Signal"),
        Column(key="position", label="Position", unit=COUNT),
        Column(key="blocks", label="Blocks", unit=COUNT),
        Column(key="survive", label="Survive", unit=PERCENT),
        Column(key="bce", label="Cross-entropy", unit=NATS),
        Column(key="baseline", label="Of the position alone", unit=NATS),
        Column(key="auroc", label="AUROC", unit=AREA),
    )
    return Table.of("positions", "Signals by position", columns, rows)
