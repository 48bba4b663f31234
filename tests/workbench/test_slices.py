"""Slices by task, family and length, and the worst of them."""

import numpy as np
import pytest

from lenity.workbench.intervals import paired_difference_interval
from lenity.workbench.slices import slices_of, slices_table, worst_slice
from lenity.workbench.tables import NATS_APART
from tests.workbench.handmade import request


def arm(name, scores, task="toy@1", family=None, length=2, **changes):
    """Requests with these scores; items are named by task and family."""
    return [
        request(
            ("aab", 3),
            arm=name,
            task=task,
            family=family,
            item_id=f"{family}{i}",
            prompt_ids=(1,) * (length(i) if callable(length) else length),
            score=score,
            logprobs=(-1 - (1 - score),) * 3,
            **changes,
        )
        for i, score in enumerate(scores)
    ]


def found(strict, relaxed, **options):
    return slices_of(strict, relaxed, np.random.default_rng(0), **options)


RIGHT, WRONG = [1.0] * 12, [0.0] * 12


def test_tasks_and_families_are_slices():
    strict = arm("s", RIGHT, family="easy") + arm("s", RIGHT, family="hard")
    relaxed = arm("r", RIGHT, family="easy") + arm("r", [0.0, *RIGHT[1:]], family="hard")
    strict += arm("s", RIGHT, task="more@1")
    relaxed += arm("r", RIGHT, task="more@1")
    slices = found(strict, relaxed)
    assert [one.name for one in slices] == ["toy@1", "toy@1, easy", "toy@1, hard", "more@1"]
    assert [one.num_prompts for one in slices] == [24, 12, 12, 12]
    worst = worst_slice(slices)
    assert (worst.name, worst.num_prompts, worst.num_slices) == ("toy@1, hard", 12, 4)
    assert worst.difference == paired_difference_interval([-1.0, *[0.0] * 11])
    (table,) = slices_table(slices)
    assert table.rows[2][:4] == ("toy@1, hard", 12, 1.0, pytest.approx(11 / 12))
    assert "of 4 slices" in table.note


def test_thirds_by_length_keep_equals_together():
    def length(i):
        return 5 + 10 * (i // 12)

    strict = arm("s", RIGHT * 3, length=length)
    relaxed = arm("r", RIGHT + WRONG + RIGHT, length=length)
    slices = found(strict, relaxed)
    names = ["up to 5 tokens", "6 to 15 tokens", "over 15 tokens"]
    assert [one.name for one in slices] == [f"toy@1, prompts of {name}" for name in names]
    assert worst_slice(slices).name.endswith("6 to 15 tokens")
    assert found(arm("s", RIGHT * 3), arm("r", RIGHT * 3)) == ()  # all equally long
    assert found(arm("s", RIGHT * 3, length=0), arm("r", RIGHT * 3, length=0)) == ()


def test_small_slices_say_nothing():
    strict = arm("s", RIGHT, family="easy") + arm("s", RIGHT[:9], family="hard")
    relaxed = arm("r", RIGHT, family="easy") + arm("r", WRONG[:9], family="hard")
    slices = found(strict, relaxed)
    assert [one.name for one in slices] == ["toy@1, easy"]
    assert worst_slice(slices) is None
    assert slices_table(slices) == ()


def test_prompts_that_one_arm_failed_on_are_in_no_slice():
    strict = arm("s", RIGHT, family="a") + arm("s", RIGHT, family="b")
    relaxed = arm("r", RIGHT, family="a") + arm("r", RIGHT[:11], family="b")
    assert [one.num_prompts for one in found(strict, relaxed)] == [12, 11]


def test_log_probabilities_are_sliced_where_they_are_judged():
    strict = arm("s", RIGHT, family="a") + arm("s", RIGHT, family="b")
    relaxed = arm("r", RIGHT, family="a") + arm("r", WRONG, family="b")
    slices = found(strict, relaxed, measure="logprob")
    worst = worst_slice(slices, "logprob")
    assert (worst.name, worst.unit) == ("toy@1, b", NATS_APART)
    assert worst.difference.estimate == -1
    assert [one.strict for one in slices] == [-1, -1]
    (table,) = slices_table(slices, "logprob")
    assert "log-probability" in table.title


def test_records_of_before_families_have_none():
    strict, relaxed = arm("s", RIGHT), arm("r", RIGHT)
    assert found(strict, relaxed) == ()
    assert found(strict[:1], relaxed[:1]) == ()
