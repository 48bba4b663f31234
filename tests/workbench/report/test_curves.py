"""Curves: acceptance, sweeps, forecasts."""

import pytest

from lenity.workbench.report.curves import acceptance, reliability, sweep
from lenity.workbench.report.plot_data import Mark
from lenity.workbench.report.theme import REFERENCES, SERIES, looks_of
from tests.workbench.report import sample
from tests.workbench.report.markup import parsed

SETTING = sample.report().setting


def texts_in(figure):
    return [text.full_text for text in parsed(figure.svg).find("text")]


def drawn_acceptance(plot):
    return acceptance(plot, SETTING, looks_of(arm.arm for arm in plot.arms))


def test_both_rates_are_drawn_for_all_arms():
    rate, conditional = drawn_acceptance(sample.acceptance())
    assert (rate.slug, conditional.slug) == ("acceptance", "acceptance-conditional")
    assert [key.text for key in rate.legend] == ["strict", "relaxed", "priced"]
    assert (rate.table is None, conditional.table is None) == (False, True)
    assert "Position in the draft" in texts_in(rate)


@pytest.mark.parametrize("known", ["rate", "conditional"])
def test_a_rate_nobody_measured_is_not_drawn(known):
    gone = {"rate", "conditional"} - {known}
    arms = tuple(arm.model_copy(update=dict.fromkeys(gone, ())) for arm in sample.acceptance().arms)
    (figure,) = drawn_acceptance(sample.acceptance().model_copy(update={"arms": arms}))
    assert (figure.title.startswith("Conditional")) == (known == "conditional")
    assert figure.table is not None


def test_an_arm_without_the_rate_is_not_in_its_legend():
    strict, *others = sample.acceptance().arms
    arms = (strict.model_copy(update={"conditional": ()}), *others)
    plot = sample.acceptance().model_copy(update={"arms": arms})
    rate, conditional = drawn_acceptance(plot)
    assert [key.text for key in rate.legend] == ["strict", "relaxed", "priced"]
    assert [key.text for key in conditional.legend] == ["relaxed", "priced"]


def test_positions_are_whole_numbers():
    ticks = [text for text in texts_in(drawn_acceptance(sample.acceptance())[0]) if text.isdigit()]
    assert ticks[:7] == list("1234567")


def test_published_curves_are_grey_and_tell_their_setting():
    figure = sweep(sample.sweeps()[0], SETTING)
    ours, theirs = figure.legend[0], figure.legend[-1]
    assert ours.look == SERIES[0]
    assert theirs.look == REFERENCES[0]
    assert theirs.text == "ASD paper, GSM8K (Qwen3-14B, DSpark, 1 x L20)"


def test_a_logarithmic_axis_has_its_own_points_as_ticks():
    texts = texts_in(sweep(sample.sweeps()[0], SETTING))
    assert texts[:8] == ["2", "4", "8", "12", "16", "32", "64", "Budget B, nats"]
    assert "Throughput gain, %" in texts


def test_words_make_an_axis_of_names():
    assert texts_in(sweep(sample.sweeps()[1], SETTING))[:5] == ["1", "2", "3", "∞", "Block cap M"]


def test_a_plain_axis_has_round_ticks():
    plot = sample.sweeps()[0].model_copy(update={"x_is_logarithmic": False})
    texts = texts_in(sweep(plot, SETTING))
    assert texts[: texts.index("Budget B, nats")] == ["0", "10", "20", "30", "40", "50", "60"]


def test_a_mark_stands_on_an_axis_of_numbers_only():
    mark = Mark(x=12, label="break-even")
    numbers, words = (
        plot.model_copy(update={"mark": mark, "x_is_logarithmic": False})
        for plot in sample.sweeps()[:2]
    )
    assert "break-even" in texts_in(sweep(numbers, SETTING))
    assert "break-even" not in texts_in(sweep(words, SETTING))


def test_forecasts_have_the_diagonal_and_all_curves():
    figure = reliability(sample.reliability(), SETTING)
    assert [key.text for key in figure.legend] == ["raw", "calibrated"]
    assert {"Forecast survival, %", "Observed survival, %"} <= set(texts_in(figure))
    assert figure.caption.startswith("Dotted: forecasts that come true as often as they say.")
    assert figure.slug == "plot-survival"
