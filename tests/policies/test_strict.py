"""Strict verification: ids at temperature 0, and exactly the target's law above it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lenity.policies.strict import Strict
from tests.policies.blocks import blocks
from tests.reference import sampled
from tests.reference.matching import strict

P = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
Q = torch.tensor([0.2, 0.5, 0.2, 0.1], dtype=torch.float64)
RULE = Strict()


@given(blocks())
def test_greedy_compares_ids(block):
    verdict = block.verify(RULE)
    assert not verdict.is_relaxed.any()
    for b in block.batch:
        assert int(verdict.accepted_length[b]) == strict(block.rows(b), block.tokens(b))


def by_token(p, q):
    """Acceptance probability and residual for each token of the vocabulary as the draft."""
    size = p.shape[-1]
    p, q = p.expand(size, size), None if q is None else q.expand(size, size)
    ids = torch.arange(size)
    return RULE.accept_prob(p, q, ids), RULE.residual(p, q, ids)


def test_law_written_out():
    """min(1, p/q) and norm((p - q)+) by hand; TV(p, q) = 0.3 (Leviathan et al. 2023, 2.3)."""
    accept, residual = by_token(P, Q)
    assert accept.tolist() == pytest.approx([1, 0.6, 0.75, 0.5])
    assert residual.tolist() == [pytest.approx([1, 0, 0, 0])] * 4
    assert float((Q * (1 - accept)).sum()) == pytest.approx(0.3)


def test_point_mass_accepts_with_the_targets_own_probability():
    accept, residual = by_token(P, None)
    assert accept.tolist() == pytest.approx(P.tolist())
    assert residual[0].tolist() == pytest.approx([0, 0.6, 0.3, 0.1])
    assert residual[3].tolist() == pytest.approx([0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0])


@st.composite
def laws(draw, size):
    """A law over ``size`` tokens, some of them impossible."""
    weights = draw(st.lists(st.integers(0, 50), min_size=size, max_size=size).filter(any))
    law = torch.tensor(weights, dtype=torch.float64)
    return law / law.sum()


pairs = st.integers(1, 6).flatmap(lambda size: st.tuples(laws(size), laws(size)))


@given(pairs)
def test_emits_exactly_the_targets_law(pair):
    p, q = pair
    accept, residual = by_token(p, q)
    law = sampled.emitted_law(q.tolist(), accept.tolist(), residual.tolist())
    assert law == pytest.approx(p.tolist(), abs=1e-12)


@given(pairs)
def test_a_point_mass_emits_exactly_the_targets_law(pair):
    p, _ = pair
    accept, residual = by_token(p, None)
    for x in range(len(p)):
        certain = torch.nn.functional.one_hot(torch.tensor(x), len(p)).tolist()
        law = sampled.emitted_law(certain, accept.tolist(), residual.tolist())
        assert law == pytest.approx(p.tolist(), abs=1e-12)


@given(pairs, st.booleans())
def test_equals_the_scalar_twin(pair, is_certain):
    p, q = pair[0], None if is_certain else pair[1]
    accept, residual = by_token(p, q)
    for x in range(len(p)):
        if q is not None and q[x] == 0:
            continue
        law = None if q is None else q.tolist()
        assert float(accept[x]) == pytest.approx(sampled.accept_prob(p.tolist(), law, x))
        assert residual[x].tolist() == pytest.approx(sampled.residual(p.tolist(), law, x))


@given(pairs)
def test_the_residual_is_a_law_on_the_targets_side(pair):
    """It sums to 1 and has no mass where q covers p, unless p and q agree everywhere."""
    p, q = pair
    _, residual = by_token(p, q)
    assert residual.sum(-1).tolist() == pytest.approx([1.0] * len(p))
    if ((p - q).clamp_min(0).sum() > 1e-6).item():
        assert (residual[:, p <= q] == 0).all()


def test_equal_laws_leave_the_target_itself():
    accept, residual = by_token(P, P.clone())
    assert accept.tolist() == [1.0] * 4
    assert torch.equal(residual, P.expand(4, 4))
    rounding = P + torch.tensor([1e-9, -1e-9, 0, 0], dtype=torch.float64)
    assert torch.equal(by_token(rounding, P)[1], rounding.expand(4, 4))
    apart = P + torch.tensor([2e-8, -2e-8, 0, 0], dtype=torch.float64)
    assert by_token(apart, P)[1].tolist() == [[1.0, 0.0, 0.0, 0.0]] * 4


def test_an_impossible_draft_token_divides_by_nothing():
    """Padding may hold a token of no probability: 0/0 is rejection, p/0 acceptance, never NaN."""
    p, q = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.0]])
    assert RULE.accept_prob(p, q, torch.tensor([0])).tolist() == [0.0]
    assert RULE.accept_prob(1 - p, q, torch.tensor([0])).tolist() == [1.0]


def test_at_temperature_zero_sampling_is_greedy():
    """Point masses on both sides: accept iff the ids are equal, else the target's token."""
    p, q = torch.eye(3)[[0]].expand(3, 3), torch.eye(3)
    assert RULE.accept_prob(p, q, torch.arange(3)).tolist() == [1.0, 0.0, 0.0]
    assert RULE.residual(p, q, torch.arange(3))[1:].tolist() == [[1.0, 0.0, 0.0]] * 2


def test_is_its_own_limit():
    assert RULE.is_strict
    assert RULE.strict_limit() is RULE
