"""What a sweep measures, on requests written by hand."""

import numpy as np
import pytest

from lenity.workbench.config import Arm
from lenity.workbench.intervals import Interval
from lenity.workbench.metrics import Counts, relative_blocks, relative_calls
from lenity.workbench.sweep import Step
from lenity.workbench.sweep_measures import (
    full_prefix,
    gain,
    measured,
    passes,
    quantities,
    relative,
    strict_token,
    throughput,
)
from tests.workbench.handmade import a_round, failed, request, timed

STRICT = [
    request(("aar", 4), ("aaaab", 4), arm="strict", item_id="1", logprobs=(-1.0,) * 8),
    request(("aaar", 4), ("ar", 4), arm="strict", item_id="2", logprobs=(-1.0,) * 6),
]


def skipping(shadow=(2, 4)):
    """Three of four and two of four skipped, of which strict accepts two and all."""
    rounds = [a_round("sss", 4, shadow_accepted=shadow[0]), a_round("aar", 4)]
    one = request(*rounds, kinds="sssaar", token_ids=tuple(range(6)), item_id="1")
    rounds = [a_round("ss", 4, shadow_accepted=shadow[1]), a_round("r", 4)]
    other = request(*rounds, kinds="ssr", token_ids=tuple(range(3)), item_id="2")
    return [one, other]


def rng():
    return np.random.default_rng(0)


def test_agreement_is_a_sum_over_a_sum_with_an_interval():
    found = strict_token(skipping(), rng(), 200)
    assert found.estimate == (2 + 2 + 2) / (3 + 2 + 2)
    assert found.low < found.estimate < found.high
    assert full_prefix(skipping(), rng(), 200).estimate == 2 / 3
    assert strict_token(STRICT, rng(), 200).low == 1


def test_without_a_shadow_or_an_interval():
    assert strict_token(skipping(shadow=(2, None)), rng(), 200) is None
    assert strict_token([request(("r", 4))], rng(), 200) is None, "no draft token committed"
    assert strict_token(skipping()[:1], rng(), 200) == 4 / 5, "one prompt has no interval"


def test_throughput_is_tokens_over_the_rounds_seconds():
    fast = [timed(1.0, item_id="1"), timed(3.0, item_id="2"), failed(item_id="3")]
    slow = [timed(2.0, item_id="1"), timed(6.0, item_id="2")]
    assert throughput(fast, rng(), 200).estimate == pytest.approx(8 / 2)
    assert gain(fast, slow, rng(), 200).estimate == pytest.approx(1)
    assert gain(fast[:1], slow, rng(), 200) is None
    assert throughput([request(("r", 1))], rng(), 200) is None, "no seconds"
    assert gain(STRICT, STRICT, rng(), 200) is None, "no seconds"


def test_relative_calls_are_paired_by_prompt():
    """Of two prompts, 2 passes for 8 tokens become 1 for 6; 2 for 6 become 1 for 3."""
    found = relative(skipping(), STRICT, "target_passes", rng(), 500)
    least, most = (1 / 6) / (2 / 8), (1 / 3) / (2 / 6)
    assert least <= found.low < found.estimate < found.high <= most
    alone = relative(skipping()[:1], STRICT[:1], "target_passes", rng(), 500)
    assert alone == relative_calls(Counts.of(skipping()[:1]), Counts.of(STRICT[:1]))
    blocks = relative(skipping()[:1], STRICT[:1], "draft_passes", rng(), 500)
    assert blocks == relative_blocks(Counts.of(skipping()[:1]), Counts.of(STRICT[:1]))


def test_one_prompt_has_no_passes():
    assert passes(STRICT[:1], rng(), 200) is None
    assert passes(STRICT, rng(), 200).estimate == 14 / 4


def steps():
    arms = {"strict": STRICT, "raw-1": skipping()}
    return arms, [
        Step(arm=Arm(name=name, gamma=4), curve=name.partition("-")[0], x=name) for name in arms
    ]


def test_every_quantity_of_every_arm():
    arms, made = steps()
    found = measured(quantities(rng(), 200, with_times=True), made, arms)
    assert found["relative_calls"]["strict"].estimate == 1
    assert found["relative_calls"]["raw-1"].estimate == pytest.approx((2 / 9) / (4 / 14))
    assert found["relative_blocks"]["raw-1"].estimate == pytest.approx((4 / 9) / (4 / 14))
    assert "coverage" not in found
    assert found["throughput"] == {}, "nothing took time"
    assert isinstance(found["full_prefix"]["raw-1"], Interval)
    assert found["logprob"]["strict"].estimate == 0
    assert "raw-1" not in found["logprob"], "it has none"
    assert "throughput" not in measured(quantities(rng(), 200), made, arms)
