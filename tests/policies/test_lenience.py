"""The likelihood-ratio test against its scalar loop and its twin rule in ASD."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from lenity.policies.asd import Asd
from lenity.policies.lenience import Lenience
from lenity.types import Draft
from tests.policies.blocks import INF, Block, blocks, flags, regrets
from tests.reference.matching import lenience

ratios = st.floats(1e-6, 1)


@given(st.data(), blocks(), ratios | st.just(1.0))
def test_equals_the_scalar_loop(data, block, ratio):
    may_relax = flags(data.draw, block)
    accepted = block.verify(Lenience(ratio=ratio), may_relax=may_relax).accepted_length
    for b in block.batch:
        flag = may_relax and may_relax[b]
        assert int(accepted[b]) == lenience(
            block.rows(b), block.tokens(b), ratio=ratio, may_relax=flag
        )


@given(blocks(max_batch=1), ratios)
def test_is_the_ratio_of_probabilities(block, ratio):
    """p(x) >= ratio * max p, read off the softmax (Leviathan et al. 2023, appendix A.5)."""
    law = block.logits.double().softmax(-1)
    shares = law[:, :-1].gather(-1, block.draft.token_ids[..., None]).squeeze(-1)
    shares = shares / law[:, :-1].amax(-1)
    assume(not ((shares - ratio).abs() < 1e-9).any())
    passes = Lenience(ratio=ratio).accepts(block.draft, block.scores)
    assert passes.tolist() == ((shares >= ratio) & (shares < INF)).tolist()


@given(blocks(max_gamma=1), ratios)
def test_is_asd_with_a_gate_of_minus_log_ratio(block, ratio):
    """One position, no ledger: r <= -log(ratio). At ratio 1, ASD's gate 0 would pass ties."""
    assume(ratio < 1)
    asd = Asd(budget=INF, gate=-math.log(ratio), block_cap=None)
    got = block.verify(Lenience(ratio=ratio)).accepted_length
    assert got.tolist() == block.verify(asd).accepted_length.tolist()


@given(blocks(), ratios, ratios)
def test_grows_as_the_ratio_falls(block, one, other):
    strictest = block.verify(Lenience(ratio=max(one, other))).accepted_length
    assert (block.verify(Lenience(ratio=min(one, other))).accepted_length >= strictest).all()


@pytest.mark.parametrize(
    ("ratio", "passes"), [(0.5, [1, 1, 0, 0]), (0.3, [1, 1, 1, 0]), (1, [0, 0, 0, 0])]
)
def test_a_law_written_out(ratio, passes):
    """p = (.5, .3, .15, .05): p(x) / max p is 1, .6, .3 and .1; at ratio 1 only ids count."""
    draft = Draft(token_ids=torch.arange(4)[None], lengths=torch.tensor([4]))
    block = Block(torch.tensor([0.5, 0.3, 0.15, 0.05]).log().repeat(1, 5, 1), draft)
    limit = ratio * (1 - 1e-6) if ratio < 1 else 1  # float32 logs stand a hair off the shares
    assert Lenience(ratio=limit).accepts(draft, block.scores).tolist() == [list(map(bool, passes))]


def test_ratio_one_rejects_a_tie_and_any_less_accepts_it():
    tie = regrets(0.0, None)
    assert int(tie.verify(Lenience(ratio=1)).accepted_length) == 0
    assert int(tie.verify(Lenience(ratio=1 - 1e-12)).accepted_length) == 2


def test_the_edge_passes_and_is_compared_in_float64():
    """The float32 next to 0.1 is more than 0.1 nats."""
    ratio = math.exp(-0.5)
    assert -math.log(ratio) == 0.5
    assert int(regrets(0.5, None).verify(Lenience(ratio=ratio)).accepted_length) == 2
    assert int(regrets(0.1, None).verify(Lenience(ratio=math.exp(-0.1))).accepted_length) == 0
