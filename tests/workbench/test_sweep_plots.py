"""A quantity over the knob and over target calls."""

import pytest

from lenity.workbench.config import Arm
from lenity.workbench.report.plot_data import Mark
from lenity.workbench.sweep import Step
from lenity.workbench.sweep_measures import Quantity
from lenity.workbench.sweep_plots import Drawn, over_calls, over_knob, settings_table
from lenity.workbench.tables import PLAIN

CALLS = Quantity(key="relative_calls", title="Calls", unit=PLAIN, of=lambda own, strict: None)
SCORE = Quantity(key="score", title="Score", unit=PLAIN, of=lambda own, strict: None)
NONE = Quantity(key="logprob", title="None", unit=PLAIN, of=lambda own, strict: None)
VALUES = {
    "relative_calls": {"strict": 1.0, "raw-0": 0.7, "raw-1": 0.9, "top-2": 0.6},
    "score": {"strict": 0.0, "raw-0": -0.2, "raw-1": -0.1, "top-2": -0.5},
    "logprob": {},
}


def step(name, curve, x):
    return Step(arm=Arm(name=name, skip=f"{curve}:x={x}"), curve=curve, x=x)


@pytest.fixture
def drawn():
    made = [
        step("strict", "strict", "strict"),
        step("raw-0", "raw", 0.0),
        step("raw-1", "raw", 4.0),
    ]
    return Drawn(steps=made, values=VALUES, protocol="made", run_id="r", x_label="K_min")


def points(curve):
    return [(point.x, point.y) for point in curve.points]


def test_strict_is_a_level_where_the_knob_means_nothing_to_it(drawn):
    plot = over_knob(SCORE, drawn, mark=Mark(x=2.5, label="K*"), is_level=True)
    curves = {curve.label: curve for curve in plot.curves}
    assert points(curves["strict"]) == [(0, 0), (4, 0)]
    assert curves["strict"].is_reference
    assert points(curves["raw"]) == [(0, -0.2), (4, -0.1)]
    assert plot.mark.x == 2.5
    bare = over_knob(SCORE, drawn)
    assert points(bare.curves[0]) == [("strict", 0)]
    assert over_knob(NONE, drawn) is None


def test_a_knob_of_words_keeps_strict_a_word(drawn):
    words = [*drawn.steps, step("top-2", "top_k", "two")]
    plot = over_knob(SCORE, Drawn(**{**_fields(drawn), "steps": words}), is_level=True)
    assert points(plot.curves[0]) == [("strict", 0)]


def test_settings_stand_in_the_order_of_their_calls(drawn):
    steps = [*drawn.steps, step("top-2", "top_k", "2"), step("new", "top_k", "3")]
    plot = over_calls(SCORE, Drawn(**{**_fields(drawn), "steps": steps}))
    assert [curve.label for curve in plot.curves] == ["strict", "raw", "top_k"]
    assert points(plot.curves[1]) == [(0.9, -0.1), (0.7, -0.2)]
    assert points(plot.curves[2]) == [(0.6, -0.5)]
    assert over_calls(NONE, drawn) is None


def test_a_table_has_what_some_arm_has(drawn):
    table = settings_table([CALLS, SCORE, NONE], drawn)
    assert [column.key for column in table.columns] == [
        "rule",
        "setting",
        "spec",
        "relative_calls",
        "score",
    ]
    assert table.rows[1] == ("raw", "0.0", "raw:x=0.0", 0.7, -0.2)


def _fields(drawn):
    return {name: getattr(drawn, name) for name in Drawn.__dataclass_fields__}
