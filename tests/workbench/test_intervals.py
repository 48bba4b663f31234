import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lenity.engine import acceptance
from lenity.errors import ProtocolError
from lenity.workbench import intervals
from lenity.workbench.intervals import (
    Interval,
    bootstrap,
    bootstrap_gain,
    bootstrap_mean,
    bootstrap_ratio,
    cluster_sums,
    effective_counts,
    mcnemar_exact,
    noninferiority_p_value,
    normal_quantile,
    paired_difference_interval,
    score_z,
    student_t_interval,
    student_t_quantile,
    wilson_interval,
)


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


def ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


@pytest.mark.parametrize("df", [1, 2, 3, 4, 9, 30, 999, 1000, 1001, 20_000])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_t_quantile_is_scipys(df, confidence):
    expected = stats.t.ppf((1 + confidence) / 2, df)
    assert student_t_quantile(confidence, df) == pytest.approx(expected, rel=1e-7)


def test_the_normal_quantile_is_scipys():
    assert normal_quantile(0.95) == pytest.approx(stats.norm.ppf(0.975), rel=1e-9)


def test_the_t_interval_is_that_of_the_textbook():
    gains = [0.10, 0.11, 0.09, 0.12]
    interval = student_t_interval(gains)
    low, high = stats.t.interval(0.95, 3, np.mean(gains), stats.sem(gains))
    assert ends(interval) == pytest.approx((low, high))
    assert interval.half_width == pytest.approx((high - low) / 2)
    assert (interval.estimate, interval.num_units) == (pytest.approx(0.105), 4)


@pytest.mark.parametrize("values", [[0.1], [], [0.1, math.nan], np.ones((1, 2)), [0.1, math.inf]])
def test_an_interval_needs_repeats_that_are_numbers(values):
    with pytest.raises(ProtocolError, match="at least 2 finite repeats"):
        student_t_interval(values)


@given(st.integers(0, 40), st.integers(0, 40))
def test_wilson_is_scipys_and_the_engines(successes, failures):
    trials = successes + failures
    if not trials:
        with pytest.raises(ProtocolError, match="0 of 0"):
            wilson_interval(0, 0)
        return
    interval = wilson_interval(successes, trials)
    expected = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    assert ends(interval) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert ends(interval) == acceptance.wilson_interval(successes, trials)


def test_more_successes_than_trials_are_refused():
    with pytest.raises(ProtocolError, match="got 3 of 2"):
        wilson_interval(3, 2)


def test_rows_of_a_prompt_are_summed_in_order_of_appearance():
    sums = cluster_sums([[1, 10], [2, 20], [4, 40]], ["b", "a", "b"])
    np.testing.assert_array_equal(sums, [[5, 50], [2, 20]])
    with pytest.raises(ProtocolError, match="one row of columns for each of 2 requests"):
        cluster_sums([[1.0]], ["a", "b"])


def test_a_bootstrap_of_the_mean_is_near_the_t_interval(rng):
    values = rng.normal(3, 2, 40)
    found = bootstrap_mean(values, rng, resamples=20_000)
    t = student_t_interval(values)
    assert found.estimate == pytest.approx(values.mean())
    assert ends(found) == pytest.approx(ends(t), abs=0.05)
    assert (found.num_units, found.confidence) == (40, 0.95)
    assert "20000 resamples" in found.method


def test_a_bootstrap_of_few_prompts_is_as_wide_as_the_t_interval(rng):
    # the plain percentile would be a fifth narrower
    values = rng.normal(0, 1, 8)
    found = bootstrap_mean(values, rng, resamples=20_000)
    assert found.half_width == pytest.approx(student_t_interval(values).half_width, rel=0.08)


def test_repeats_of_a_prompt_do_not_narrow_the_interval(rng):
    values = rng.normal(0, 1, 30)
    once = bootstrap_mean(values, np.random.default_rng(0), resamples=2000)
    sums = cluster_sums(
        np.stack([np.tile(values, 4), np.ones(120)], axis=1), [*map(str, range(30))] * 4
    )
    often = bootstrap(sums, lambda s: s[:, 0] / s[:, 1], np.random.default_rng(0), resamples=2000)
    assert ends(often) == pytest.approx(ends(once))
    assert often.num_units == 30


def test_the_seed_decides_and_chunks_do_not(monkeypatch):
    values = np.random.default_rng(1).normal(0, 1, 50)

    def interval(seed: int) -> Interval:
        return bootstrap_mean(values, np.random.default_rng(seed), resamples=1000)

    whole = interval(1)
    assert interval(1) == whole != interval(2)
    monkeypatch.setattr(intervals, "CHUNK_ELEMENTS", 50 * 300)  # 300, 300, 300 and 100
    assert interval(1) == whole


def test_a_ratio_is_of_sums(rng):
    tokens, seconds = rng.uniform(50, 60, 25), rng.uniform(1, 3, 25)
    found = bootstrap_ratio(tokens, seconds, rng, resamples=500)
    assert found.estimate == pytest.approx(tokens.sum() / seconds.sum())
    assert found.low < found.estimate < found.high
    with pytest.raises(ProtocolError, match=r"as many numerators as denominators, got \[25, 24\]"):
        bootstrap_ratio(tokens, seconds[1:], rng)


def test_a_gain_is_paired(rng):
    seconds = rng.lognormal(0, 1, 30)
    strict = np.stack([np.full(30, 64.0), seconds], axis=1)
    relaxed = np.stack([np.full(30, 64.0), seconds / 1.1], axis=1)
    found = bootstrap_gain(relaxed, strict, rng, resamples=500)
    # prompts differ by far more than the arms; each is 10 % faster, so there is nothing to doubt
    assert (found.estimate, *ends(found)) == pytest.approx((0.1, 0.1, 0.1))
    with pytest.raises(ProtocolError, match="the same prompts in both arms, got 29 and 30"):
        bootstrap_gain(relaxed[1:], strict, rng)


def test_a_bootstrap_needs_two_prompts_and_finite_values(rng):
    with pytest.raises(ProtocolError, match="at least 2 prompts to resample, got 1"):
        bootstrap(np.ones((1, 1)), lambda s: s[:, 0], rng)
    with pytest.raises(ProtocolError, match="a finite value in every resample, got 2 over all"):
        bootstrap_ratio([1.0, 1.0], [0.0, 1.0], rng, resamples=100)
    with pytest.raises(ProtocolError, match="got inf over all"):
        bootstrap_ratio([1.0, 1.0], [0.0, 0.0], rng, resamples=100)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_binomial_test(gained, lost):
    if gained + lost:
        expected = stats.binomtest(gained, gained + lost).pvalue
        assert mcnemar_exact(gained, lost) == pytest.approx(expected, rel=1e-9)
    assert mcnemar_exact(0, 0) == 1


def test_mcnemar_of_a_large_run_stays_a_number():
    expected = stats.binomtest(600, 1319).pvalue
    assert mcnemar_exact(600, 719) == pytest.approx(expected, rel=1e-9)


def _likeliest_z(b, c, n, delta):
    """The scalar twin: the loss rate is found by trying, not by a formula."""
    rates = np.linspace(max(0, -delta), (1 - delta) / 2, 200_001)[1:-1]
    logs = b * np.log(rates + delta) + c * np.log(rates)
    logs = logs + (n - b - c) * np.log1p(-2 * rates - delta)
    q = rates[logs.argmax()]
    return (b - c - n * delta) / math.sqrt(n * (2 * q + delta * (1 - delta)))


@pytest.mark.parametrize(
    ("b", "c", "n", "delta"),
    [(12, 5, 50, 0.05), (3, 9, 80, -0.1), (4, 4, 30, 0.3), (1, 2, 40, -0.4)],
)
def test_the_score_statistic_is_that_of_the_likeliest_rates(b, c, n, delta):
    assert float(score_z(b, c, n, delta)) == pytest.approx(_likeliest_z(b, c, n, delta), abs=1e-4)


def test_the_score_statistic_at_no_difference_is_mcnemars():
    assert float(score_z(12, 5, 50, 0.0)) == pytest.approx(7 / math.sqrt(17))
    assert float(score_z(0, 0, 50, 0.0)) == 0


@given(st.integers(0, 20), st.integers(0, 20), st.floats(-0.9, 0.9))
def test_the_score_statistic_is_antisymmetric_in_the_arms(b, c, delta):
    ours, swapped = score_z(b, c, 60, delta), score_z(c, b, 60, -delta)
    assert float(ours) == pytest.approx(-float(swapped), rel=1e-6, abs=1e-6)


def test_the_limits_are_where_the_statistic_is_z():
    differences = [1] * 12 + [-1] * 5 + [0] * 33
    interval = paired_difference_interval(differences)
    z = normal_quantile(0.95)
    assert interval.estimate == pytest.approx(7 / 50)
    assert float(score_z(12, 5, 50, interval.low)) == pytest.approx(z, rel=1e-6)
    assert float(score_z(12, 5, 50, interval.high)) == pytest.approx(-z, rel=1e-6)


def test_no_difference_seen_is_not_none_there():
    interval = paired_difference_interval([0] * 50)
    half = normal_quantile(0.95) ** 2 / (50 + normal_quantile(0.95) ** 2)
    assert ends(interval) == pytest.approx((-half, half))
    assert paired_difference_interval([0.0]).num_units == 1


def test_every_prompt_lost_stays_within_the_bounds():
    interval = paired_difference_interval([-1] * 10)
    assert interval.low == pytest.approx(-1)
    assert -1 < interval.high < -0.4


def test_partial_differences_count_as_whole_flips_of_equal_spread():
    assert effective_counts([1, -1, 1, 0]) == (2, 1, 1)
    assert effective_counts([0, 0]) == (0, 0, 1)
    gained, lost, scale = effective_counts([0.5, -0.5, 0.5, 0])
    assert (gained, lost, scale) == (2, 1, 0.5)
    whole, halves = (paired_difference_interval(np.array([1, -1, 1, 0, 0]) * f) for f in (1, 0.5))
    assert ends(halves) == pytest.approx([end / 2 for end in ends(whole)])


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_effective_counts_keep_the_sum_and_the_sum_of_squares(differences):
    d = np.round(differences, 3)
    gained, lost, scale = effective_counts(d)
    assert scale * (gained - lost) == pytest.approx(d.sum(), abs=1e-9)
    assert scale**2 * (gained + lost) == pytest.approx((d**2).sum(), abs=1e-9)
    assert gained + lost <= (d != 0).sum() + 1e-9


def test_differences_beyond_a_score_are_refused():
    with pytest.raises(ProtocolError, match=r"differences of scores from 0 to 1, got -1\.5"):
        effective_counts([0.2, -1.5])
    with pytest.raises(ProtocolError, match="at least 1 finite differences"):
        paired_difference_interval([])


@given(st.integers(0, 30), st.integers(0, 30), st.sampled_from([0.01, 0.05, 0.2]))
def test_the_test_and_the_interval_agree(gained, lost, margin):
    differences = [1] * gained + [-1] * lost + [0] * 100
    p = noninferiority_p_value(differences, margin)
    assert (p < 0.025) == (paired_difference_interval(differences).low > -margin)


def test_the_noninferiority_test_at_margin_zero_is_one_sided_mcnemar():
    p = noninferiority_p_value([1] * 12 + [-1] * 5 + [0] * 33, 0.0)
    assert p == pytest.approx(stats.norm.sf(7 / math.sqrt(17)))
