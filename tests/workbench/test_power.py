import math

import numpy as np
import pytest
from scipy import stats

from lenity.errors import ProtocolError
from lenity.workbench import power
from lenity.workbench.intervals import paired_difference_interval, score_z
from lenity.workbench.power import (
    exact_noninferiority_p_value,
    noninferiority_power,
    prompts_needed,
    prompts_needed_for_mean,
)


def _power_by_hand(n, margin, gain, loss):
    """Every pair of counts, its chance by scipy, its verdict by the interval."""
    total = 0.0
    for b in range(n + 1):
        for c in range(n + 1 - b):
            chance = stats.multinomial.pmf([b, c, n - b - c], n, [gain, loss, 1 - gain - loss])
            differences = [1] * b + [-1] * c + [0] * (n - b - c)
            if chance > 1e-12 and paired_difference_interval(differences).low > -margin:
                total += chance
    return total


@pytest.mark.parametrize(("discordance", "difference"), [(0.3, 0.0), (0.2, -0.1), (0.1, 0.1)])
def test_power_is_the_chance_of_the_verdict(discordance, difference):
    gain, loss = (discordance + difference) / 2, (discordance - difference) / 2
    expected = _power_by_hand(24, 0.3, gain, loss)
    found = noninferiority_power(24, 0.3, discordance, difference=difference)
    assert found == pytest.approx(expected, abs=1e-8)


def test_power_without_discordance_is_all_or_nothing():
    # z^2 / (n + z^2) < 1 % from 381 prompts on
    assert noninferiority_power(380, 0.01, 0.0) == 0
    assert noninferiority_power(381, 0.01, 0.0) == 1
    assert prompts_needed(0.01, 0.0).prompts == 381


def test_the_normal_law_takes_over_smoothly(monkeypatch):
    exact = noninferiority_power(5000, 0.02, 0.3)
    monkeypatch.setattr(power, "MAX_CELLS", 10)
    assert noninferiority_power(5000, 0.02, 0.3) == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize(
    ("margin", "discordance", "difference"),
    [(0.05, 0.1, 0.0), (0.02, 0.05, 0.005), (0.05, 0.1, -0.02), (0.01, 0.01, 0.0), (0.3, 1.0, 0.0)],
)
def test_the_prompts_printed_have_the_power_printed(margin, discordance, difference):
    needed = prompts_needed(margin, discordance, difference=difference)
    found = noninferiority_power(needed.prompts, margin, discordance, difference=difference)
    assert needed.power == found >= 0.8
    # one in eight fewer are not enough
    fewer = int(needed.prompts * 0.87)
    assert noninferiority_power(fewer, margin, discordance, difference=difference) < 0.8


def test_more_of_anything_that_helps_needs_fewer_prompts():
    base = prompts_needed(0.05, 0.2).prompts
    assert prompts_needed(0.06, 0.2).prompts < base < prompts_needed(0.05, 0.25).prompts
    assert prompts_needed(0.05, 0.2, difference=0.01).prompts < base
    assert base < prompts_needed(0.05, 0.2, power=0.9).prompts
    assert prompts_needed(0.05, 0.2, confidence=0.9).prompts < base


def test_a_true_loss_of_the_margin_is_never_shown_to_be_less():
    needed = prompts_needed(0.01, 0.1, difference=-0.01)
    assert (needed.prompts, needed.power) == (None, 0)
    assert needed.words.startswith("No number of prompts shows a margin of 0.01")
    assert prompts_needed_for_mean(0.1, 1.0, difference=-0.2).prompts is None


def test_the_words_carry_every_assumption():
    assert prompts_needed(0.05, 0.1).words == (
        "339 prompts show a margin of 0.05 at a difference of 0 and discordance of 0.1 with a "
        "power of 80%."
    )
    assert "variance of 0.04 with" in prompts_needed_for_mean(0.1, 0.2).words


def test_prompts_for_a_mean_are_those_of_the_textbook():
    z = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    expected = math.ceil((z * 2 / 0.5) ** 2 + stats.norm.ppf(0.975) ** 2 / 2)
    needed = prompts_needed_for_mean(0.5, 2.0)
    assert (needed.prompts, needed.basis, needed.discordance) == (expected, "variance", 4)
    # the power of the t test with so many, from the noncentral law
    shift, df = 0.5 / 2 * math.sqrt(expected), expected - 1
    assert stats.nct.sf(stats.t.ppf(0.975, df), df, shift) == pytest.approx(0.8, abs=0.01)


def test_the_exact_p_value_is_the_worst_over_loss_rates():
    n, margin = 20, 0.2
    seen = float(score_z(3, 4, n, -margin))
    worst = 0.0
    for loss in np.linspace(margin, (1 + margin) / 2, 40):
        rates = [max(loss - margin, 0.0), loss]
        chance = sum(
            stats.multinomial.pmf([b, c, n - b - c], n, [*rates, max(0.0, 1 - sum(rates))])
            for b in range(n + 1)
            for c in range(n + 1 - b)
            if float(score_z(b, c, n, -margin)) > seen - 1e-9
        )
        worst = max(worst, chance)
    found = exact_noninferiority_p_value(3, 4, n, margin)
    assert found == pytest.approx(worst, rel=0.02)


def test_the_score_test_keeps_its_level():
    # at a true loss of exactly the margin, "non-inferior" comes out in about 2.5 %
    for n in (50, 200, 400, 565, 1319):
        for discordance in (0.05, 0.06, 0.1, 0.4):
            assert noninferiority_power(n, 0.05, discordance, difference=-0.05) < 0.027


@pytest.mark.parametrize(
    "arguments", [(0.0, 0.1, 0.0), (1.0, 0.1, 0.0), (0.1, 0.1, 0.2), (0.1, 1.1, 0.0)]
)
def test_rates_that_are_none_are_refused(arguments):
    margin, discordance, difference = arguments
    with pytest.raises(ProtocolError, match=r"\|difference\| <= discordance <= 1"):
        prompts_needed(margin, discordance, difference=difference)


def test_a_mean_needs_a_margin_and_a_spread():
    with pytest.raises(ProtocolError, match="margin > 0 and spread >= 0"):
        prompts_needed_for_mean(0.0, 1.0)
