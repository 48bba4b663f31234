"""Plots of curves: acceptance by position, sweeps, reliability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from lenity.workbench.report.axes import (
    Line,
    draw_line,
    draw_mark,
    name_axes,
    name_ticks,
    with_unit,
)
from lenity.workbench.report.data import Setting
from lenity.workbench.report.figure import Figure, Key, caption
from lenity.workbench.report.plot_data import (
    AcceptanceByPosition,
    PositionCurve,
    Reliability,
    Share,
    Sweep,
    SweepCurve,
)
from lenity.workbench.report.plot_tables import (
    acceptance_table,
    has_names,
    reliability_table,
    sweep_table,
)
from lenity.workbench.report.svg import WIDTH, drawn
from lenity.workbench.report.theme import COLOURS, Look, looks_of, reference_looks
from lenity.workbench.tables import PERCENT

SHIFT = 0.07
"""Between curves at the same whole number or name, so that error bars stand side by side."""


def _shift(i: int, count: int) -> float:
    return (i - (count - 1) / 2) * SHIFT


def acceptance(
    plot: AcceptanceByPosition, setting: Setting, looks: Mapping[str, Look]
) -> list[Figure]:
    """Return the acceptance rate by position, and the conditional one, where they are known."""
    measures: dict[str, list[tuple[PositionCurve, tuple[Share, ...]]]] = {
        "Acceptance rate by position": [(arm, arm.rate) for arm in plot.arms if arm.rate],
        "Conditional acceptance by position": [
            (arm, arm.conditional) for arm in plot.arms if arm.conditional
        ],
    }
    known = {title: arms for title, arms in measures.items() if arms}
    return [
        _acceptance(plot, setting, looks, title, arms, with_table=i == 0)
        for i, (title, arms) in enumerate(known.items())
    ]


def _acceptance(
    plot: AcceptanceByPosition,
    setting: Setting,
    looks: Mapping[str, Look],
    title: str,
    arms: Sequence[tuple[PositionCurve, tuple[Share, ...]]],
    *,
    with_table: bool,
) -> Figure:
    lines = [
        Line(
            xs=[1 + j + _shift(i, len(arms)) for j in range(len(shares))],
            ys=shares,
            look=looks[arm.arm],
        )
        for i, (arm, shares) in enumerate(arms)
    ]
    slug = "acceptance" if with_table else "acceptance-conditional"
    return Figure(
        slug=slug,
        title=title,
        svg=drawn(
            lambda axes: _draw_positions(axes, lines),
            slug=slug,
            title=title,
            description=f"Of {', '.join(arm.arm for arm, _ in arms)}.",
        ),
        caption=caption(plot, setting),
        legend=tuple(Key(text=arm.arm, look=looks[arm.arm]) for arm, _ in arms),
        table=acceptance_table(plot) if with_table else None,
    )


def _draw_positions(axes: Axes, lines: Sequence[Line]) -> None:
    for line in lines:
        draw_line(axes, line, PERCENT)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_ylim(0, 102)
    name_axes(axes, "Position in the draft", "Accepted, %")


def sweep(plot: Sweep, setting: Setting) -> Figure:
    """Return one measure over one knob: our curves and, apart from them, published ones."""
    looks = _sweep_looks(plot.curves)
    legend = tuple(Key(text=_told(curve), look=looks[curve.label]) for curve in plot.curves)
    return Figure(
        slug=f"plot-{plot.key}",
        title=plot.title,
        svg=drawn(
            lambda axes: _draw_sweep(axes, plot, looks),
            slug=f"plot-{plot.key}",
            title=plot.title,
            description=f"{plot.y_label} over {plot.x_label}.",
        ),
        caption=caption(plot, setting),
        legend=legend,
        table=sweep_table(plot),
    )


def _sweep_looks(curves: Sequence[SweepCurve]) -> dict[str, Look]:
    ours = looks_of(curve.label for curve in curves if not curve.is_reference)
    return {**ours, **reference_looks(c.label for c in curves if c.is_reference)}


def _told(curve: SweepCurve) -> str:
    return f"{curve.label} ({curve.setting})" if curve.setting else curve.label


def _name(x: float | str) -> str:
    return x if isinstance(x, str) else f"{x:g}"


def _draw_sweep(axes: Axes, plot: Sweep, looks: Mapping[str, Look]) -> None:
    xs = [point.x for curve in plot.curves for point in curve.points]
    names = list(dict.fromkeys(map(_name, xs))) if has_names(plot) else []
    for i, curve in enumerate(plot.curves):
        places = [
            names.index(_name(p.x)) + _shift(i, len(plot.curves))
            if names
            else float(p.x) * plot.x_unit.scale
            for p in curve.points
        ]
        ys = [point.y for point in curve.points]
        draw_line(axes, Line(xs=places, ys=ys, look=looks[curve.label]), plot.y_unit)
    if plot.mark is not None and not names:
        draw_mark(axes, plot.mark.x * plot.x_unit.scale, plot.mark.label)
    if names:
        name_ticks(axes, names)
    elif plot.x_is_logarithmic:
        ticks = sorted({float(x) * plot.x_unit.scale for x in xs})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(7))
    x_label = plot.x_label if names else with_unit(plot.x_label, plot.x_unit)
    name_axes(axes, x_label, with_unit(plot.y_label, plot.y_unit))


def reliability(plot: Reliability, setting: Setting) -> Figure:
    """Return observed shares over forecast ones; on the diagonal, forecasts are honest."""
    looks = looks_of(curve.label for curve in plot.curves)
    return Figure(
        slug=f"plot-{plot.key}",
        title=plot.title,
        svg=drawn(
            lambda axes: _draw_reliability(axes, plot, looks),
            slug=f"plot-{plot.key}",
            title=plot.title,
            description=f"{plot.observed_label} over {plot.forecast_label}; the diagonal is ideal.",
            height=WIDTH * 0.86,
        ),
        caption=caption(plot, setting, "Dotted: forecasts that come true as often as they say"),
        legend=tuple(Key(text=curve.label, look=looks[curve.label]) for curve in plot.curves),
        table=reliability_table(plot),
    )


def _draw_reliability(axes: Axes, plot: Reliability, looks: Mapping[str, Look]) -> None:
    axes.plot([0, 100], [0, 100], color=COLOURS["muted"][0], linewidth=1, linestyle=":")
    for curve in plot.curves:
        bins = [b for b in curve.bins if b.count]
        xs = [b.forecast * PERCENT.scale for b in bins]
        line = Line(xs=xs, ys=[b.observed for b in bins], look=looks[curve.label])
        draw_line(axes, line, PERCENT)
    axes.set_xlim(-2, 102)
    axes.set_ylim(-2, 102)
    name_axes(axes, f"{plot.forecast_label}, %", f"{plot.observed_label}, %")
