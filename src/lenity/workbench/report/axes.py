"""What all plots draw alike: curves with error bars, numbered points, the names of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes

from lenity.workbench.intervals import Interval
from lenity.workbench.report.plot_data import Estimate, Share
from lenity.workbench.report.theme import COLOURS, Look
from lenity.workbench.tables import Unit

SMALL = 9.5
"""Size of type beside a mark."""
CHARACTERS = 46
"""In a line as wide as a plot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points in the order they are joined; one without y is left out."""

    xs: Sequence[float]
    """As drawn"""
    ys: Sequence[Share]
    """As stored, to be scaled"""
    look: Look


def reach(value: Estimate, unit: Unit) -> tuple[float, float, float]:
    """Return a number and how far its error bar goes below and above it, all scaled."""
    if not isinstance(value, Interval):
        return value * unit.scale, 0.0, 0.0
    low, high = sorted((value.low * unit.scale, value.high * unit.scale))
    center = value.estimate * unit.scale
    return center, max(0.0, center - low), max(0.0, high - center)


def draw_line(axes: Axes, line: Line, unit: Unit) -> None:
    """Draw one curve with its error bars."""
    points = [(x, *reach(y, unit)) for x, y in zip(line.xs, line.ys, strict=True) if y is not None]
    if not points:
        return
    xs, ys, below, above = zip(*points, strict=True)
    drawn = axes.errorbar(
        xs,
        ys,
        yerr=[below, above],
        color=line.look.colour,
        marker=line.look.marker,
        linestyle=line.look.dash,
        markeredgecolor=COLOURS["card"][0],
        markeredgewidth=0.8,
        elinewidth=1.3,
    )
    for bars in drawn.lines[2]:
        bars.set_linestyle("-")  # a dashed error bar looks like several short ones


def note(axes: Axes, text: str, place: tuple[float, float], look: str = "note") -> None:
    """Write small type up and right of a place given in the plot's own numbers."""
    axes.annotate(
        text,
        place,
        xytext=(6, 5),
        textcoords="offset points",
        fontsize=SMALL,
        color=COLOURS[look][0],
    )


def draw_mark(axes: Axes, x: float, label: str) -> None:
    """Draw a dashed line across at x, named at its top."""
    axes.axvline(x, color=COLOURS["bad"][0], linewidth=1.2, linestyle="--")
    low, high = axes.get_xlim()
    is_right = x > (low + high) / 2
    axes.annotate(
        label,
        (x, 1),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if is_right else 4, -2),
        textcoords="offset points",
        ha="right" if is_right else "left",
        va="top",
        fontsize=SMALL,
        color=COLOURS["bad"][0],
    )


def brief(text: str) -> str:
    """Return what of a name fits into a line; all of it stands in the legend or the table."""
    return text if len(text) <= CHARACTERS else f"{text[: CHARACTERS - 1]}…"


def name_ticks(axes: Axes, names: Sequence[str]) -> None:
    """Put names under an axis, slanted where they would run into each other."""
    is_crowded = sum(map(len, names)) > CHARACTERS - 2 * len(names)
    slanted: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    labels = [brief(name) for name in names]
    axes.set_xticks(range(len(names)), labels, **(slanted if is_crowded else {}))


def name_axes(axes: Axes, x: str, y: str) -> None:
    """Write what is on the axes, y above the plot where a phone has room; light lines across."""
    axes.set_xlabel(fill(x, CHARACTERS))
    axes.set_title(fill(y, CHARACTERS))
    axes.grid(axis="y")


def with_unit(label: str, unit: Unit) -> str:
    """Return the name of an axis."""
    return f"{label}, {unit.name}" if unit.name else label
