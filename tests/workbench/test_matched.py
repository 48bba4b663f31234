"""Rules at equal regret, against a loop over resamples and numbers done by hand."""

import numpy as np
import pytest

from lenity.errors import ProtocolError
from lenity.workbench.intervals import Interval
from lenity.workbench.matched import Spending, compare, halves, paired_difference
from lenity.workbench.replay import Prediction
from tests.workbench.made import record

PROMPTS = (("toy@1", "a"), ("toy@1", "b"))


def spending(specs, tokens, passes, regret):
    prompts = tuple(("toy@1", str(i)) for i in range(len(tokens[0])))
    tokens, passes, regret = (np.array(rows, dtype=np.float64) for rows in (tokens, passes, regret))
    return Spending(
        specs=specs,
        prompts=prompts,
        tokens=tokens,
        passes=passes,
        regret=regret,
        relaxed=np.ones_like(regret),
    )


def curve(points, num_prompts=2):
    """A rule whose settings have these (mean regret, tokens per pass) on every prompt."""
    return spending(
        tuple(f"rule:knob={i}" for i in range(len(points))),
        [[12.0] * num_prompts for _ in points],
        [[12.0 / gain] * num_prompts for _, gain in points],
        [[spent] * num_prompts for spent, _ in points],
    )


def rng():
    return np.random.default_rng(0)


def test_sums_are_over_prompts():
    made = spending(("s",), [[10, 20]], [[5, 5]], [[1, 4]])
    assert made.tokens_per_pass.tolist() == [3.0]
    assert made.mean_regret.tolist() == [2.5]
    assert made.max_regret.tolist() == [4.0]


def test_the_hull_leaves_out_what_a_mixture_beats():
    # 2 lies below the line from 1 to 3, 4 gains less than 3 for more
    made = curve([(0, 1.0), (1, 2.0), (2, 2.1), (3, 3.0), (4, 2.9), (8, 3.5)])
    assert made.hull() == (0, 1, 3, 5)


def test_of_equal_spending_the_hull_keeps_what_gains_more():
    assert curve([(0, 1.0), (2, 1.5), (2, 2.0)]).hull() == (0, 2)


def test_settings_are_taken_by_place_and_by_name():
    made = curve([(0, 1.0), (1, 2.0), (2, 3.0)])
    assert made.named(["rule:knob=2", "rule:knob=0"]).mean_regret.tolist() == [2.0, 0.0]
    assert made.settings([1]).specs == ("rule:knob=1",)


def test_the_cap_is_on_the_dearest_request():
    made = spending(
        ("tight", "loose", "wild"), [[9, 9]] * 3, [[9, 9], [6, 6], [3, 3]], [[0, 1], [0, 8], [5, 9]]
    )
    assert made.dearest_within(8) == 1
    assert made.dearest_within(7.9) == 0
    assert made.dearest_within(0.5) is None


def test_rules_are_compared_between_their_settings():
    own = curve([(0, 1.0), (4, 3.0)])
    other = curve([(0, 1.0), (2, 1.5), (6, 2.5)])
    found = compare([(own, other)], 3.0, rng(), resamples=100)
    assert found.own == pytest.approx(2.5)
    assert found.other == pytest.approx(1.75)
    assert found.difference.estimate == pytest.approx(2.5 / 1.75 - 1)
    assert found.num_prompts == 2


def test_beyond_its_last_setting_a_rule_gains_no_more():
    own = curve([(0, 1.0), (4, 3.0)])
    other = curve([(0, 1.0), (8, 3.0)])
    assert compare([(own, other)], 8.0, rng(), resamples=100).own == pytest.approx(3.0)


def test_at_equal_gain_regret_is_compared():
    own = curve([(0, 1.0), (4, 3.0)])
    other = curve([(0, 1.0), (8, 3.0)])
    found = compare([(own, other)], 2.0, rng(), axis="tokens_per_pass", resamples=100)
    assert (found.own, found.other) == (pytest.approx(2.0), pytest.approx(4.0))
    assert found.difference.estimate == pytest.approx(-0.5)


def test_a_setting_is_chosen_on_one_half_and_judged_on_the_other():
    first = (curve([(0, 1.0), (4, 3.0)], 30), curve([(0, 1.0), (4, 2.0)], 30))
    second = (curve([(0, 1.0), (4, 4.0)], 20), curve([(0, 1.0), (2, 2.0), (4, 2.0)], 20))
    found = compare([first, second], 4.0, rng(), resamples=100)
    assert found.own == pytest.approx((3.0 + 4.0) / 2)
    assert found.other == pytest.approx(2.0)
    assert found.num_prompts == 50


def test_prompts_are_resampled_together():
    """Against a loop that draws prompts, sums, and reads both curves; within Monte Carlo error."""
    draw = np.random.default_rng(3)
    noise = draw.uniform(0.7, 1.3, (2, 40))
    spent = noise * np.array([[0], [4]])
    own = spending(("a", "b"), [[20.0] * 40] * 2, 20 / (noise + np.array([[0], [1]])), spent)
    other = spending(("a", "b"), [[20.0] * 40] * 2, 20 / (noise + np.array([[0], [0.5]])), spent)
    found = compare([(own, other)], 2.0, rng(), resamples=4000).difference
    values = []
    for _ in range(4000):
        index = draw.integers(0, 40, 40)
        read = [
            np.interp(
                2.0,
                rule.regret[:, index].mean(1),
                rule.tokens[:, index].sum(1) / rule.passes[:, index].sum(1),
            )
            for rule in (own, other)
        ]
        values.append(read[0] / read[1] - 1)
    low, high = np.quantile(values, [0.025, 0.975])
    width = high - low
    assert found.low == pytest.approx(low, abs=0.15 * width)
    assert found.high == pytest.approx(high, abs=0.15 * width)


def test_single_settings_are_compared_by_their_ratio():
    own = spending(("a",), [[12, 12]], [[4, 4]], [[1, 1]])
    other = spending(("b",), [[12, 12]], [[6, 6]], [[1, 1]])
    found = paired_difference(own, other, rng(), resamples=100)
    assert isinstance(found, Interval)
    assert (found.estimate, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))


def test_what_cannot_be_compared_is_refused():
    two, three = curve([(0, 1.0), (1, 2.0)]), curve([(0, 1.0), (1, 2.0)], 3)
    with pytest.raises(ProtocolError, match="same prompts in the same order, got 2 and 3"):
        compare([(two, three)], 1.0, rng())
    with pytest.raises(ProtocolError, match="one setting of either rule, got 2 and 2"):
        paired_difference(two, two, rng())
    with pytest.raises(ProtocolError, match="answered, got none"):
        Spending.of_records({"a": [record("1")], "b": [record("2")]})


def test_halves_go_by_the_prompt_and_not_by_its_place():
    prompts = [("toy@1", f"{'ab'[i % 2]}/{i}") for i in range(200)]
    first = halves(prompts)
    assert 70 <= first.sum() <= 130
    assert 30 <= first[::2].sum() <= 70  # families that take turns are on both sides
    assert halves(prompts[::-1]).tolist() == first[::-1].tolist()


def test_half_of_the_prompts_is_a_curve_of_its_own():
    made = spending(("s",), [[10, 20, 30]], [[5, 5, 5]], [[1, 4, 7]])
    kept = made.only(np.array([True, False, True]))
    assert kept.prompts == (("toy@1", "0"), ("toy@1", "2"))
    assert kept.mean_regret.tolist() == [4.0]
    assert kept.tokens_per_pass.tolist() == [4.0]


def test_predictions_become_a_curve():
    said = [
        Prediction(
            policy=spec, tokens=(8, 4), passes=(4.0, 2.0), relaxed=(0, spent), regret=(0, spent)
        )
        for spec, spent in (("strict", 0.0), ("asd", 2.0))
    ]
    made = Spending.of_predictions(said, PROMPTS)
    assert made.specs == ("strict", "asd")
    assert made.mean_regret.tolist() == [0.0, 1.0]
    assert made.tokens_per_pass.tolist() == [2.0, 2.0]
    assert made.coverage.tolist() == [0.0, 0.5]


def test_records_become_a_curve_of_what_every_arm_answered():
    arms = {
        "strict": [record("1"), record("2"), record("3")],
        "asd": [record("3"), record("1"), record("2", status="failed", error="broken")],
    }
    made = Spending.of_records(arms)
    assert made.prompts == (("toy@1", "1"), ("toy@1", "3"))
    first = arms["strict"][0]
    assert made.tokens[0].tolist() == [len(first.token_ids)] * 2
    assert made.passes[0].tolist() == [sum(r.target_passes for r in first.rounds)] * 2
    assert made.regret[0].tolist() == [first.regret_spent] * 2
    assert made.coverage.tolist() == [0.0, 0.0]
