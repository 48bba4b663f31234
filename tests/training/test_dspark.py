"""What is trained is what runs: blocks of many anchors against one block on a cache."""

import pytest
import torch

from lenity.drafters.dspark import DSpark
from lenity.training.dspark import corrected, mask_token, run_blocks
from lenity.training.recipe import recipe
from tests.drafters.rig import Rig
from tests.training import rig

SPECS = [
    "dspark:block_size=4,markov_rank=8",
    "dspark:block_size=3,markov_rank=6,markov_kind=rnn,taps=0+1",
    "dspark:block_size=3,markov_rank=6,markov_kind=gated,num_layers=1",
    "dflash:block_size=3",
]


@pytest.mark.parametrize("spec", SPECS)
@torch.no_grad()
def test_blocks_of_many_anchors_are_single_blocks_on_a_cache(spec):
    model, chosen = rig.target(), recipe(spec)
    tables, some = rig.tables(model), rig.batch(model, spec)
    head = rig.wild(chosen.build(model, tables, 0))
    found = run_blocks(head, some, tables, some.bases()[0])
    for row, number, base in rig.real_bases(some):
        cache = head.new_cache(1)
        head.remember(some.taps[row : row + 1, : base + 1], cache)
        cache.commit([base + 1])
        alone = head.run_block(some.token_ids[row, base + 1 : base + 2], cache, model.embed)
        torch.testing.assert_close(found[row, number], alone[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spec", SPECS[:3])
@torch.no_grad()
def test_hits_and_confidence_are_what_the_drafter_gives(spec):
    model, chosen = rig.target(), recipe(spec)
    tables, some = rig.tables(model), rig.batch(model, spec)
    head = rig.wild(chosen.build(model, tables, 0)).eval()
    hits = chosen.hits(head, some, tables)
    bases = some.bases()[0]
    trust = corrected(head, some, bases, run_blocks(head, some, tables, bases))[1]
    for row, number, base in rig.real_bases(some):
        ids = some.token_ids[row, : some.lengths[row]].tolist()
        session = Rig(model, DSpark(model=head))
        session.admit(ids[: base + 2])
        draft = session.propose([chosen.depth])
        expected = ids[base + 2 : base + 2 + chosen.depth]
        drafted = draft.token_ids[0].tolist()
        length = next(
            (k for k, (a, b) in enumerate(zip(drafted, expected, strict=False)) if a != b),
            len(expected),
        )
        assert int(hits[row, number].to(torch.int64).cumprod(0).sum()) == length
        torch.testing.assert_close(
            draft.confidence[0, 0], trust[row, number, 0].sigmoid(), rtol=1e-4, atol=1e-4
        )


def test_anchors_are_drawn_within_the_reply_from_the_generator():
    model, chosen = rig.target(), recipe("dspark:num_anchors=200")
    some = rig.batch(model, "dspark")
    bases, is_real = chosen._draw(some, torch.Generator().manual_seed(1))
    again, _ = chosen._draw(some, torch.Generator().manual_seed(1))
    assert torch.equal(bases, again)
    assert sorted(set(bases[0].tolist())) == list(range(3, 12))
    assert sorted(set(bases[1].tolist())) == list(range(2, 8))
    assert is_real.all()


def test_slots_are_filled_with_an_id_that_replies_do_not_use():
    model = rig.target()
    assert mask_token(model, rig.tables(model)) == 47
    assert mask_token(model, rig.tables(model, torch.arange(rig.VOCABULARY))) == 47
    model.unknown_ids = torch.tensor([9, 11])
    assert mask_token(model, rig.tables(model)) == 9


def test_confidence_learns_one_less_the_variation():
    model, chosen = rig.target(), recipe("dspark:variation_weight=0,cross_entropy_weight=0")
    tables, some = rig.tables(model), rig.batch(model, "dspark")
    head = chosen.build(model, tables, 0)
    chosen.outcome(head, some, tables, torch.Generator().manual_seed(0)).loss.backward()
    assert head.confidence_head.proj.weight.grad.any()
    assert head.lm_head.weight.grad is None or not head.lm_head.weight.grad.any()
