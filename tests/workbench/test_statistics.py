"""The statistics themselves, on simulated data with a known truth.

Coverage: of 2,000 intervals drawn, 95 +- 1.5 % hold it (three standard errors of a share of 2,000).
A/A: strict against strict under another name is "inferior" or "faster" in at most 5 % of 200.
Power: with an effect planted, the printed number of prompts gives the printed chance.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest

from lenity.workbench.gates import decide, text_gates
from lenity.workbench.intervals import (
    Interval,
    bootstrap,
    bootstrap_gain,
    bootstrap_mean,
    bootstrap_ratio,
    cluster_sums,
    effective_counts,
    paired_difference_interval,
    score_limits,
    student_t_interval,
    wilson_interval,
)
from lenity.workbench.pairing import Pairs
from lenity.workbench.power import prompts_needed, prompts_needed_for_mean
from lenity.workbench.records import SampleRecord
from lenity.workbench.triplets import make_triplets, prompt_gain
from lenity.workbench.verdicts import (
    Quality,
    Speed,
    judge_logprobs,
    judge_quality,
    judge_speed,
)
from tests.workbench.handmade import a_round, scored, timed

DRAWS = 2_000
AUDITS = 200
RESAMPLES = 500
"""Of a bootstrap here: fewer than in a report, for 2,000 of them."""

Draw = Callable[[np.random.Generator], tuple[Interval, float]]
"""One simulated measurement: its interval, and what is true."""


def test_judging_runs_loads_neither_torch_nor_scipy():
    names = "comparable divergence gates intervals metrics pareto power repetition triplets"
    modules = ", ".join(f"lenity.workbench.{name}" for name in names.split())
    probe = f"import sys, {modules}; print(*{{'torch', 'scipy'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# ---- coverage


def a_gain_over_repeats(rng):
    return student_t_interval(rng.normal(0.08, 0.01, 4)), 0.08


def a_proportion(rng):
    truth = rng.uniform(0.2, 0.8)
    return wilson_interval(int(rng.binomial(150, truth)), 150), truth


def _repeats(rng, num_prompts):
    """Differences of 4 repeats of each prompt: relaxing helps one half of the prompts and hurts
    the other, a mean loss of 2 points."""
    solved = rng.uniform(0.3, 0.7, (num_prompts, 1))
    hurt = 0.02 + rng.choice([-0.28, 0.28], (num_prompts, 1))
    strict, relaxed = rng.random((2, num_prompts, 4))
    return (relaxed < solved - hurt).astype(float) - (strict < solved)


def clustered_scores_resampled(rng):
    differences = _repeats(rng, 40)
    rows = np.stack([differences.ravel(), np.ones(differences.size)], axis=1)
    sums = cluster_sums(rows, [prompt for prompt in range(40) for _ in range(4)])
    made = bootstrap(sums, lambda s: s[:, 0] / s[:, 1], rng, resamples=RESAMPLES)
    return made, -0.02


def log_probabilities(rng):
    prompts = rng.gamma(4, 0.005, 30)  # skewed: most texts lose little, some much
    return bootstrap_mean(-prompts, rng, resamples=RESAMPLES), -0.02


def throughput(rng):
    tokens = rng.integers(100, 257, 40).astype(float)
    seconds = tokens / 50 * rng.lognormal(-0.02, 0.2, 40)  # of mean 1 whatever the length
    return bootstrap_ratio(tokens, seconds, rng, resamples=RESAMPLES), 50.0


def gain_at_fixed_work(rng):
    hard = rng.lognormal(0, 0.4, 40)  # seconds that both arms share
    strict = hard * rng.lognormal(0, 0.03, 40)
    relaxed = hard * rng.lognormal(0, 0.03, 40) * rng.uniform(0.8, 1.0, 40)
    tokens = np.full(40, 256.0)
    tables = np.stack([tokens, relaxed], axis=1), np.stack([tokens, strict], axis=1)
    return bootstrap_gain(*tables, rng, resamples=RESAMPLES), 1 / 0.9 - 1


@pytest.mark.parametrize(
    "draw",
    [
        a_gain_over_repeats,
        a_proportion,
        clustered_scores_resampled,
        log_probabilities,
        throughput,
        gain_at_fixed_work,
    ],
    ids=lambda draw: draw.__name__,
)
def test_intervals_cover_as_often_as_they_say(draw: Draw, seed):
    rng = np.random.default_rng(seed)
    hits = 0
    for _ in range(DRAWS):
        interval, truth = draw(rng)
        hits += interval.low <= truth <= interval.high
    assert covers(hits / DRAWS)


def covers(share: float) -> bool:
    """Whether a share of 2,000 intervals is 95 +- 1.5 %."""
    return abs(share - 0.95) <= 0.015


def flips(rng, gain: float, loss: float, prompts: int, draws: int = DRAWS) -> np.ndarray:
    """Differences of whole scores, a row a draw."""
    return rng.choice([1.0, -1.0, 0.0], (draws, prompts), p=[gain, loss, 1 - gain - loss])


def limits(differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both limits of paired_difference_interval for every row, in one go."""
    gained, lost, scale = np.array([effective_counts(row) for row in differences]).T
    low, high = score_limits(gained, lost, differences.shape[1])
    some = paired_difference_interval(differences[7])
    assert (some.low, some.high) == pytest.approx((scale[7] * low[7], scale[7] * high[7]))
    return scale * low, scale * high


def within(limits: tuple[np.ndarray, np.ndarray], truth: float) -> float:
    return float(((limits[0] <= truth) & (truth <= limits[1])).mean())


@pytest.mark.parametrize(("gain", "loss", "prompts"), [(0.06, 0.1, 200), (0.02, 0.02, 1319)])
def test_the_interval_of_flips_covers_as_often_as_it_says(gain, loss, prompts, seed):
    rng = np.random.default_rng(seed)
    assert covers(within(limits(flips(rng, gain, loss, prompts)), gain - loss))


def test_the_interval_of_repeated_prompts_covers_as_often_as_it_says(seed):
    rng = np.random.default_rng(seed)
    repeated = np.stack([_repeats(rng, 60) for _ in range(DRAWS)])
    assert covers(within(limits(repeated.mean(axis=2)), -0.02))
    # negative control: repeats taken for prompts of their own
    assert within(limits(repeated.reshape(DRAWS, -1)), -0.02) < 0.935


def test_the_interval_of_rare_flips_errs_on_the_wide_side(seed):
    # three flips expected: limits are coarse, and a bootstrap of them covers three in four
    rng = np.random.default_rng(seed)
    rare = flips(rng, 0.0, 0.03, 100)
    assert within(limits(rare), -0.03) >= 0.935
    made = [bootstrap_mean(row, rng, resamples=200) for row in rare[:200]]
    assert np.mean([i.low <= -0.03 <= i.high for i in made]) < 0.97


# ---- strict against strict


def texts(rng, name: str, prompts: int, repeats: int, solved: np.ndarray) -> list[SampleRecord]:
    """Natural-EOS requests: scored, some cut off, some going in circles."""
    made = []
    for prompt in range(prompts):
        for repeat in range(repeats):
            is_cut, is_loop = rng.random(2) < (0.1, 0.1)
            ids = rng.integers(0, 1000, rng.integers(12, 36))
            if is_loop:
                ids[6:] = 7
            logprobs = rng.normal(-1 - solved[prompt], 0.2, len(ids))
            made.append(
                SampleRecord(
                    arm=name,
                    repeat=repeat,
                    task="toy@1",
                    item_id=str(prompt),
                    token_ids=tuple(ids.tolist()),
                    kinds="p" * len(ids),
                    logprobs=tuple(logprobs.tolist()),
                    rounds=(a_round("p", 0, emitted=len(ids)),),
                    finish_reason="length" if is_cut else "stop",
                    score=float(rng.random() < solved[prompt]),
                )
            )
    return made


def runs(rng, gain: float, prompts: int, repeats: int = 4) -> list[SampleRecord]:
    """Fixed work on a machine whose speed wanders by about 1 %."""
    made = []
    hard = rng.lognormal(0, 0.4, prompts)
    for repeat in range(repeats):
        for name, faster in (("strict-a", 1), ("relaxed", 1 + gain), ("strict-b", 1)):
            pace = rng.lognormal(0, 0.01) / faster
            noise = rng.lognormal(0, 0.02, prompts)
            for item, seconds in enumerate(hard * pace * noise):
                made.append(timed(float(seconds), 1, arm=name, item_id=str(item), repeat=repeat))
    return made


def audit(rng, gain: float = 0.0, prompts: int = 24, repeats: int = 1):
    """One audit as it is run: both arms obey one law, but for a gain in speed."""
    solved = rng.uniform(0.2, 0.9, prompts)
    pairs = Pairs.of(*(texts(rng, name, prompts, repeats, solved) for name in ("strict", "again")))
    quality = judge_quality(pairs, rng, resamples=RESAMPLES)
    logprobs = judge_logprobs(pairs, rng, resamples=RESAMPLES)
    gates = text_gates(pairs, rng, resamples=RESAMPLES)
    records = runs(rng, gain, prompts=6)
    triplets = make_triplets(records, "relaxed")
    over_prompts = None
    if triplets.kept:
        over_prompts = prompt_gain(records, triplets, "relaxed", rng, resamples=RESAMPLES)
    speed = judge_speed(triplets, over_prompts)
    return quality, logprobs, speed, decide(quality, gates, speed)


def check_a_against_a(rng, **settings):
    audits = [audit(rng, **settings) for _ in range(AUDITS)]
    quality, logprobs, speed, decisions = zip(*audits, strict=True)
    is_inferior = np.array([v.outcome is Quality.INFERIOR for v in quality])
    is_faster = np.array([v.outcome is Speed.FASTER for v in speed])
    assert (is_inferior | is_faster).mean() <= 0.05
    assert np.mean([v.is_worse for v in quality]) <= 0.05
    assert np.mean([v.outcome is Quality.INFERIOR for v in logprobs]) <= 0.05
    assert np.mean([v.is_worse for v in logprobs]) <= 0.05
    assert np.mean([v.outcome is Speed.SLOWER for v in speed]) <= 0.05
    # six gates share these 5 %, and come close to them: not more, within three standard errors
    assert np.mean([d.outcome == "rejected" for d in decisions]) <= 0.05 + 3 * sqrt(0.0475 / AUDITS)
    # most triplets count, so that silence is not for want of them
    assert sum(len(v.triplets.kept) for v in speed) > 0.8 * 4 * AUDITS


def test_strict_against_strict_is_seldom_called_inferior_or_faster(seed):
    check_a_against_a(np.random.default_rng(seed))


@pytest.mark.slow
@pytest.mark.parametrize(("prompts", "repeats"), [(300, 1), (100, 3)])
def test_strict_against_strict_on_larger_audits(prompts, repeats, seed):
    check_a_against_a(np.random.default_rng(seed), prompts=prompts, repeats=repeats)


# ---- effects planted


def near(share: float, expected: float, draws: int) -> bool:
    """Whether a share of draws is within three standard errors."""
    return abs(share - expected) <= 3 * sqrt(expected * (1 - expected) / draws)


@pytest.mark.parametrize(
    ("margin", "discordance", "difference"),
    [(0.05, 0.1, 0.0), (0.05, 0.12, -0.02), (0.02, 0.03, 0.0)],
)
def test_the_prompts_printed_give_the_power_printed(margin, discordance, difference, seed):
    needed = prompts_needed(margin, discordance, difference=difference)
    rates = (discordance + difference) / 2, (discordance - difference) / 2
    low, _ = limits(flips(np.random.default_rng(seed), *rates, needed.prompts))
    assert near(float((low > -margin).mean()), needed.power, DRAWS)


def test_a_quality_verdict_has_the_power_printed(seed):
    rng, margin, audits = np.random.default_rng(seed), 0.3, 200
    needed = prompts_needed(margin, 0.2, difference=-0.1)
    rows = flips(rng, 0.05, 0.15, needed.prompts, audits)
    verdicts = [
        judge_quality(scored(row < 0, row > 0), rng, margin=margin, resamples=2) for row in rows
    ]
    share = np.mean([verdict.outcome is Quality.NON_INFERIOR for verdict in verdicts])
    assert near(float(share), needed.power, audits)


def test_a_log_probability_verdict_has_the_power_printed(seed):
    rng = np.random.default_rng(seed)
    needed = prompts_needed_for_mean(0.02, 0.04)
    made = [
        bootstrap_mean(rng.normal(0, 0.04, needed.prompts), rng, resamples=RESAMPLES)
        for _ in range(DRAWS)
    ]
    # the formula takes the normal law and rounds up: good to two points
    assert np.mean([interval.low > -0.02 for interval in made]) == pytest.approx(0.8, abs=0.03)


def test_a_loss_and_a_gain_planted_are_found(seed):
    rng = np.random.default_rng(seed)
    lossy = flips(rng, 0.02, 0.22, 200, 1)[0]
    verdict = judge_quality(scored(lossy < 0, lossy > 0), rng, margin=0.05, resamples=2)
    assert verdict.outcome is Quality.INFERIOR
    speeds = [audit(rng, gain=0.08, prompts=20)[2].outcome for _ in range(10)]
    assert speeds.count(Speed.FASTER) >= 8
