"""What is trained is what runs: the unrolled forward against the head on a cache."""

import pytest
import torch

from lenity.drafters.eagle3 import Eagle3
from lenity.errors import ConfigError
from lenity.models.cache import SlotCache
from lenity.training.eagle3 import unroll
from lenity.training.recipe import recipe
from tests.drafters.rig import Rig
from tests.training import rig

SPECS = ["eagle3:unroll=4", "eagle3:unroll=3,is_tap_normed=false,taps=-1+0"]


@pytest.mark.parametrize("spec", SPECS)
@torch.no_grad()
def test_the_unrolled_states_are_those_of_a_draft_on_a_cache(spec):
    model = rig.target()
    tables, some = rig.tables(model), rig.batch(model, spec)
    chosen = recipe(spec)
    head = rig.wild(chosen.build(model, tables, 0))
    found = torch.stack(unroll(head, some, tables, some.bases()[0], chosen.depth), -2)
    compared = 0
    for row, number, base in rig.real_bases(some):
        cache = SlotCache(1, 1)
        ids = some.token_ids[row : row + 1]
        states = head.fuse(some.taps[row : row + 1, : base + 1])
        embedded = head.embed(ids[:, 1 : base + 2], tables.embedding)
        state = head(states, embedded, cache)[:, -1:]
        cache.commit([base + 1])
        for step in range(chosen.depth):
            logits = head.logits(state[0, 0])
            torch.testing.assert_close(found[row, number, step], logits, rtol=1e-4, atol=1e-4)
            compared += 1
            place = base + 2 + step
            if place >= int(some.lengths[row]):
                break
            token = head.embed(ids[:, place : place + 1], tables.embedding)
            state = head(state, token, cache, offset=step)
    assert compared > 3 * chosen.depth


@pytest.mark.parametrize("spec", SPECS)
def test_hits_are_what_the_drafter_drafts(spec):
    model = rig.target()
    tables, some = rig.tables(model), rig.batch(model, spec)
    chosen = recipe(spec)
    head = rig.wild(chosen.build(model, tables, 0)).eval()
    hits = chosen.hits(head, some, tables)
    found = 0
    for row, number, base in rig.real_bases(some):
        ids = some.token_ids[row, : some.lengths[row]].tolist()
        session = Rig(model, Eagle3(model=head))
        session.admit(ids[: base + 2])
        drafted = session.propose([chosen.depth]).token_ids[0].tolist()
        expected = ids[base + 2 : base + 2 + chosen.depth]
        length = next(
            (k for k, (a, b) in enumerate(zip(drafted, expected, strict=False)) if a != b),
            len(expected),
        )
        assert int(hits[row, number].to(torch.int64).cumprod(0).sum()) == length
        found += length
    assert found or spec != SPECS[0]


def test_the_loss_weighs_later_steps_less_and_looks_at_the_reply_only():
    model = rig.target()
    tables, some = rig.tables(model), rig.batch(model, "eagle3")
    draw = torch.Generator()
    losses = {}
    for decay in (1.0, 0.5):
        for unrolled in (1, 2):
            chosen = recipe(f"eagle3:unroll={unrolled},step_decay={decay}")
            head = chosen.build(model, tables, 0)
            outcome = chosen.outcome(head, some, tables, draw)
            losses[decay, unrolled] = outcome.loss.item()
            assert outcome.num_bases == 15
    second = losses[1.0, 2] - losses[1.0, 1]
    assert losses[0.5, 2] == pytest.approx(losses[0.5, 1] + 0.5 * second)
    some.token_ids[1, 10:] = 3  # behind the end of row 1
    chosen = recipe("eagle3:unroll=2,step_decay=1")
    again = chosen.outcome(chosen.build(model, tables, 0), some, tables, draw)
    assert again.loss.item() == pytest.approx(losses[1.0, 2])


def test_hard_labels_are_the_replys_tokens():
    model = rig.target()
    tables, some = rig.tables(model), rig.batch(model, "eagle3")
    chosen = recipe("eagle3:unroll=1,labels=hard")
    head = chosen.build(model, tables, 0)
    logits = unroll(head, some, tables, some.bases()[0], 1)[0]
    expected = []
    for row, number, base in rig.real_bases(some):
        token = int(some.token_ids[row, base + 2])
        if token % 2 == 0:  # the drafter knows even ids
            expected.append(-logits[row, number].log_softmax(-1)[token // 2])
    outcome = chosen.outcome(head, some, tables, torch.Generator())
    torch.testing.assert_close(outcome.loss, torch.stack(expected).mean())


def test_taps_that_the_layout_cannot_say_are_refused():
    assert recipe("eagle3").tapped(30) == (1, 14, 26)
    assert recipe("eagle3:taps=10+20").tapped(30) == (10, 20)
    with pytest.raises(ConfigError, match="Begin with"):
        recipe("eagle3:taps=0+3").tapped(30)
