"""Regret in integers of 2^-20 nat: exact, order-free, and never overflowing."""

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lenity.ledger import UNLIMITED_UNITS, Ledger, budget_units, nats_to_units, to_nats, to_units
from lenity.types import UNITS_PER_NAT

UNIT = 1 / UNITS_PER_NAT
INF = float("inf")


@pytest.mark.parametrize(
    ("nats", "units"),
    [
        (0.0, 0),
        (UNIT, 1),
        (0.49 * UNIT, 0),
        (0.51 * UNIT, 1),
        (1.5 * UNIT, 2),
        (1.0, 1 << 20),
        (0.1, 104858),
        (2.0**30, 1 << 50),
        (2.0**31, 1 << 50),
        (INF, 1 << 50),
        (-1e-9, 0),
    ],
)
def test_regret_becomes_the_nearest_unit(nats, units):
    got = to_units(torch.tensor([nats], dtype=torch.float64))
    assert got.tolist() == [units] == [nats_to_units(nats)]
    assert got.dtype == torch.int64


@given(st.floats(0, 2.0**40, width=32))
def test_the_host_and_the_device_round_alike(nats):
    assert to_units(torch.tensor([nats])).item() == nats_to_units(nats)


@given(st.floats(0, 1000, width=32))
def test_rounding_errs_by_half_a_unit_at_most(nats):
    """At most 2^-21 nat, from float32 as from float64."""
    units = int(to_units(torch.tensor(nats)))
    assert abs(to_nats(units) - nats) <= UNIT / 2
    assert units == round(nats * UNITS_PER_NAT)
    assert to_units(torch.tensor([nats, nats]))[1] == units


def test_a_shape_is_kept_and_the_input_left_alone():
    regret = torch.tensor([[0.5, INF], [0.0, 1.0]])
    before = regret.clone()
    assert to_units(regret).shape == (2, 2)
    assert torch.equal(regret, before)
    regret = regret.double()
    to_units(regret)
    assert torch.equal(regret, before.double())


@given(st.lists(st.floats(0, 50, width=32), max_size=30))
def test_sums_do_not_depend_on_order(regrets):
    shuffled = list(regrets)
    random.Random(1).shuffle(shuffled)
    one, other = Ledger(), Ledger()
    one.open_row()
    other.open_row()
    for nats in regrets:
        one.charge(0, int(to_units(torch.tensor(nats))))
    for nats in shuffled:
        other.charge(0, int(to_units(torch.tensor(nats))))
    assert one.spent(0) == other.spent(0)
    assert one.spent(0) == int(to_units(torch.tensor(regrets)).sum())


def test_a_block_of_masked_tokens_does_not_overflow():
    units = to_units(torch.full((4096,), INF)).cumsum(-1)
    assert (units > 0).all()
    assert units[-1] <= UNLIMITED_UNITS


@pytest.mark.parametrize(
    ("budget", "units"),
    [
        (0.0, 0),
        (8.0, 8 << 20),
        (0.1, 104858),
        (0.6 * UNIT, 1),
        (INF, UNLIMITED_UNITS),
        (1e300, UNLIMITED_UNITS),
        (2.0**42, UNLIMITED_UNITS),
        (2.0**41, UNLIMITED_UNITS // 2),
    ],
)
def test_budgets_become_units(budget, units):
    assert budget_units(budget) == units
    assert torch.tensor(budget_units(budget)).dtype == torch.int64


def test_units_become_nats():
    assert to_nats(3 << 19) == 1.5
    assert math.isclose(to_nats(budget_units(0.1)), 0.1, abs_tol=UNIT / 2)


def test_rows_open_at_zero_are_charged_and_leave():
    ledger = Ledger()
    assert len(ledger) == 0
    assert ledger.spent_units().tolist() == []
    for _ in range(3):
        ledger.open_row()
    ledger.charge(0, 5)
    ledger.charge(2, 7)
    ledger.charge(2, 1)
    assert ledger.spent_units().tolist() == [5, 0, 8]
    assert ledger.spent_units().dtype == torch.int64
    ledger.keep([2, 0])
    assert [ledger.spent(row) for row in range(len(ledger))] == [8, 5]
    ledger.open_row()
    assert ledger.spent_units("cpu").tolist() == [8, 5, 0]
    ledger.keep(row for row in (2,))
    assert ledger.spent_units().tolist() == [0]


def test_what_is_handed_out_is_a_copy():
    ledger = Ledger()
    ledger.open_row()
    ledger.spent_units().add_(9)
    assert ledger.spent(0) == 0


def test_nothing_is_ever_given_back():
    ledger = Ledger()
    ledger.open_row()
    with pytest.raises(AssertionError):
        ledger.charge(0, -1)
    assert ledger.spent(0) == 0
