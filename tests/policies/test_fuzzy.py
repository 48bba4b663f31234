"""The divergence test against its scalar loop at temperature 0 and its emitted law above it."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lenity.errors import ConfigError, ShapeError
from lenity.ledger import to_units
from lenity.policies.divergence import DIVERGENCES
from lenity.policies.fuzzy import Fuzzy
from lenity.scoring import reduce_logits
from lenity.types import Draft
from tests.policies.blocks import INF, STEP, Block, blocks, flags, nats
from tests.reference import sampled
from tests.reference.local import divergence, fuzzy

kinds = st.sampled_from(DIVERGENCES)
thresholds = st.floats(0, 2) | st.sampled_from([0.0, 0.05, 0.3, INF])
budgets = st.none() | nats | st.just(INF)
KNOWN_P = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
KNOWN_Q = torch.tensor([0.2, 0.5, 0.2, 0.1], dtype=torch.float64)


def with_law(data, block):
    """The block with a drafter's law, or as it is: certain draft tokens."""
    if data.draw(st.booleans()):
        return block
    steps = data.draw(arrays("i8", tuple(block.logits[:, :-1].shape), elements=st.integers(0, 40)))
    law = (torch.from_numpy(steps) * STEP).float().log_softmax(-1)
    draft = Draft(token_ids=block.draft.token_ids, lengths=block.draft.lengths, logprobs=law)
    return Block(block.logits, draft)


def laws_of(block, b):
    law = block.draft.logprobs
    size = int(block.draft.lengths[b])
    return [None] * size if law is None else law[b, :size].double().exp().tolist()


def is_on_the_edge(block, kind, threshold):
    """Whether float32 may fall on the other side of the threshold than float64."""
    found = block.scores.divergence[..., DIVERGENCES.index(kind)]
    return bool(((found - threshold).abs() < 1e-5).any())


@given(st.data(), blocks(), kinds, thresholds, budgets, st.integers(0, 3 << 20))
def test_equals_the_scalar_loop(data, block, kind, threshold, budget, spent):
    block, may_relax = with_law(data, block), flags(data.draw, block)
    assume(threshold in (0, INF) or not is_on_the_edge(block, kind, threshold))
    rule = Fuzzy(divergence=kind, threshold=threshold, budget=budget)
    verdict = block.verify(rule, spent=[spent] * len(block.batch), may_relax=may_relax)
    charged = (to_units(block.scores.regret) * verdict.is_relaxed).sum(-1)
    for b in block.batch:
        accepted, units, relaxed = fuzzy(
            block.rows(b),
            laws_of(block, b),
            block.tokens(b),
            kind=kind,
            threshold=threshold,
            budget=budget,
            spent_units=spent,
            may_relax=may_relax and may_relax[b],
        )
        assert int(verdict.accepted_length[b]) == accepted
        assert verdict.is_relaxed[b].nonzero().flatten().tolist() == relaxed
        assert int(charged[b]) == units


def known(token=1):
    """One position with the laws p and q, whose draft token is ``token``; the argmax is 0."""
    logits = KNOWN_P.float().log().repeat(1, 2, 1)
    law = KNOWN_Q.float().log()[None, None]
    draft = Draft(token_ids=torch.tensor([[token]]), lengths=torch.tensor([1]), logprobs=law)
    return Block(logits, draft)


@pytest.mark.parametrize(
    ("kind", "value"), [("kl", 0.227088), ("reverse_kl", 0.199006), ("js", 0.051880), ("tv", 0.3)]
)
def test_written_out(kind, value):
    """KL(p || q), KL(q || p), JS and TV of two laws: just below it rejects, just above accepts."""
    for token in range(4):
        for threshold, passes in ((value - 1e-5, False), (value + 1e-5, True)):
            rule = Fuzzy(divergence=kind, threshold=threshold)
            got = int(known(token).verify(rule).accepted_length)
            assert got == (passes or token == 0), "the argmax passes all the same"


@given(st.data(), blocks(), kinds, thresholds, thresholds)
def test_grows_with_the_threshold(data, block, kind, one, other):
    block = with_law(data, block)
    low, high = (
        block.verify(Fuzzy(divergence=kind, threshold=t)).accepted_length
        for t in sorted((one, other))
    )
    assert (high >= low).all()


def test_threshold_0_compares_ids_even_where_the_laws_are_one():
    logits = torch.zeros(1, 2, 4)  # the argmax is 0, by its id
    draft = Draft(
        token_ids=torch.tensor([[2]]),
        lengths=torch.tensor([1]),
        logprobs=logits[:, :-1].log_softmax(-1),
    )
    block = Block(logits, draft)
    assert int(block.verify(Fuzzy(threshold=0)).accepted_length) == 0
    assert int(block.verify(Fuzzy(threshold=1e-6)).accepted_length) == 1


def test_a_law_of_nan_accepts_nothing():
    block = known()
    poisoned = torch.full_like(block.draft.logprobs, torch.nan)
    draft = Draft(token_ids=block.draft.token_ids, lengths=block.draft.lengths, logprobs=poisoned)
    assert int(Block(block.logits, draft).verify(Fuzzy(threshold=INF)).accepted_length) == 0


def test_without_divergences_it_says_what_to_ask_for():
    draft = Draft(token_ids=torch.zeros(1, 1, dtype=torch.int64), lengths=torch.tensor([1]))
    scores = reduce_logits(lambda a, b: torch.zeros(2, 4)[a:b], draft)
    with pytest.raises(ShapeError, match=r"scores\.divergence"):
        Fuzzy().accepts(draft, scores)
    assert Fuzzy.needs == {"divergence"}
    assert not Fuzzy(threshold=0).accepts(draft, scores).any()


# Sampling


@st.composite
def laws(draw, size):
    weights = draw(st.lists(st.integers(1, 50), min_size=size, max_size=size))
    law = torch.tensor(weights, dtype=torch.float64)
    return law / law.sum()


pairs = st.integers(1, 6).flatmap(lambda size: st.tuples(laws(size), laws(size)))


def by_token(rule, p, q):
    """Acceptance probability and residual for each token of the vocabulary as the draft."""
    size = p.shape[-1]
    p, q, ids = p.expand(size, size), q.expand(size, size), torch.arange(size)
    return rule.accept_prob(p, q, ids), rule.residual(p, q, ids)


@given(pairs, kinds, st.floats(0, 2), st.booleans())
def test_the_emitted_law_is_q_where_the_laws_are_close_and_p_elsewhere(
    pair, kind, threshold, reducible
):
    p, q = pair
    value = divergence(kind, p.tolist(), q.tolist())
    assume(abs(value - threshold) > 1e-9)
    rule = Fuzzy(divergence=kind, threshold=threshold, reducible=reducible)
    accept, residual = by_token(rule, p, q)
    law = sampled.emitted_law(q.tolist(), accept.tolist(), residual.tolist())
    assert law == pytest.approx((q if value <= threshold else p).tolist(), abs=1e-12)


def test_the_reducible_rule_accepts_more_of_the_same_law():
    """Rejected by Div(p, q) = .3, strict still keeps 1 - TV = .7 of the draft tokens."""
    rule = Fuzzy(divergence="tv", threshold=0.2)
    assert by_token(rule, KNOWN_P, KNOWN_Q)[0].tolist() == [0] * 4
    reducible = rule.model_copy(update={"reducible": True})
    accept, residual = by_token(reducible, KNOWN_P, KNOWN_Q)
    assert accept.tolist() == pytest.approx([1, 0.6, 0.75, 0.5])
    assert residual.tolist() == [pytest.approx([1, 0, 0, 0])] * 4
    assert float((KNOWN_Q * accept).sum()) == pytest.approx(0.7)


def test_a_certain_token_is_judged_by_its_own_probability():
    ids = torch.arange(4)
    p = KNOWN_P.expand(4, 4)
    for kind, limit, passes in [
        ("tv", 0.7, [1, 1, 0, 0]),
        ("reverse_kl", -math.log(0.15), [1, 1, 1, 0]),
    ]:
        rule = Fuzzy(divergence=kind, threshold=limit + 1e-9)
        assert rule.accept_prob(p, None, ids).tolist() == passes


def test_what_has_no_meaning_above_temperature_0_is_refused():
    p, ids = KNOWN_P.expand(4, 4), torch.arange(4)
    with pytest.raises(ConfigError, match=r"temperature 0 for fuzzy:budget=8.*budget out"):
        Fuzzy(budget=8).accept_prob(p, p, ids)
    with pytest.raises(ConfigError, match=r"law of its own for fuzzy:divergence=kl.*tv, js"):
        Fuzzy(divergence="kl").accept_prob(p, None, ids)
