"""Parts of a report: what is in a row, and what has none."""

import numpy as np
import pytest

from lenity.workbench.parts import (
    acceptance,
    arms_table,
    latency,
    regret,
    scores_of,
    setting_of,
    tasks_table,
)
from lenity.workbench.provenance import collect
from tests.workbench.handmade import request


def arm(name, kinds="xab", count=12, **changes):
    return [request((kinds, 3), arm=name, item_id=str(i), **changes) for i in range(count)]


def cell(table, row, key):
    keys = [column.key for column in table.columns]
    return table.rows[row][keys.index(key)]


def test_arms_are_rows_with_rates_of_sums():
    failed = request(("ab", 2), item_id="x").model_copy(
        update={"status": "failed", "error": "boom"}
    )
    table = arms_table({"strict": arm("strict", "aab"), "relaxed": [*arm("relaxed"), failed]})
    assert cell(table, 1, "failed") == 1
    assert cell(table, 1, "tokens_per_pass") == 3
    assert cell(table, 1, "relaxed") == pytest.approx(1 / 3)
    assert cell(table, 0, "regret") == 0
    assert cell(table, 1, "regret") == 0.5


def test_tasks_are_rows_with_differences():
    strict = arm("strict", "aab", score=1.0)
    relaxed = [
        r.model_copy(update={"score": 0.0 if i < 3 else 1.0}) for i, r in enumerate(arm("relaxed"))
    ]
    table = tasks_table(strict, relaxed, np.random.default_rng(0))
    assert cell(table, 0, "prompts") == 12
    assert cell(table, 0, "strict_score") == 1
    assert cell(table, 0, "relaxed_score") == 0.75
    assert cell(table, 0, "difference").estimate == -0.25
    assert cell(table, 0, "strict_passes").estimate == 3


def test_a_task_without_scores_has_no_difference():
    table = tasks_table(arm("strict", "aab"), arm("relaxed"), np.random.default_rng(0))
    assert cell(table, 0, "difference") is None
    assert scores_of(arm("strict"), arm("relaxed")) is None


def test_plots_of_what_was_there():
    arms = {"strict": arm("strict", "aab"), "relaxed": arm("relaxed")}
    shown = acceptance(arms, "toy")
    assert [curve.rate for curve in shown.arms] == [(1.0, 1.0, 0.0)] * 2
    assert [row.arm for row in latency(arms, "toy").arms] == ["strict", "relaxed"]
    spent = regret({"relaxed": arms["relaxed"]}, 2.0, "toy")
    assert spent.budget == 2
    assert sum(spent.arms[0].histogram.counts) == 12
    assert regret({"relaxed": arms["relaxed"]}, float("inf"), "toy").budget is None


def test_nothing_is_drawn_of_nothing():
    assert regret({"strict": arm("strict", "aab")}, 2.0, "toy") is None
    plain = {"plain": [request(("p", 0), ("p", 0))]}
    assert acceptance(plain, "toy") is None
    assert latency({"strict": []}, "toy") is None


def test_the_setting_names_models_and_machine():
    said = setting_of(collect(), None)
    assert said.models == "no target, no drafter"
    assert "cores" in said.hardware
