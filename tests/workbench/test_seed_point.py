"""The 25th percentile of what first mismatches cost per position."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lenity.errors import ProtocolError
from lenity.policies import policy
from lenity.policies.asd import Asd
from lenity.workbench.seed_point import SeedPoint, first_prices, quantile, seed_point
from tests.workbench.traces import by_hand, run, tiny

INF = float("inf")


def test_first_mismatches_only_and_per_position_that_remains():
    """K = 4: r / 4, r / 3 behind a match; a round without a mismatch, and one without a draft."""
    trace = by_hand(
        ((2.0, 1.0, None, None), 1),
        ((None, 1.5, 0.25, None), 2),
        ((None, None), 3),
        ((), 1),
        ((None, 0.0), 2),
        ((INF,), 1),
    )
    assert first_prices([trace]) == (0.5, 0.5, 0.0, INF)


def test_written_out():
    """Prices 1, 2, 3, 4, 6 and a tie: index 4 * .25 = 1 is 2; with four, 3 * .25 is 1.75."""
    rounds = [((price,), 1) for price in (3.0, 1.0, 6.0, 0.0, 2.0, INF, 4.0)]
    found = seed_point([by_hand(*rounds)])
    assert found == SeedPoint(budget=2.0, gate=2.0, num_positive=5, num_first=7)
    assert found.policy == "asd:budget=2,gate=2,block_cap=1"
    four = seed_point([by_hand(*[((price,), 1) for price in (1.0, 2.0, 3.0, 4.0)])])
    assert four.budget == four.gate == 1.75
    assert policy(four.policy) == Asd(budget=1.75, gate=1.75, block_cap=1)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=9), st.floats(0, 1))
def test_the_quantile_is_linear_between_order_statistics(values, level):
    ordered, at = sorted(values), (len(values) - 1) * level
    low = int(at)
    high = min(low + 1, len(values) - 1)
    expected = ordered[low] + (at - low) * (ordered[high] - ordered[low])
    assert quantile(values, level) == pytest.approx(expected, abs=1e-12)


def test_a_run_gives_a_rule_that_relaxes_something():
    prompts = [[t] for t in range(12)]
    _, traces = run(tiny(noise=0.5), prompts, gamma=4, max_new_tokens=24)
    found = seed_point(traces)
    assert 0 < found.num_positive <= found.num_first
    outs, _ = run(tiny(found.policy, noise=0.5), prompts, gamma=4, max_new_tokens=24)
    assert sum(out.num_relaxed for out in outs) > 0
    assert all(out.regret_spent <= found.budget + 1e-6 for out in outs)


@pytest.mark.parametrize("rounds", [[((None,), 2)], [((0.0,), 1), ((INF,), 1)]])
def test_nothing_to_read_it_off_is_said(rounds):
    with pytest.raises(ProtocolError, match="first mismatches with a regret above 0"):
        seed_point([by_hand(*rounds)])


def test_a_relaxed_run_is_no_place_to_read_it_off():
    with pytest.raises(ProtocolError, match="strict run at temperature 0 for a seed point"):
        seed_point([by_hand(((1.0,), 1), policy="asd")])
