"""Curves, error bars and the names of axes, read back from matplotlib's own objects."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from lenity.workbench.intervals import Interval
from lenity.workbench.report.axes import (
    CHARACTERS,
    Line,
    brief,
    draw_line,
    draw_mark,
    name_axes,
    name_ticks,
    note,
    reach,
    with_unit,
)
from lenity.workbench.report.theme import COLOURS, SERIES
from lenity.workbench.tables import PERCENT, PLAIN, Unit
from tests.workbench.report.sample import interval


@pytest.fixture
def axes():
    return Figure().add_subplot()


def test_a_number_reaches_nowhere_and_an_interval_its_limits():
    assert reach(0.5, PERCENT) == (50, 0, 0)
    assert reach(interval(0.5, 0.25), PERCENT) == (50, 25, 25)


def test_an_estimate_outside_its_interval_has_no_negative_bar():
    beyond = Interval(estimate=3, low=1, high=2, method="made", num_units=2)
    assert reach(beyond, PLAIN) == (3, 2, 0)


def test_a_unit_that_turns_around_swaps_the_limits():
    assert reach(interval(1.0, 0.5), Unit(scale=-1)) == (-1, 0.5, 0.5)


def test_a_curve_leaves_out_what_is_not_known(axes):
    line = Line(xs=[1.0, 2.0, 3.0], ys=[0.5, None, interval(0.25, 0.125)], look=SERIES[0])
    draw_line(axes, line, PERCENT)
    (curve,) = [found for found in axes.lines if found.get_marker() == "o"]
    assert curve.get_xydata().tolist() == [[1, 50], [3, 25]]
    (bars,) = axes.collections
    ends = np.array(bars.get_segments())[:, :, 1].tolist()
    assert ends == [[50, 50], [12.5, 37.5]]


def test_error_bars_of_a_dashed_curve_are_whole(axes):
    dashed = next(look for look in SERIES if look.dash != "-")
    draw_line(axes, Line(xs=[1.0], ys=[interval(1, 1)], look=dashed), PLAIN)
    assert [style for _, style in axes.collections[0].get_linestyle()] == [None]


def test_a_curve_without_a_point_draws_nothing(axes):
    draw_line(axes, Line(xs=[1.0], ys=[None], look=SERIES[0]), PLAIN)
    assert not axes.lines


def test_notes_stand_beside_their_place(axes):
    note(axes, "7", (1.0, 2.0))
    (text,) = axes.texts
    assert (text.get_text(), text.xy, text.get_color()) == ("7", (1, 2), COLOURS["note"][0])


def test_axes_have_names_and_units(axes):
    name_axes(axes, "x", with_unit("y", Unit(name="ms")))
    assert (axes.get_xlabel(), axes.get_title()) == ("x", "y, ms")
    assert with_unit("y", PLAIN) == "y"


def test_long_names_fit(axes):
    name_axes(axes, "word " * 20, "word " * 20)
    lines = [*axes.get_xlabel().split("\n"), *axes.get_title().split("\n")]
    assert max(map(len, lines)) <= CHARACTERS
    assert brief("x" * CHARACTERS) == "x" * CHARACTERS
    assert brief("x" * 99) == "x" * (CHARACTERS - 1) + "…"


def test_names_that_would_touch_are_slanted(axes):
    name_ticks(axes, ["1", "2", "∞"])
    assert [tick.get_rotation() for tick in axes.get_xticklabels()] == [0, 0, 0]
    name_ticks(axes, ["asd:budget=8,gate=0.25", "margin:ratio=0.9", "strict"])
    assert [tick.get_rotation() for tick in axes.get_xticklabels()] == [30, 30, 30]


def test_a_mark_is_named_on_the_side_that_has_room(axes):
    axes.set_xlim(0, 10)
    draw_mark(axes, 2.0, "left")
    draw_mark(axes, 9.0, "right")
    assert [line.get_xdata()[0] for line in axes.lines] == [2, 9]
    assert [(text.get_text(), text.get_ha()) for text in axes.texts] == [
        ("left", "left"),
        ("right", "right"),
    ]
