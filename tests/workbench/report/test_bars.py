"""Blocks: time by stage, regret spent, the opportunity map."""

from math import inf

import pytest

from lenity.workbench.report.bars import STRONGEST, latency, opportunity, regret
from lenity.workbench.report.theme import looks_of
from tests.workbench.report import sample
from tests.workbench.report.markup import parsed

SETTING = sample.report().setting


def texts_in(figure):
    return [text.full_text for text in parsed(figure.svg).find("text")]


def styles_in(figure, *words):
    styles = [element.attrs.get("style", "") for element in parsed(figure.svg).find("path")]
    return [style for style in styles if all(word in style for word in words)]


def test_every_arm_has_its_bar_its_name_and_its_total():
    figure = latency(sample.latency(), SETTING)
    texts = texts_in(figure)
    for text in ("plain", "55.20 ms", "strict", "31.90 ms", "relaxed", "29.50 ms"):
        assert text in texts
    assert [key.text for key in figure.legend] == ["draft", "target", "verify", "commit"]
    assert len(styles_in(figure, "fill: var(--s1)")) == 3  # target, once an arm
    assert "strict: draft 4.80, target 26.20, verify 0.60, commit 0.30 ms" in figure.svg


def drawn_regret(**changes):
    plot = sample.regret().model_copy(update=changes)
    return regret(plot, SETTING, looks_of(arm.arm for arm in plot.arms))


def test_the_budget_is_marked_and_what_lies_beyond_is_told():
    figure = drawn_regret()
    assert "budget 8" in texts_in(figure)
    assert figure.caption.startswith("3 requests of priced lie beyond the bins.")
    assert "relaxed: 256 requests" in figure.svg


@pytest.mark.parametrize("budget", [None, inf])
def test_without_a_bound_there_is_no_mark(budget):
    assert not [text for text in texts_in(drawn_regret(budget=budget)) if "budget" in text]


def test_one_arm_is_filled_and_several_let_each_other_through():
    assert styles_in(drawn_regret(), "opacity: 0.25")
    alone = drawn_regret(arms=sample.regret().arms[:1])
    assert styles_in(alone, "opacity: 0.8")
    assert not styles_in(alone, "opacity: 0.25")
    assert "beyond" not in alone.caption


@pytest.fixture(scope="module")
def maps():
    return opportunity(sample.opportunity(), SETTING)


def test_every_task_has_a_map_and_its_count(maps):
    assert [figure.title for figure in maps] == ["gsm8k@1", "humaneval@1", "mt_bench@1"]
    assert [figure.table is not None for figure in maps] == [True, False, False]
    assert maps[0].caption.startswith("18,231 mismatches, all positions of all blocks.")
    plot = sample.opportunity().tasks[0]
    cells = texts_in(maps[0])[-43:-1]  # the title of the axes comes last
    assert cells == [f"{100 * share:.0f}" for row in plot.shares for share in row]


def test_equal_shares_are_equally_strong_in_all_maps(maps):
    top = max(share for row in sample.opportunity().tasks[0].shares for share in row)
    other = max(share for row in sample.opportunity().tasks[1].shares for share in row)

    def strongest(figure):
        found = [s.split("opacity: ")[1].split(";")[0] for s in styles_in(figure, "opacity: ")]
        return max(map(float, found))

    assert strongest(maps[0]) == pytest.approx(STRONGEST, abs=1e-6)
    assert strongest(maps[1]) == pytest.approx(STRONGEST * other / top, abs=1e-6)


def test_a_cell_no_block_is_long_enough_for_is_empty(maps):
    assert len(styles_in(maps[2], "fill: var(--s1)")) == 6 * 6


def test_a_map_of_nothing_is_no_error():
    task = sample.opportunity().tasks[0]
    empty = task.model_copy(update={"shares": ((0.0,) * 7,) * 6, "num_mismatches": 0})
    (figure,) = opportunity(sample.opportunity().model_copy(update={"tasks": (empty,)}), SETTING)
    assert texts_in(figure).count("0") == 42 + 1  # and the tick of p = 0
