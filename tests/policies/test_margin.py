"""The margin rule against its scalar loop and the paper's numbers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lenity.errors import ShapeError
from lenity.ledger import to_units
from lenity.policies.margin import Margin
from lenity.scoring import reduce_logits
from lenity.types import Draft
from tests.policies.blocks import INF, Block, blocks, flags, nats
from tests.reference.local import margin

ratios = st.floats(0, 1) | st.sampled_from([0.0, 0.5, 0.75, 0.9, 1.0])
budgets = st.none() | nats | st.just(INF)


def position(logits):
    """One request with one draft token, token 0, judged by ``logits``."""
    draft = Draft(token_ids=torch.tensor([[0]]), lengths=torch.tensor([1]))
    return Block(torch.tensor([[logits, logits]]), draft)


@given(st.data(), blocks(), ratios, budgets, st.integers(0, 3 << 20))
def test_equals_the_scalar_loop(data, block, ratio, budget, spent):
    may_relax = flags(data.draw, block)
    rule = Margin(ratio=ratio, budget=budget)
    verdict = block.verify(rule, spent=[spent] * len(block.batch), may_relax=may_relax)
    charged = (to_units(block.scores.regret) * verdict.is_relaxed).sum(-1)
    for b in block.batch:
        accepted, units, relaxed = margin(
            block.rows(b),
            block.tokens(b),
            ratio=ratio,
            budget=budget,
            spent_units=spent,
            may_relax=may_relax and may_relax[b],
        )
        assert int(verdict.accepted_length[b]) == accepted
        assert verdict.is_relaxed[b].nonzero().flatten().tolist() == relaxed
        assert int(charged[b]) == units


@pytest.mark.parametrize(
    ("logits", "ratio", "passes"),
    [
        pytest.param([18.2, 20.0, 0.0], 0.9, True, id="18.2/20 = .91"),
        pytest.param([18.0, 20.0, 0.0], 0.9, False, id="exactly the ratio is rejected"),
        pytest.param([17.8, 20.0, 0.0], 0.9, False, id="17.8/20 = .89"),
        pytest.param([18.2, 20.0, 19.0], 0.9, False, id="third, however close"),
        pytest.param([18.2, 20.0, 18.2], 0.9, True, id="a tie for second goes to the lower id"),
        pytest.param([20.0, 20.0, 0.0], 1.0, False, id="at ratio 1 a tie is strict"),
        pytest.param([-18.2, -18.0, -30.0], 0.5, False, id="both negative: 1.01, and no meaning"),
        pytest.param([0.0, 0.0, -1.0], 0.0, False, id="0/0"),
        pytest.param([0.0, 1.0, -1.0], 0.0, False, id="second not positive"),
        pytest.param([-1.0, 1.0, -2.0], 0.0, False, id="second negative"),
        pytest.param([1e-3, 20.0, 0.0], 0.0, True, id="ratio 0 takes any positive second"),
    ],
)
def test_written_out(logits, ratio, passes):
    """The draft token is token 0 (arXiv 2601.15498: theta = .9, z = (20, 18.2))."""
    block = position(logits)
    if logits[0] == logits[1]:  # put the argmax before the draft token
        draft = Draft(token_ids=torch.tensor([[2]]), lengths=torch.tensor([1]))
        block = Block(block.logits.flip(-1), draft)
    assert Margin(ratio=ratio).accepts(block.draft, block.scores).tolist() == [[passes]]


@given(blocks(), ratios, ratios)
def test_grows_as_the_ratio_falls(block, one, other):
    strictest = block.verify(Margin(ratio=max(one, other))).accepted_length
    assert (block.verify(Margin(ratio=min(one, other))).accepted_length >= strictest).all()


def test_a_constant_added_to_a_row_changes_it():
    """Why the rule is no property of the law: the same softmax, another verdict."""
    low, high = position([1.0, 2.0, 0.0]), position([101.0, 102.0, 100.0])
    assert not Margin().accepts(low.draft, low.scores).any()
    assert Margin().accepts(high.draft, high.scores).all()


def test_without_ranks_it_says_what_to_ask_for():
    draft = Draft(token_ids=torch.zeros(1, 1, dtype=torch.int64), lengths=torch.tensor([1]))
    scores = reduce_logits(lambda a, b: torch.zeros(2, 4)[a:b], draft)
    with pytest.raises(ShapeError, match=r"needs=.*draft_rank"):
        Margin().accepts(draft, scores)
    assert Margin.needs == {"draft_rank"}
