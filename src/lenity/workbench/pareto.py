"""Which operating points are worth having: none is both better and faster.

Quality and gain are both better when larger. A frontier is drawn, then one point is chosen by a
rule that was stated beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import Field

from lenity.workbench.intervals import Interval
from lenity.workbench.records import Frozen
from lenity.workbench.verdicts import MARGIN


class Point(Frozen):
    """One operating point as it was measured against strict."""

    name: str
    """In the spelling of the command line, such as asd:budget=8"""
    quality: float
    """Score, relaxed - strict, mean over prompts"""
    gain: float
    """Relaxed speed / strict speed - 1"""
    quality_interval: Interval | None = None
    gain_interval: Interval | None = None
    failed: tuple[str, ...] = ()
    """Gates that fail; such a point is never chosen, whatever its speed"""


class Placed(Frozen):
    """A point and its place: on the frontier, or which point dominates it."""

    point: Point
    dominated_by: str | None = None
    """Name of the fastest point that is at least as good in both and better in one"""

    @property
    def is_on_frontier(self) -> bool:
        """Whether no point dominates it."""
        return self.dominated_by is None


def dominates(one: Point, other: Point) -> bool:
    """Return whether ``one`` is at least as good in both and better in one; equal points tie."""
    is_as_good = one.quality >= other.quality and one.gain >= other.gain
    return is_as_good and (one.quality > other.quality or one.gain > other.gain)


def place(points: Iterable[Point]) -> tuple[Placed, ...]:
    """Return every point with its place, by falling gain, then quality, then name.

    Points equal in both stay on the frontier together. Points with failed gates are placed among
    the others, for the plot, but dominate none.
    """
    ranked = sorted(points, key=_rank)
    return tuple(Placed(point=point, dominated_by=_dominator(point, ranked)) for point in ranked)


def _dominator(point: Point, ranked: Sequence[Point]) -> str | None:
    names = (other.name for other in ranked if not other.failed and dominates(other, point))
    return next(names, None)


def _rank(point: Point) -> tuple[float, float, str]:
    return -point.gain, -point.quality, point.name


def frontier(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return the points no other dominates, failed ones left out, by falling gain."""
    placed = place(points)
    return tuple(p.point for p in placed if p.is_on_frontier and not p.point.failed)


class Choice(Frozen):
    """The point chosen, and by which rule; none where plain strict is the best there is."""

    point: Point | None
    rule: str
    eligible: tuple[str, ...] = Field(default=())
    """Names of all points the rule could choose from, best first"""


def choose(points: Iterable[Point], *, margin: float = MARGIN) -> Choice:
    """Return the point with the highest gain whose quality is not worse than the margin.

    Eligible: quality >= -margin, no failed gate, gain > 0. Ties go to the better quality, then to
    the name that sorts first.
    """
    eligible = sorted(
        (p for p in points if p.quality >= -margin and not p.failed and p.gain > 0), key=_rank
    )
    return Choice(
        point=eligible[0] if eligible else None,
        rule=f"highest gain above 0 with quality not worse than -{margin:g} and no failed gate",
        eligible=tuple(point.name for point in eligible),
    )
