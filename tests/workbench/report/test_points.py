"""Numbered points: which are drawn, which are numbered, what the legend says."""

import pytest

from lenity.workbench.report.plot_data import Frontier, FrontierPoint
from lenity.workbench.report.points import NUMBERED, frontier, predicted
from tests.workbench.report import sample
from tests.workbench.report.markup import parsed

SETTING = sample.report().setting


def texts_in(figure):
    return [text.full_text for text in parsed(figure.svg).find("text")]


def test_quality_is_drawn_against_speed_and_against_calls():
    speed, calls = frontier(sample.frontier(), SETTING)
    assert "Throughput, tokens/s" in texts_in(speed)
    assert "Target passes per token, strict = 1" in texts_in(calls)
    assert speed.table is not None
    assert calls.table is None  # its numbers stand in the same table
    assert {"margin", "2", "8"} <= set(texts_in(speed))


def test_a_cost_nobody_knows_is_not_drawn():
    points = tuple(p.model_copy(update={"throughput": None}) for p in sample.frontier().points)
    (calls,) = frontier(sample.frontier().model_copy(update={"points": points}), SETTING)
    assert calls.slug == "frontier-calls"
    assert calls.table is not None
    nothing = Frontier(protocol="p", points=(FrontierPoint(label="a", quality=0.0),))
    assert frontier(nothing, SETTING) == []


def with_plain(throughput):
    plain, *others = sample.frontier().points
    points = (plain.model_copy(update={"throughput": throughput}), *others)
    return frontier(sample.frontier().model_copy(update={"points": points}), SETTING)[0]


@pytest.mark.parametrize("far", [18.2, 60.0])
def test_plain_decoding_far_away_is_told_instead_of_drawn(far):
    figure = with_plain(far)
    assert figure.caption.startswith(f"Outside the plot: 1, plain, at {far} tokens/s.")
    assert "1" not in texts_in(figure)


@pytest.mark.parametrize("near", [30.0, 38.0])
def test_plain_decoding_nearby_is_drawn(near):
    figure = with_plain(near)
    assert "Outside" not in figure.caption
    assert "1" in texts_in(figure)


def test_a_relaxed_point_far_away_is_drawn():
    far = sample.frontier().points[-1].model_copy(update={"throughput": 300.0})
    plot = sample.frontier().model_copy(update={"points": (*sample.frontier().points[:-1], far)})
    assert "8, " not in frontier(plot, SETTING)[0].caption


@pytest.mark.parametrize("extra", [0, 20])
def test_of_many_points_only_those_that_matter_are_numbered(extra):
    plot = sample.frontier()
    dull = tuple(
        FrontierPoint(label=f"dull-{i}", quality=-0.03, throughput=33.0 + i / 10)
        for i in range(extra)
    )
    plot = plot.model_copy(update={"points": (*plot.points, *dull)})
    figure = frontier(plot, SETTING)[0]
    told = [key.symbol for key in figure.legend]
    if extra:
        assert len(plot.points) > NUMBERED
        assert told == [
            "1",
            "2",
            "3",
            "4",
            "5",
            "7",
            "8",
        ]  # 6 is neither on the frontier nor chosen
    else:
        assert told == list("12345678")
    assert set(told) - {"1"} <= set(texts_in(figure))


def test_the_legend_says_what_a_point_is():
    legend = [key.text for key in frontier(sample.frontier(), SETTING)[0].legend]
    assert legend[:4] == [
        "plain",
        "strict",
        "asd:budget=4,gate=0.25,block_cap=2",
        f"{sample.CHOSEN}, chosen",
    ]


def test_predictions_are_numbered_as_in_their_table():
    figure = predicted(sample.predicted(), SETTING)
    assert figure.slug == "plot-predicted-tokens"
    assert [key.symbol for key in figure.legend] == list("1234")
    assert {"1", "2", "3", "4", "Predicted", "Measured"} <= set(texts_in(figure))
    assert "Dotted: predictions that hold exactly." in figure.caption
