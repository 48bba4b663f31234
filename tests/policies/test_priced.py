"""The priced prefix against the enumeration of every prefix."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lenity.errors import ConfigError
from lenity.ledger import to_units
from lenity.policies import policy
from lenity.policies.asd import Asd
from lenity.policies.priced import Priced
from lenity.types import UNITS_PER_NAT
from tests.policies.blocks import INF, blocks, caps, flags, nats, regrets, stack
from tests.reference.priced import price_now, priced


def accepted(rule, *nats, spent=0):
    return int(regrets(*nats).verify(rule, spent=[spent]).accepted_length)


def test_an_exception_is_worth_the_exact_tokens_behind_it():
    """One nat buys the token itself and the n exact ones behind it: 1 + n tokens."""
    rule = Priced(budget=8, price=2.5)
    assert accepted(rule, 1.0, None, None) == 3
    assert accepted(rule, 1.0, None, 9.0) == 0
    assert accepted(rule, 1.0) == 0
    assert accepted(Priced(budget=8, price=0.5), 1.0) == 1


def test_a_dear_exception_is_paid_for_by_what_comes_later():
    """t - C: 0, 0, -1, 0, 1, 2: the fifth token makes up for the second mismatch."""
    rule = Priced(budget=8, price=1)
    assert accepted(rule, 1.0, 2.0, None, None, None) == 5
    assert accepted(rule, 1.0, 2.0, None) == 0


def test_ties_go_to_the_smaller_cost():
    """Gain 1 at t = 1 (free) and at t = 3 (2 tokens for 2 nats): the free prefix is kept."""
    assert accepted(Priced(budget=8, price=1), None, 2.0, None) == 1
    assert accepted(Priced(budget=8, price=0.875), None, 2.0, None) == 3


def test_infinite_price_accepts_what_is_free():
    rule = Priced(budget=8, price=INF)
    assert accepted(rule, 0.0, None, 0.125, None) == 2
    assert accepted(rule, 2**-20, None) == 0  # one unit is not free
    assert accepted(Priced(budget=0, price=INF), 0.0, None) == 0


def test_pacing_raises_the_price_as_the_budget_goes():
    """price(z) = 0.5 * 8^z: 0.5, 2 at two thirds, 4 at the end (Zhou et al. 2008)."""
    rule = Priced(budget=6, price=0.5, price_max=4)
    two_thirds = 4 * UNITS_PER_NAT
    assert accepted(rule, 1.0) == 1
    assert accepted(rule, 1.0, spent=two_thirds) == 0
    assert accepted(rule, 1.0, None, spent=two_thirds - 1000) == 2
    assert accepted(rule, 1.0, None, spent=two_thirds + 1000) == 0
    assert accepted(rule, 0.25, spent=6 * UNITS_PER_NAT - UNITS_PER_NAT // 4 - 1000) == 1
    assert accepted(rule, 0.0, spent=7 * UNITS_PER_NAT) == 0  # overspent: not even a tie
    assert accepted(Priced(budget=INF, price=0.5, price_max=4), 1.0, spent=two_thirds) == 1


def test_rows_pay_their_own_price():
    rule = Priced(budget=8, price=0.5, price_max=4)
    batch = stack(regrets(1.0), regrets(1.0), regrets(1.0, None, None))
    spent = [0, 4 * UNITS_PER_NAT, 4 * UNITS_PER_NAT]
    assert batch.verify(rule, spent=spent).accepted_length.tolist() == [1, 0, 3]


def test_the_gate_divides_by_the_rows_own_remaining_length():
    batch = stack(regrets(1.0, None, None, None), regrets(1.0, None), regrets(0.5, None))
    rule = Priced(budget=8, price=0, gate=0.25)
    assert batch.verify(rule).accepted_length.tolist() == [4, 0, 2]
    assert accepted(rule, None, None, None, 0.5) == 3
    assert accepted(rule, None, None, 0.5, None) == 4
    assert batch.verify(Priced(budget=8, price=0, gate=INF)).accepted_length.tolist() == [4, 2, 2]


def test_the_balance_is_made_in_float64():
    """32 - 2^-20 nats buy two tokens at 1/16; in float32 the last unit would be lost to a tie."""
    assert accepted(Priced(budget=INF, price=1 / 16), 16.0, 16 - 2**-20) == 2
    assert accepted(Priced(budget=INF, price=0, gate=0.1), 0.1) == 0
    rule = Priced(budget=128, price=1, price_max=4)
    assert accepted(rule, 1.0, None, spent=64 * UNITS_PER_NAT - 1) == 2
    assert accepted(rule, 1.0, None, spent=64 * UNITS_PER_NAT) == 0


def test_the_cap_counts_exceptions():
    rule = Priced(budget=8, price=0, block_cap=1)
    assert accepted(rule, None, 0.5, None, 0.5, None) == 3
    assert accepted(Priced(budget=8, price=0, block_cap=0), 0.0) == 0


@pytest.mark.parametrize("budget", [INF, 1e300])
def test_an_unlimited_budget_outlives_every_spending(budget):
    assert accepted(Priced(budget=budget, price=0), 1e6, 3.0, None, 1e30, spent=1 << 60) == 4


@pytest.mark.parametrize("knobs", ["price=0,price_max=1", "price=2,price_max=1", "price_max=inf"])
def test_pacing_without_a_range_is_refused(knobs):
    with pytest.raises(ConfigError, match="pacing needs 0 < price <= price_max < inf"):
        policy(f"priced:{knobs}")


def test_pacing_may_be_flat():
    rule = Priced(budget=8, price=0.5, price_max=0.5)
    assert accepted(rule, 1.0, spent=7 * UNITS_PER_NAT) == 1


constant = st.fixed_dictionaries(
    {
        "budget": nats | st.just(INF),
        "price": st.integers(0, 40).map(lambda steps: steps / 8) | st.just(INF),
        "block_cap": caps,
        "gate": st.none() | nats | st.just(INF),
    }
)
paced = st.fixed_dictionaries(
    {
        "budget": nats | st.just(INF),
        "price": st.floats(0.1, 1),
        "price_max": st.floats(1, 10),
        "block_cap": caps,
    }
)
spendings = st.integers(0, 2 * UNITS_PER_NAT) | st.integers(0, 16).map(lambda n: n << 17)


@settings(max_examples=250)
@given(st.data(), blocks(), constant | paced)
def test_equals_the_enumeration(data, block, knobs):
    may_relax = flags(data.draw, block)
    spent = [data.draw(spendings) for _ in block.batch]
    verdict = block.verify(Priced(**knobs), spent=spent, may_relax=may_relax)
    charged = (to_units(block.scores.regret) * verdict.is_relaxed).sum(-1)
    for b in block.batch:
        best, units = priced(
            block.rows(b),
            block.tokens(b),
            spent_units=spent[b],
            may_relax=may_relax and may_relax[b],
            **knobs,
        )
        assert (int(verdict.accepted_length[b]), int(charged[b])) == (best, units)


@given(blocks(), nats | st.just(INF), caps, spendings)
def test_price_zero_is_asd_without_a_gate(block, budget, cap, spent):
    spent = [spent] * len(block.batch)
    free = block.verify(Priced(budget=budget, price=0, block_cap=cap), spent=spent)
    longest = block.verify(Asd(budget=budget, gate=INF, block_cap=cap), spent=spent)
    assert free.accepted_length.tolist() == longest.accepted_length.tolist()


@given(blocks(), constant, st.integers(0, 16).map(lambda steps: steps / 8))
def test_grows_with_budget_and_cap_and_shrinks_with_price(block, knobs, more):
    rule = Priced(**knobs)
    accepted = block.verify(rule).accepted_length
    cap = None if rule.block_cap is None else rule.block_cap + int(8 * more)
    for wider in ({"budget": rule.budget + more}, {"block_cap": cap}):
        assert (block.verify(rule.model_copy(update=wider)).accepted_length >= accepted).all()
    dearer = rule.model_copy(update={"price": rule.price + more})
    assert (block.verify(dearer).accepted_length <= accepted).all()


@given(blocks(), paced, st.integers(0, 2 * UNITS_PER_NAT))
def test_pacing_is_a_constant_price_read_off_the_ledger(block, knobs, spent):
    assume(spent <= knobs["budget"] * UNITS_PER_NAT and knobs["budget"] > 0)
    now = price_now(knobs["price"], knobs["price_max"], knobs["budget"], spent)
    assert knobs["price"] <= now * (1 + 1e-12)
    assert now <= knobs["price_max"] * (1 + 1e-12)
    flat = Priced(budget=knobs["budget"], price=now, block_cap=knobs["block_cap"])
    spent = [spent] * len(block.batch)
    paced = block.verify(Priced(**knobs), spent=spent).accepted_length
    assert paced.tolist() == block.verify(flat, spent=spent).accepted_length.tolist()


def test_padding_is_free_of_price_and_reward():
    """The padding's argmax tokens would make the exception worth its nat."""
    batch = stack(regrets(1.0), regrets(*[None] * 5))
    assert batch.verify(Priced(budget=8, price=1.5)).accepted_length.tolist() == [0, 5]
