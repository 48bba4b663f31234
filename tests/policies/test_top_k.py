"""Membership in the target's k best tokens, ties by lower id."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lenity.errors import ShapeError
from lenity.policies.top_k import TopK
from lenity.scoring import reduce_logits
from lenity.types import Draft
from tests.policies.blocks import Block, blocks, flags
from tests.reference.matching import top_k


@given(st.data(), blocks(), st.integers(1, 7))
def test_equals_the_scalar_loop(data, block, k):
    may_relax = flags(data.draw, block)
    accepted = block.verify(TopK(k=k), may_relax=may_relax).accepted_length
    for b in block.batch:
        flag = may_relax and may_relax[b]
        assert int(accepted[b]) == top_k(block.rows(b), block.tokens(b), k=k, may_relax=flag)


@given(blocks(), st.integers(1, 6))
def test_grows_with_k(block, k):
    fewer = block.verify(TopK(k=k)).accepted_length
    assert (block.verify(TopK(k=k + 1)).accepted_length >= fewer).all()


@pytest.mark.parametrize(("k", "passes"), [(1, [0, 1, 0, 0]), (2, [1, 1, 0, 0]), (3, [1, 1, 0, 1])])
def test_ties_at_the_last_place_go_to_the_lower_id(k, passes):
    """Logits (1, 2, 0, 1): ranks 1, 0, 3, 2."""
    draft = Draft(token_ids=torch.arange(4)[None], lengths=torch.tensor([4]))
    block = Block(torch.tensor([1.0, 2.0, 0.0, 1.0]).repeat(1, 5, 1), draft)
    assert TopK(k=k).accepts(draft, block.scores).tolist() == [[bool(x) for x in passes]]


def test_without_ranks_it_says_what_to_ask_for():
    draft = Draft(token_ids=torch.zeros(1, 1, dtype=torch.int64), lengths=torch.tensor([1]))
    scores = reduce_logits(lambda a, b: torch.zeros(2, 4)[a:b], draft)
    with pytest.raises(ShapeError, match=r"needs=.*draft_rank"):
        TopK().accepts(draft, scores)
    assert TopK.needs == {"draft_rank"}
