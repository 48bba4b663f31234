import numpy as np
import pytest

from lenity.errors import ProtocolError
from lenity.workbench.intervals import Interval, mcnemar_exact, paired_difference_interval
from lenity.workbench.pairing import Pairs
from lenity.workbench.triplets import Dropped, RunTotals, Triplet, Triplets
from lenity.workbench.verdicts import (
    Quality,
    Speed,
    check_signal,
    judge_logprobs,
    judge_quality,
    judge_speed,
)
from tests.workbench.handmade import failed, scored, text


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


def flips(gained: int, lost: int, prompts: int) -> Pairs:
    """Prompts that both arms solve, but for so many."""
    strict = [0] * gained + [1] * (prompts - gained)
    return scored(strict, [1] * gained + [0] * lost + [1] * (prompts - gained - lost))


@pytest.mark.parametrize(
    ("gained", "lost", "outcome", "is_worse"),
    [
        (3, 3, Quality.NON_INFERIOR, False),
        (0, 6, Quality.NON_INFERIOR, True),
        (10, 16, Quality.INCONCLUSIVE, False),
        (0, 16, Quality.INCONCLUSIVE, True),
        (2, 40, Quality.INFERIOR, True),
    ],
)
def test_the_verdict_is_where_the_interval_lies(rng, gained, lost, outcome, is_worse):
    verdict = judge_quality(flips(gained, lost, 400), rng, margin=0.04, resamples=500)
    assert (verdict.outcome, verdict.is_worse) == (outcome, is_worse)
    differences = [1] * gained + [-1] * lost + [0] * (400 - gained - lost)
    assert verdict.interval == paired_difference_interval(differences)
    assert (verdict.gained, verdict.lost) == (gained, lost)
    assert verdict.mcnemar_p == mcnemar_exact(gained, lost)
    assert (verdict.noninferiority_p < 0.025) == (outcome is Quality.NON_INFERIOR)
    assert verdict.bootstrap.estimate == pytest.approx(verdict.interval.estimate)
    assert verdict.relaxed_mean - verdict.strict_mean == pytest.approx(verdict.interval.estimate)
    assert (verdict.needed is not None) == (outcome is Quality.INCONCLUSIVE)


def test_an_inconclusive_verdict_says_how_many_prompts_it_would_have_taken(rng):
    verdict = judge_quality(flips(1, 1, 100), rng, resamples=100)
    assert verdict.outcome is Quality.INCONCLUSIVE
    assert verdict.needed.discordance == pytest.approx(2.5 / 101)
    assert verdict.needed.margin == 0.01
    assert verdict.needed.difference == 0
    assert verdict.needed.prompts > 1000
    assert verdict.words == (
        "inconclusive at a margin of 1 pp: +0.00 pp (-4.56 to +4.56) on 100 prompts. "
        f"{verdict.needed.words}"
    )


def test_equal_arms_on_few_prompts_prove_nothing(rng):
    verdict = judge_quality(flips(0, 0, 50), rng, resamples=100)
    assert verdict.outcome is Quality.INCONCLUSIVE
    assert verdict.needed.prompts > 381
    assert judge_quality(flips(0, 0, 400), rng, resamples=100).outcome is Quality.NON_INFERIOR


def test_repeats_of_a_prompt_are_not_more_prompts(rng):
    once = judge_quality(flips(2, 3, 100), rng, resamples=100)
    base = flips(2, 3, 100)
    strict = [s.score for s, _ in base.pairs for _ in range(4)]
    relaxed = [r.score for _, r in base.pairs for _ in range(4)]
    often = judge_quality(scored(strict, relaxed, repeats=4), rng, resamples=100)
    assert often.interval == once.interval
    assert (often.num_prompts, often.num_pairs) == (100, 400)


def test_partial_scores_have_no_flips(rng):
    pairs = scored([0.5, 1, 0, 1] * 5, [0.5, 0.5, 0.5, 1] * 5)
    verdict = judge_quality(pairs, rng, resamples=100)
    assert (verdict.gained, verdict.lost, verdict.mcnemar_p) == (None, None, None)
    assert verdict.outcome is Quality.INCONCLUSIVE
    assert verdict.needed.basis == "variance"


def test_pairs_that_failed_are_counted_not_scored(rng):
    base = flips(0, 0, 5)
    strict = [s for s, _ in base.pairs]
    relaxed = [r for _, r in base.pairs[:4]] + [failed(item_id="4")]
    verdict = judge_quality(Pairs.of(strict, relaxed), rng, resamples=100)
    assert verdict.num_prompts == 4
    assert verdict.excluded == ("toy@1 4, repeat 0: failed in relaxed (out of memory)",)
    with pytest.raises(ProtocolError, match="at least 2 prompts with a score"):
        judge_quality(Pairs.of([], []), rng)


def test_a_significant_loss_within_reach_of_the_margin_is_told(rng):
    verdict = judge_quality(flips(0, 16, 400), rng, margin=0.04, resamples=100)
    assert "surely worse than strict" in verdict.words


def spoken(differences) -> Pairs:
    """Pairs whose mean log-probabilities differ by these."""
    strict = [text(1, item_id=str(i), logprobs=(-1.0,)) for i in range(len(differences))]
    relaxed = [
        text(1, 2, item_id=str(i), logprobs=(-1.0 + d, -1.0 + d)) for i, d in enumerate(differences)
    ]
    return Pairs.of(strict, relaxed)


@pytest.mark.parametrize(
    ("shift", "spread", "outcome"),
    [
        (0.0, 0.01, Quality.NON_INFERIOR),
        (-0.01, 0.01, Quality.NON_INFERIOR),
        (-0.1, 0.05, Quality.INFERIOR),
        (-0.02, 0.1, Quality.INCONCLUSIVE),
    ],
)
def test_texts_are_judged_by_the_targets_own_log_probability(rng, shift, spread, outcome):
    verdict = judge_logprobs(spoken(shift + spread * rng.normal(0, 1, 60)), rng, resamples=1000)
    assert verdict.outcome is outcome
    assert verdict.measure == "logprob"
    assert verdict.strict_mean == -1
    assert "nats per token" in verdict.words
    if outcome is Quality.INCONCLUSIVE:
        assert verdict.needed.prompts == pytest.approx(7.85 * (spread / 0.02) ** 2, rel=0.3)


def test_few_equal_texts_prove_nothing(rng):
    verdict = judge_logprobs(spoken([0.0] * 19), rng, resamples=100)
    assert (verdict.outcome, verdict.needed.prompts) == (Quality.INCONCLUSIVE, 20)
    assert judge_logprobs(spoken([0.0] * 20), rng, resamples=100).outcome is Quality.NON_INFERIOR


def test_a_task_the_target_cannot_do_carries_no_signal():
    able = check_signal(scored([1] * 60 + [0] * 40, [1] * 100))
    assert able.has_signal
    assert able.strict.estimate == 0.6
    assert not check_signal(scored([1] * 60 + [0] * 40, [1] * 100), chance=0.45).has_signal
    weak = check_signal(scored([1] * 10 + [0] * 90, [1] * 100))
    assert not weak.has_signal
    assert weak.words == (
        "Strict scores 10.0% (5.5% to 17.4%); chance is 0.0%. The target is too weak for this "
        "task, or the prompts too few, for a margin of 1.0%: there is little to lose. "
        "Log-probability is judged instead."
    )


def triplets(*gains: float, dropped: int = 0) -> Triplets:
    def run(speed: float) -> RunTotals:
        return RunTotals(output_hash="h", requests=1, tokens=100, seconds=100 / speed)

    return Triplets(
        kept=tuple(
            Triplet(repeat=i, before=run(10), relaxed=run(10 * (1 + gain)), after=run(10))
            for i, gain in enumerate(gains)
        ),
        dropped=tuple(Dropped(repeat=9 + i, reason="drift") for i in range(dropped)),
    )


def over_prompts(low: float, high: float) -> Interval:
    return Interval(estimate=(low + high) / 2, low=low, high=high, method="m", num_units=30)


@pytest.mark.parametrize(
    ("gains", "prompts", "outcome"),
    [
        ((0.10, 0.11, 0.09, 0.10), None, Speed.FASTER),
        ((0.10, 0.11, 0.09, 0.10), over_prompts(0.02, 0.2), Speed.FASTER),
        ((0.10, 0.11, 0.09, 0.10), over_prompts(-0.02, 0.2), Speed.INCONCLUSIVE),
        ((0.10, -0.11, 0.09, 0.0), over_prompts(0.02, 0.2), Speed.INCONCLUSIVE),
        ((-0.10, -0.11, -0.09, -0.10), over_prompts(-0.2, -0.01), Speed.SLOWER),
        ((-0.10, -0.11, -0.09, -0.10), over_prompts(-0.2, 0.01), Speed.INCONCLUSIVE),
        ((0.10, 0.11, 0.09), None, Speed.FASTER),
        ((0.10, 0.101), None, Speed.INCONCLUSIVE),
        ((0.10,), over_prompts(0.02, 0.2), Speed.INCONCLUSIVE),
        ((), None, Speed.INCONCLUSIVE),
    ],
)
def test_faster_needs_both_intervals_and_enough_triplets(gains, prompts, outcome):
    assert judge_speed(triplets(*gains), prompts).outcome is outcome


def test_the_words_of_a_speed_verdict():
    verdict = judge_speed(
        triplets(0.10, 0.11, 0.09, dropped=1), over_prompts(0.02, 0.2), min_triplets=4
    )
    assert verdict.words == (
        "inconclusive: gain +10.0% ± 2.5% over repeats, +2.0% to +20.0% over prompts "
        "(3 triplets kept, 1 dropped of 4 asked for)."
    )
    assert judge_speed(triplets(0.1, 0.11), min_triplets=2).words.startswith("faster: gain +10.5%")
    assert judge_speed(triplets(0.1)).words == (
        "inconclusive: 1 triplets kept, 0 dropped, at least 2 are needed for an interval."
    )


def test_verdicts_read_back(rng):
    for verdict in (
        judge_quality(flips(1, 2, 50), rng, resamples=100),
        judge_speed(triplets(0.1, 0.2)),
    ):
        assert type(verdict).model_validate_json(verdict.model_dump_json()) == verdict
