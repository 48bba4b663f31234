"""Costs, break-even and the runtime model, by hand."""

import pytest

from lenity.workbench.metrics import Counts
from lenity.workbench.sweep_costs import StageCosts, costs_table, runtime_model
from tests.workbench.handmade import a_round, request

COSTS = StageCosts(block_seconds=1.0, pass_seconds=3.0, policy_seconds=0.5, emitted=8.0)


def test_costs_are_a_strict_arms_own():
    seconds = {
        "draft_seconds": 1.0,
        "target_seconds": 3.0,
        "verify_seconds": 0.25,
        "commit_seconds": 0.25,
    }
    rounds = [a_round("aaar", 4, **seconds), a_round("aaar", 4, **seconds)]
    counts = Counts.of([request(*rounds, kinds="aaar" * 2, token_ids=tuple(range(8)))])
    found = StageCosts.of(counts)
    assert found == COSTS.model_copy(update={"emitted": 4.0})
    assert found.seconds(counts) == counts.decode_seconds
    assert StageCosts.of(Counts.of([request(("ar", 4))])) is None, "it took no time"
    assert StageCosts.of(Counts()) is None


def test_break_even_by_hand():
    assert COSTS.break_even == 2.0
    assert COSTS.mark.x == 2.0
    assert COSTS.mark.label == "K* 2"
    (row,) = costs_table(COSTS).rows
    assert row[-1] == 2.0


def test_the_runtime_model_knows_counts_alone():
    """Two blocks and one pass: 2 + 3 + 2 * .5 seconds for 6 tokens."""
    arm = [request(("sss", 4), ("aar", 4))]
    (point,) = runtime_model(COSTS, {"raw": arm}, {"raw": 1.5}, "made").points
    assert (point.predicted, point.measured) == (1.0, 1.5)
    assert runtime_model(COSTS, {"raw": arm}, {}, "made") is None
    strict = [request(("aaaaaaar", 8))]
    (point,) = runtime_model(COSTS, {"strict": strict}, {"strict": 2.0}, "made").points
    assert point.predicted == pytest.approx(8 / 4.5)
