"""One figure of a report: a picture, its legend, what stands beneath it, and its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from lenity.workbench.intervals import Interval
from lenity.workbench.report.data import Setting
from lenity.workbench.report.plot_data import Plot
from lenity.workbench.report.theme import Look
from lenity.workbench.tables import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One entry of a legend."""

    text: str
    look: Look
    kind: Literal["line", "block", "number"] = "line"
    """What stands in front: a line with its marker, a filled block, or the number in ``symbol``"""
    symbol: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A picture with everything that belongs to it."""

    slug: str
    """Its anchor; begins all ids within the picture"""
    title: str
    svg: str
    """Safe to put into a page as it is"""
    caption: str
    legend: tuple[Key, ...] = ()
    table: Table | None = None
    """Its numbers; none where they stand under another figure of the same plot"""


def intervals_in(value: object) -> Iterator[Interval]:
    """Yield every interval inside a document."""
    if isinstance(value, Interval):
        yield value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from intervals_in(getattr(value, name))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from intervals_in(item)


def caption(plot: Plot, setting: Setting, *remarks: str) -> str:
    """Return what stands beneath a plot: note, protocol, models, hardware, intervals, run."""
    parts = [*remarks, plot.note, plot.protocol]
    parts += [plot.models or setting.models, plot.hardware or setting.hardware]
    parts += [intervals_told(intervals_in(plot)), f"Run {plot.run_id}" if plot.run_id else None]
    return " ".join(_sentence(part) for part in parts if part)


def intervals_told(found: Iterable[Interval]) -> str | None:
    """Return how intervals were made, in words: level, method, units; None without intervals."""
    made: dict[tuple[float, str], list[int]] = {}
    for interval in found:
        made.setdefault((interval.confidence, interval.method), []).append(interval.num_units)
    told = []
    for (confidence, method), units in made.items():
        few, many = min(units), max(units)
        count = f"n = {few}" if few == many else f"n = {few} to {many}"
        told.append(f"{confidence * 100:g} % intervals: {method}, {count}")
    return "; ".join(told) or None


def _sentence(text: str) -> str:
    return text if text.rstrip()[-1:] in ".!?" else f"{text.rstrip()}."
