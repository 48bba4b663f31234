"""Four divergences against their sums, written out."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lenity.policies.divergence import DIVERGENCES, divergences
from tests.reference.local import divergence

P = [0.5, 0.3, 0.15, 0.05]
Q = [0.2, 0.5, 0.2, 0.1]


def found(p, q, token=0):
    """Every divergence by name, in float64."""
    law = torch.tensor([p], dtype=torch.float64).log()
    other = None if q is None else torch.tensor([q], dtype=torch.float64).log()
    return dict(
        zip(DIVERGENCES, divergences(law, other, torch.tensor([token]))[0].tolist(), strict=True)
    )


def test_written_out():
    """By hand: KL(p || q), KL(q || p), Jensen-Shannon and total variation of two small laws."""
    assert found(P, Q) == {
        "kl": pytest.approx(0.227088, abs=5e-7),
        "reverse_kl": pytest.approx(0.199006, abs=5e-7),
        "js": pytest.approx(0.051880, abs=5e-7),
        "tv": pytest.approx(0.3),
    }


@st.composite
def laws(draw, size):
    """A law over ``size`` tokens, some of them impossible."""
    weights = draw(st.lists(st.integers(0, 50), min_size=size, max_size=size).filter(any))
    return [w / sum(weights) for w in weights]


pairs = st.integers(1, 6).flatmap(lambda size: st.tuples(laws(size), laws(size)))


@given(pairs)
def test_equal_their_sums(pair):
    p, q = pair
    for name, value in found(p, q).items():
        assert value == pytest.approx(divergence(name, p, q), abs=1e-12)


@given(pairs)
def test_bounds_and_symmetry(pair):
    p, q = pair
    one, other = found(p, q), found(q, p)
    assert one["js"] == pytest.approx(other["js"], abs=1e-12)
    assert one["tv"] == pytest.approx(other["tv"], abs=1e-12)
    assert one["kl"] == pytest.approx(other["reverse_kl"], abs=1e-12)
    assert 0 <= one["js"] <= math.log(2) + 1e-12
    assert 0 <= one["tv"] <= 1 + 1e-12
    assert found(p, p) == {name: pytest.approx(0, abs=1e-12) for name in DIVERGENCES}


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(laws(n), st.integers(0, n - 1))))
def test_a_certain_token_is_a_point_mass(case):
    """The closed forms equal the sums over the point mass on the token."""
    law, token = case
    mass = [float(v == token) for v in range(len(law))]
    for name, value in found(law, None, token).items():
        assert value == pytest.approx(divergence(name, law, mass), abs=1e-12)


def test_disjoint_laws_are_as_far_apart_as_can_be():
    assert found([1.0, 0.0], [0.0, 1.0]) == {
        "kl": math.inf,
        "reverse_kl": math.inf,
        "js": pytest.approx(math.log(2)),
        "tv": 1,
    }


def test_a_small_logprob_does_not_underflow():
    """exp(-200) is 0 in float32, and its logarithm is not lost."""
    p = torch.tensor([[0.0, -200.0]])
    q = torch.tensor([[-200.0, 0.0]])
    assert divergences(p, q, torch.tensor([0]))[0].tolist()[:2] == [200.0, 200.0]


def test_a_law_of_nan_is_near_nothing():
    broken = torch.full((1, 3), torch.nan)
    fine = torch.zeros(1, 3).log_softmax(-1)
    for q in (broken, None):
        assert divergences(broken, q, torch.tensor([1])).isnan().all()
    assert divergences(fine, broken, torch.tensor([1])).isnan().all()


def test_leading_axes_and_dtype_are_kept():
    law = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    ids = torch.zeros(2, 3, dtype=torch.int64)
    for q in (law, None):
        assert divergences(law, q, ids).shape == (2, 3, 4)
        assert divergences(law, q, ids).dtype == torch.float32
