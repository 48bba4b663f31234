"""Logits to a law to a token: filters, draws, and coins that belong to nobody else."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import ValidationError

from lenity.sampling import (
    Coins,
    Purpose,
    Sampling,
    draw,
    greedy,
    point_mass,
    probabilities,
)
from tests.reference import filters

INF = float("inf")
LAST_COIN = 1 - 2**-53
"""The largest coin there is."""


def law(logits, **knobs):
    return probabilities(torch.tensor(logits), Sampling(**({"temperature": 1.0} | knobs))).tolist()


def logs(*shares):
    return [float(np.log(share)) if share else -INF for share in shares]


# Laws

knobs = st.fixed_dictionaries(
    {
        "temperature": st.just(0.0) | st.floats(0.2, 3),
        "top_k": st.none() | st.integers(1, 9),
        "top_p": st.none() | st.floats(0.05, 1),
        "min_p": st.none() | st.floats(0, 1),
    }
)
tables = st.tuples(st.integers(1, 3), st.integers(1, 7)).flatmap(
    lambda shape: arrays(
        np.float32, shape, elements=st.integers(-3, 24).map(lambda n: -INF if n < -1 else n / 4)
    ).filter(lambda table: np.isfinite(table).any(axis=1).all())
)


@given(tables, knobs)
def test_equals_the_scalar_law(table, knobs):
    """Cases where a token sits on a filter's edge within rounding are left out."""
    wanted, margins = zip(*(filters.probabilities(row, **knobs) for row in table), strict=True)
    assume(min(margins) > 1e-5)
    got = probabilities(torch.from_numpy(table), Sampling(**knobs)).numpy()
    assert got.dtype == np.float32
    assert ((got > 0) == (np.array(wanted) > 0)).all()
    np.testing.assert_allclose(got, np.array(wanted), atol=2e-6)


@given(tables, knobs)
def test_a_law_sums_to_one_and_spares_masked_tokens(table, knobs):
    probs = probabilities(torch.from_numpy(table), Sampling(**knobs))
    assert torch.allclose(probs.sum(-1), torch.ones(len(table)))
    assert (probs[torch.from_numpy(table) == -INF] == 0).all()
    assert (probs.argmax(-1) == greedy(torch.from_numpy(table))).all()


def test_temperature_zero_is_the_first_argmax_whatever_the_filters():
    assert law([1.0, 3.0, 3.0], temperature=0.0) == [0, 1, 0]
    assert law([1.0, 3.0, 3.0], temperature=0.0, top_k=1, top_p=0.1, min_p=1) == [0, 1, 0]
    assert greedy(torch.tensor([[2.0, 2.0], [1.0, 2.0]])).tolist() == [0, 1]


BF16_VALUES = (-INF, -3.0, -1.0, -0.0, 0.0, 1e-30, 0.5, 1.0, 2.0, 2.015625, INF)
"""Neighbours, both zeros, a denormal-like small one and the infinities: ties are frequent."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@given(rows=st.lists(st.lists(st.sampled_from(BF16_VALUES), min_size=5, max_size=5), max_size=4))
def test_greedy_is_the_first_of_the_largest_in_any_dtype(rows, dtype):
    logits = torch.tensor(rows, dtype=dtype).reshape(-1, 5)
    wanted = [row.index(max(row)) for row in logits.tolist()]
    assert greedy(logits).tolist() == wanted
    assert greedy(logits.mT.contiguous().mT).tolist() == wanted


def test_greedy_takes_any_shape_and_logits_that_have_a_gradient():
    logits = torch.tensor([[[1.0, 4.0], [3.0, 2.0]]], dtype=torch.bfloat16, requires_grad=True)
    assert greedy(logits).tolist() == [[1, 0]]
    assert greedy(logits[0, 0]).item() == 1


def test_temperature_divides():
    assert law([0.0, 2.0], temperature=2.0) == pytest.approx(law([0.0, 1.0]))


@pytest.mark.parametrize("temperature", [1e-40, 1e-46, 1e-30, 1e-6])
def test_the_smallest_temperature_is_a_law(temperature):
    """Ties share it; nothing overflows to inf - inf."""
    assert law([30.0, 60.0, 60.0, -INF], temperature=temperature) == [0, 0.5, 0.5, 0]


def test_ties_at_the_kth_place_all_stay():
    assert law([2.0, 1.0, 1.0, 0.0], top_k=2)[3] == 0
    assert law([2.0, 1.0, 1.0, 0.0], top_k=2)[1:3] == pytest.approx([0.2119, 0.2119], abs=1e-4)
    assert law([2.0, 1.0, 1.0, 0.0], top_k=1) == [1, 0, 0, 0]
    for wide in (4, 5):
        assert law([2.0, 1.0, 1.0, 0.0], top_k=wide) == law([2.0, 1.0, 1.0, 0.0])


def test_logits_a_hair_apart_are_no_tie():
    """Top-k compares the logits themselves, before anything is rounded."""
    assert law([20.0, 2e-8, 1e-8], top_k=2)[2] == 0
    assert law([20.0, 2e-8, 1e-8], top_k=2)[1] > 0


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(0.5, [1, 0, 0]), (0.51, [1, 1, 0]), (0.75, [1, 1, 0]), (0.76, [1, 1, 1]), (1, [1, 1, 1])],
)
def test_the_nucleus_is_the_smallest_set_that_reaches_p(top_p, kept):
    """Shares 1/2, 1/4, 1/4; equal ones by id."""
    probs = law(logs(0.5, 0.25, 0.25), top_p=top_p)
    assert [p > 0 for p in probs] == [bool(x) for x in kept]
    assert sum(probs) == pytest.approx(1)


@pytest.mark.parametrize(
    ("min_p", "kept"),
    [(0, [1, 1, 1, 0]), (0.5, [1, 1, 0, 0]), (0.51, [1, 0, 0, 0]), (1, [1, 0, 0, 0])],
)
def test_min_p_is_relative_to_the_best(min_p, kept):
    probs = law(logs(0.5, 0.25, 0.125, 0), min_p=min_p)
    assert [p > 0 for p in probs] == [bool(x) for x in kept]
    assert sum(probs) == pytest.approx(1)


def test_filters_apply_in_turn():
    """Top-k leaves (4/7, 2/7, 1/7), of which the nucleus of 0.8 keeps two: (2/3, 1/3)."""
    table = logs(8, 4, 2, 1, 1)
    assert law(table, top_k=3, top_p=0.8) == pytest.approx([2 / 3, 1 / 3, 0, 0, 0])
    assert law(table, top_k=3, top_p=0.8, min_p=0.51) == pytest.approx([1, 0, 0, 0, 0])
    assert law(table, top_p=0.8) == pytest.approx([4 / 7, 2 / 7, 1 / 7, 0, 0])


def test_logits_are_left_alone_and_read_in_float32():
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    before = logits.clone()
    probabilities(logits, Sampling(temperature=0.5, top_k=2, top_p=0.9, min_p=0.1))
    assert torch.equal(logits, before)
    half = probabilities(logits.bfloat16(), Sampling(temperature=0.5))
    assert torch.equal(half, probabilities(logits, Sampling(temperature=0.5)))


def test_any_leading_axes():
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1))
    sampling = Sampling(temperature=0.7, top_k=3, top_p=0.9, min_p=0.05)
    flat = probabilities(logits.flatten(0, 1), sampling)
    assert torch.equal(probabilities(logits, sampling).flatten(0, 1), flat)
    assert probabilities(logits[:, :0], sampling).shape == (2, 0, 5)


def test_a_point_mass():
    assert point_mass(torch.tensor([2, 0]), 3).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert point_mass(torch.tensor([2, 0]), 3).dtype == torch.float32


# Settings


def test_greedy_is_the_default_and_the_limit():
    assert Sampling().is_greedy
    warm = Sampling(temperature=0.7, top_k=5, top_p=0.9, min_p=0.1)
    assert not warm.is_greedy
    assert warm.limit() == Sampling(temperature=0.0, top_k=5, top_p=0.9, min_p=0.1)


@pytest.mark.parametrize(
    "knobs",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": INF},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_p": float("nan")},
        {"min_p": -0.1},
        {"min_p": 1.1},
        {"tempreature": 1.0},
    ],
)
def test_useless_settings_are_refused(knobs):
    with pytest.raises(ValidationError):
        Sampling(**knobs)


def test_settings_are_frozen_and_described():
    with pytest.raises(ValidationError, match="frozen"):
        Sampling().temperature = 1.0
    assert all(field.description for field in Sampling.model_fields.values())


# Draws


def test_a_draw_inverts_the_cumulated_law():
    """Edges go to the next token: coin 1/4 has passed the first quarter."""
    probs = torch.tensor([0.25, 0.5, 0.0, 0.25])
    coins = torch.tensor([0.0, 0.2499, 0.25, 0.7499, 0.75, LAST_COIN], dtype=torch.float64)
    assert draw(probs.expand(6, 4), coins).tolist() == [0, 0, 1, 1, 3, 3]


def test_a_grid_of_coins_has_exactly_the_law():
    probs = torch.tensor([3.0, 0, 5, 1, 7]) / 16
    coins = (torch.arange(16, dtype=torch.float64) + 0.5) / 16
    assert torch.bincount(draw(probs.expand(16, 5), coins)).tolist() == [3, 0, 5, 1, 7]


coins = st.floats(0, 1, exclude_max=True) | st.sampled_from([0.0, LAST_COIN, 2**-53])


@given(
    st.lists(st.floats(0, 1, width=32), min_size=1, max_size=12).filter(lambda p: sum(p) > 0), coins
)
def test_a_draw_stays_in_the_vocabulary_and_on_the_support(weights, coin):
    """Also where the law does not quite sum to 1: zeros at either end are never drawn."""
    probs = torch.tensor([[0.0, *weights, 0.0]])
    token = int(draw(probs, torch.tensor([coin], dtype=torch.float64)))
    assert probs[0, token] > 0


@pytest.mark.parametrize("size", [3, 1000, 50_000])
def test_rounding_never_leaves_the_vocabulary(size):
    """float32 laws sum to 1 only roughly; the sum is scaled to its own total."""
    rng = torch.Generator().manual_seed(size)
    probs = torch.randn(4, size, generator=rng).softmax(-1)
    probs[:, -1] = 0
    token = draw(probs, torch.full((4,), LAST_COIN, dtype=torch.float64))
    assert (token == size - 2).all()
    for scale in (0.9, 1.1):
        assert torch.equal(
            draw(probs * scale, torch.full((4,), 0.5, dtype=torch.float64)),
            draw(probs, torch.full((4,), 0.5, dtype=torch.float64)),
        )


def test_a_tiny_share_can_be_drawn():
    """In float32 the cumulated sum would stand still at 1."""
    probs = torch.tensor([[1.0, 1e-12, 1e-12]])
    assert draw(probs, torch.tensor([1 - 1.5e-12], dtype=torch.float64)).tolist() == [1]
    assert draw(probs, torch.tensor([1 - 0.5e-12], dtype=torch.float64)).tolist() == [2]


# Coins


def uniform(seeds, starts, purpose=Purpose.ACCEPT, count=4):
    return Coins(seeds, starts).uniform(purpose, count)


def test_coins_are_a_requests_own():
    """Neither batch order, nor batch-mates, nor the number of coins asked for changes them."""
    batch = uniform([7, 8, 9], [3, 5, 4])
    assert torch.equal(uniform([9, 7, 8], [4, 3, 5]), batch[[2, 0, 1]])
    assert torch.equal(uniform([8], [5]), batch[1:2])
    assert torch.equal(uniform([7, 8, 9], [3, 5, 4], count=9)[:, :4], batch)
    assert torch.equal(
        Coins([7, 8, 9], [3, 5, 4]).select([2, 0]).uniform(Purpose.ACCEPT, 4), batch[[2, 0]]
    )


def test_asking_twice_is_asking_once():
    coins = Coins([7], [3])
    first = coins.uniform(Purpose.NEXT, 3)
    coins.uniform(Purpose.DRAFT, 100)
    assert torch.equal(coins.uniform(Purpose.NEXT, 3), first)


def test_every_purpose_start_and_seed_has_coins_of_its_own():
    seeds = [0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2]
    rows = [
        tuple(uniform([seed], [start], purpose)[0].tolist())
        for seed in seeds
        for start in (0, 1, 2, 1 << 20)
        for purpose in Purpose
    ]
    values = [value for row in rows for value in row]
    assert len(set(values)) == len(values)


def test_long_runs_of_coins_do_not_meet():
    """The coins of one start never run into those of the next, nor one purpose into another."""
    runs = torch.stack(
        [uniform([5], [start], purpose, 4096)[0] for start in (0, 1) for purpose in Purpose]
    )
    assert len(runs.unique()) == runs.numel()


def test_coins_are_uniform():
    """Mean and second moment within five standard errors; every value below 1."""
    values = uniform(list(range(100)), [0] * 100, count=200).flatten()
    assert values.dtype == torch.float64
    assert values.min() >= 0
    assert values.max() < 1
    assert abs(values.mean() - 1 / 2) < 5 * (1 / 12 / len(values)) ** 0.5
    assert abs(values.pow(2).mean() - 1 / 3) < 5 * (4 / 45 / len(values)) ** 0.5


def test_coins_are_pinned():
    """A change here changes every sampled output at the same seed: it belongs in the changelog."""
    assert uniform([42], [10], Purpose.DRAFT, 1).tolist() == [[0.9749203426209538]]
    assert uniform([42], [10], Purpose.ACCEPT, 1).tolist() == [[0.27192744950765335]]
    assert uniform([42], [10], Purpose.NEXT, 1).tolist() == [[0.1795383042817068]]


def test_no_request_no_coins():
    assert uniform([], [], count=3).shape == (0, 3)
    assert uniform([1, 2], [0, 0], count=0).shape == (2, 0)


def test_every_request_has_a_start():
    with pytest.raises(ValueError, match="zip"):
        uniform([1, 2], [0])
