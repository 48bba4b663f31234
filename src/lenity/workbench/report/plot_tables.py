"""The numbers of each plot as a table: beneath the plot, and as CSV beside the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lenity.workbench.report.data import ReportData
from lenity.workbench.report.plot_data import (
    AcceptanceByPosition,
    Frontier,
    Latency,
    Opportunity,
    PredictedVsMeasured,
    RegretSpent,
    Reliability,
    Sweep,
    middle,
)
from lenity.workbench.tables import COUNT, MILLISECONDS, NATS, PERCENT, Column, Table, Unit


def frontier_table(plot: Frontier) -> Table:
    """Return one row a point, numbered as in the plot."""
    return Table.of(
        "frontier",
        "Operating points",
        [
            Column(key="number", label="No.", unit=COUNT),
            Column(key="point", label="Point"),
            Column(key="role", label="Role"),
            Column(key="quality", label=plot.quality_label, unit=plot.quality_unit),
            Column(key="throughput", label=plot.throughput_label, unit=plot.throughput_unit),
            Column(key="relative_calls", label="Relative target calls", unit=Unit(digits=3)),
            Column(key="on_frontier", label="On the frontier"),
        ],
        (
            {
                "number": i,
                "point": point.label,
                "role": point.role,
                "quality": point.quality,
                "throughput": point.throughput,
                "relative_calls": point.relative_calls,
                "on_frontier": point.is_on_frontier,
            }
            for i, point in enumerate(plot.points, 1)
        ),
    )


def acceptance_table(plot: AcceptanceByPosition) -> Table:
    """Return one row an arm and position, position 1 the first draft token."""
    return Table.of(
        "acceptance",
        "Acceptance by draft position",
        [
            Column(key="arm", label="Arm"),
            Column(key="position", label="Position", unit=COUNT),
            Column(key="rate", label="Acceptance rate", unit=PERCENT),
            Column(key="conditional", label="Conditional", unit=PERCENT),
        ],
        (
            {
                "arm": curve.arm,
                "position": i + 1,
                "rate": curve.rate[i] if i < len(curve.rate) else None,
                "conditional": curve.conditional[i] if i < len(curve.conditional) else None,
            }
            for curve in plot.arms
            for i in range(max(len(curve.rate), len(curve.conditional)))
        ),
    )


def latency_table(plot: Latency) -> Table:
    """Return one row an arm, seconds per emitted token by stage."""
    stages = ("draft", "target", "verify", "commit", "total")
    return Table.of(
        "latency",
        "Time per emitted token",
        [
            Column(key="arm", label="Arm"),
            *(Column(key=f"{s}_seconds", label=s.title(), unit=MILLISECONDS) for s in stages),
        ],
        (
            {"arm": arm.arm, **{f"{s}_seconds": getattr(arm, f"{s}_seconds") for s in stages}}
            for arm in plot.arms
        ),
    )


def regret_table(plot: RegretSpent) -> Table:
    """Return one row an arm and bin, and one for what lies beyond the bins."""

    def rows(arm: str, edges: tuple[float, ...], counts: tuple[int, ...], over: int) -> list[dict]:
        inside = [
            {"arm": arm, "low": low, "high": high, "requests": count}
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ]
        return [*inside, {"arm": arm, "low": edges[-1], "requests": over}] if over else inside

    return Table.of(
        "regret",
        "Requests by regret spent",
        [
            Column(key="arm", label="Arm"),
            Column(key="low", label="From", unit=NATS),
            Column(key="high", label="To", unit=NATS),
            Column(key="requests", label="Requests", unit=COUNT),
        ],
        (
            row
            for arm in plot.arms
            for row in rows(
                arm.arm, arm.histogram.edges, arm.histogram.counts, arm.histogram.num_over
            )
        ),
    )


def opportunity_table(plot: Opportunity) -> Table:
    """Return one row a task, tau and p."""
    return Table.of(
        "opportunity",
        "Opportunity map",
        [
            Column(key="task", label="Task"),
            Column(key="tau", label="Regret up to", unit=NATS),
            Column(key="p", label="Agreeing tokens behind", unit=COUNT),
            Column(key="share", label="Share of mismatches", unit=PERCENT),
            Column(key="num_mismatches", label="Mismatches", unit=COUNT),
        ],
        (
            {
                "task": task.task,
                "tau": tau,
                "p": horizon,
                "share": share,
                "num_mismatches": task.num_mismatches,
            }
            for task in plot.tasks
            for tau, row in zip(task.taus, task.shares, strict=True)
            for horizon, share in zip(task.horizons, row, strict=True)
        ),
    )


def sweep_table(plot: Sweep) -> Table:
    """Return one row a curve and point; published numbers stand with their setting."""
    x_unit = None if has_names(plot) else plot.x_unit
    has_settings = any(curve.setting for curve in plot.curves)
    setting = [Column(key="setting", label="Setting")] if has_settings else []
    return Table.of(
        plot.key,
        plot.title,
        [
            Column(key="curve", label="Curve"),
            Column(key="x", label=plot.x_label, unit=x_unit),
            Column(key="y", label=plot.y_label, unit=plot.y_unit),
            *setting,
        ],
        (
            {"curve": curve.label, "x": point.x, "y": point.y, "setting": curve.setting}
            for curve in plot.curves
            for point in curve.points
        ),
    )


def has_names(plot: Sweep) -> bool:
    """Return whether the axis has names instead of numbers: words, or a 0 to take logarithms of."""
    xs = [point.x for curve in plot.curves for point in curve.points]
    return any(isinstance(x, str) or (plot.x_is_logarithmic and x <= 0) for x in xs)


def reliability_table(plot: Reliability) -> Table:
    """Return one row a curve and bin."""
    return Table.of(
        plot.key,
        plot.title,
        [
            Column(key="curve", label="Curve"),
            Column(key="forecast", label=plot.forecast_label, unit=PERCENT),
            Column(key="observed", label=plot.observed_label, unit=PERCENT),
            Column(key="count", label="Count", unit=COUNT),
        ],
        (
            {
                "curve": curve.label,
                "forecast": found.forecast,
                "observed": found.observed,
                "count": found.count,
            }
            for curve in plot.curves
            for found in curve.bins
        ),
    )


def predicted_table(plot: PredictedVsMeasured) -> Table:
    """Return one row a configuration, numbered as in the plot, and how far the prediction was."""
    return Table.of(
        plot.key,
        f"{plot.quantity}: predicted and measured",
        [
            Column(key="number", label="No.", unit=COUNT),
            Column(key="point", label="Configuration"),
            Column(key="predicted", label="Predicted", unit=plot.unit),
            Column(key="measured", label="Measured", unit=plot.unit),
            Column(
                key="error",
                label="Predicted − measured",
                unit=plot.unit.model_copy(update={"is_signed": True}),
            ),
        ],
        (
            {
                "number": i,
                "point": point.label,
                "predicted": point.predicted,
                "measured": point.measured,
                "error": point.predicted - middle(point.measured),
            }
            for i, point in enumerate(plot.points, 1)
        ),
    )


def tables_of(data: ReportData) -> tuple[Table, ...]:
    """Return every table of a report, those of its plots included, the tasks first."""
    return tuple(_tables_of(data))


def _tables_of(data: ReportData) -> Iterable[Table]:
    own: tuple[tuple[Any, Callable[[Any], Table]], ...] = (
        (data.frontier, frontier_table),
        (data.acceptance, acceptance_table),
        (data.latency, latency_table),
        (data.regret, regret_table),
        (data.opportunity, opportunity_table),
    )
    if data.tasks:
        yield data.tasks
    for plot, table in own:
        if plot is not None:
            yield table(plot)
    yield from map(sweep_table, data.sweeps)
    yield from map(reliability_table, data.reliability)
    yield from map(predicted_table, data.predicted)
    yield from data.tables
