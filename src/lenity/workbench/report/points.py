"""Plots of numbered points: quality against speed, measurement against prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from lenity.workbench.report.axes import SMALL, Line, draw_line, name_axes, note, reach, with_unit
from lenity.workbench.report.data import Setting
from lenity.workbench.report.figure import Figure, Key, caption
from lenity.workbench.report.plot_data import (
    Estimate,
    Frontier,
    FrontierPoint,
    PredictedVsMeasured,
    Share,
    middle,
)
from lenity.workbench.report.plot_tables import frontier_table, predicted_table
from lenity.workbench.report.svg import HEIGHT, drawn
from lenity.workbench.report.theme import COLOURS, PLAIN, SERIES, STRICT
from lenity.workbench.tables import Unit

NUMBERED = 14
"""Points of a frontier that all have their number; of more, those on it and those with a role."""
ROLES = {"strict": STRICT, "plain": PLAIN, "chosen": SERIES[1], "candidate": SERIES[0]}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """What quality is drawn against."""

    slug: str
    title: str
    label: str
    unit: Unit
    of: Callable[[FrontierPoint], Share]


def frontier(plot: Frontier, setting: Setting) -> list[Figure]:
    """Return quality against throughput, and against relative calls, where they are known."""
    costs = (
        _Cost(
            slug="frontier",
            title="Quality against throughput",
            label=plot.throughput_label,
            unit=plot.throughput_unit,
            of=lambda point: point.throughput,
        ),
        _Cost(
            slug="frontier-calls",
            title="Quality against target calls",
            label="Target passes per token, strict = 1",
            unit=Unit(),
            of=lambda point: point.relative_calls,
        ),
    )
    known = [cost for cost in costs if any(cost.of(point) is not None for point in plot.points)]
    return [_frontier(plot, setting, cost, with_table=cost is known[0]) for cost in known]


def _frontier(plot: Frontier, setting: Setting, cost: _Cost, *, with_table: bool) -> Figure:
    quality = with_unit(plot.quality_label, plot.quality_unit)
    return Figure(
        slug=cost.slug,
        title=cost.title,
        svg=drawn(
            lambda axes: _draw_frontier(axes, plot, cost),
            slug=cost.slug,
            title=cost.title,
            description=f"{len(plot.points)} operating points: {quality} over "
            f"{with_unit(cost.label, cost.unit)}.",
            height=HEIGHT + 0.3,
        ),
        caption=caption(plot, setting, *_outside(plot, cost)),
        legend=tuple(_legend(plot)),
        table=frontier_table(plot) if with_table else None,
    )


def _has_number(plot: Frontier, point: FrontierPoint) -> bool:
    return len(plot.points) <= NUMBERED or _is_lit(point)


def _is_lit(point: FrontierPoint) -> bool:
    return point.is_on_frontier or point.role != "candidate"


def _legend(plot: Frontier) -> Iterable[Key]:
    for number, point in enumerate(plot.points, 1):
        if _has_number(plot, point):
            role = "" if point.role in ("candidate", point.label) else f", {point.role}"
            text, look = point.label + role, ROLES[point.role]
            yield Key(text=text, look=look, kind="number", symbol=str(number))


def _known(plot: Frontier, cost: _Cost) -> list[tuple[int, FrontierPoint, Estimate]]:
    """Return number, point and cost of the points whose cost is known."""
    return [(i, p, c) for i, p in enumerate(plot.points, 1) if (c := cost.of(p)) is not None]


def _is_far(plot: Frontier, cost: _Cost, value: Estimate) -> bool:
    """Return whether drawing plain decoding there would squeeze the others into half the plot."""
    others = [middle(c) for _, p, c in _known(plot, cost) if p.role != "plain"]
    if len(others) < 2:
        return False
    low, high = min(others), max(others)
    return not low - (high - low) <= middle(value) <= high + (high - low)


def _placed(plot: Frontier, cost: _Cost) -> list[tuple[int, FrontierPoint, Estimate]]:
    return [found for found in _known(plot, cost) if not _is_far(plot, cost, found[2])]


def _outside(plot: Frontier, cost: _Cost) -> Iterable[str]:
    """Yield a remark for each point that is not drawn."""
    for number, point, value in _known(plot, cost):
        if _is_far(plot, cost, value):
            found = cost.unit.with_name(cost.unit.text(middle(value)))
            yield f"Outside the plot: {number}, {point.label}, at {found}"


def _draw_frontier(axes: Axes, plot: Frontier, cost: _Cost) -> None:
    placed = _placed(plot, cost)
    best = sorted(
        (reach(value, cost.unit)[0], reach(point.quality, plot.quality_unit)[0])
        for _, point, value in placed
        if point.is_on_frontier
    )
    axes.plot(*zip(*best, strict=True), color=COLOURS["muted"][0], lw=1) if best else None
    if plot.margin is not None:
        _draw_margin(axes, -plot.margin * plot.quality_unit.scale)
    for number, point, value in placed:
        x, left, right = reach(value, cost.unit)
        y, below, above = reach(point.quality, plot.quality_unit)
        look, is_chosen = ROLES[point.role], point.role == "chosen"
        axes.errorbar(
            [x],
            [y],
            xerr=[[left], [right]],
            yerr=[[below], [above]],
            color=look.colour,
            marker="*" if is_chosen else look.marker,
            markersize=12 if is_chosen else 6,
            markerfacecolor=look.colour if _is_lit(point) else COLOURS["card"][0],
            markeredgecolor=COLOURS["card"][0] if is_chosen else look.colour,
            elinewidth=1.1,
            zorder=3 if _is_lit(point) else 2,
        )
        if _has_number(plot, point):
            note(axes, str(number), (x, y))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    name_axes(
        axes,
        with_unit(cost.label, cost.unit),
        with_unit(plot.quality_label, plot.quality_unit),
    )


def _draw_margin(axes: Axes, y: float) -> None:
    """Draw the quality below which a point is inferior."""
    red = COLOURS["bad"][0]
    axes.axhline(y, color=red, linewidth=1, linestyle="--", zorder=0)
    axes.annotate(
        "margin",
        (1, y),
        xycoords=("axes fraction", "data"),
        xytext=(0, -3),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=SMALL,
        color=red,
    )


def predicted(plot: PredictedVsMeasured, setting: Setting) -> Figure:
    """Return measurements over replay's predictions; on the diagonal, replay was right."""
    title = f"{plot.quantity}: predicted and measured"
    return Figure(
        slug=f"plot-{plot.key}",
        title=title,
        svg=drawn(
            lambda axes: _draw_predicted(axes, plot),
            slug=f"plot-{plot.key}",
            title=title,
            description=f"{len(plot.points)} configurations; the diagonal is a right prediction.",
            height=HEIGHT + 0.3,
        ),
        caption=caption(plot, setting, "Dotted: predictions that hold exactly"),
        legend=tuple(
            Key(text=point.label, look=SERIES[0], kind="number", symbol=str(number))
            for number, point in enumerate(plot.points, 1)
        ),
        table=predicted_table(plot),
    )


def _draw_predicted(axes: Axes, plot: PredictedVsMeasured) -> None:
    scale = plot.unit.scale
    values = [p.predicted * scale for p in plot.points]
    values += [middle(p.measured) * scale for p in plot.points]
    ends = [min(values), max(values)]
    axes.plot(ends, ends, color=COLOURS["muted"][0], linewidth=1, linestyle=":")
    for number, point in enumerate(plot.points, 1):
        x = point.predicted * scale
        draw_line(axes, Line(xs=[x], ys=[point.measured], look=SERIES[0]), plot.unit)
        note(axes, str(number), (x, middle(point.measured) * scale))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    name_axes(axes, with_unit("Predicted", plot.unit), with_unit("Measured", plot.unit))
