import pytest
import torch

from lenity.drafters.medusa import Medusa
from lenity.errors import ConfigError
from lenity.models.causal import CausalLM
from lenity.training.recipe import recipe
from tests.drafters.rig import Rig
from tests.training import rig

ALL = torch.arange(rig.VOCABULARY)


def test_hits_are_what_the_drafter_drafts():
    model, chosen = rig.target(), recipe("medusa:num_heads=3")
    tables, some = rig.tables(model, ALL), rig.batch(model, "medusa")
    head = rig.wild(chosen.build(model, tables, 0)).eval()
    hits = chosen.hits(head, some, tables)
    for row, number, base in rig.real_bases(some):
        ids = some.token_ids[row, : some.lengths[row]].tolist()
        session = Rig(model, Medusa(model=head))
        session.admit(ids[: base + 2])
        drafted = session.propose([3]).token_ids[0].tolist()
        expected = ids[base + 2 : base + 5]
        alike = [a == b for a, b in zip(drafted, expected, strict=False)]
        assert hits[row, number].tolist()[: len(expected)] == alike


def test_the_loss_is_cross_entropy_weighed_by_head():
    model, chosen = rig.target(), recipe("medusa:num_heads=2,head_decay=0.5")
    tables, some = rig.tables(model), rig.batch(model, "medusa")
    head = rig.wild(chosen.build(model, tables, 0))
    parts = [[], []]
    for row, _, base in rig.real_bases(some):
        for k in range(2):
            place = base + 2 + k
            token = int(some.token_ids[row, place]) if place < some.lengths[row] else 1
            if token % 2 == 0:
                state = head[k](some.last[row, base])
                parts[k].append(-model.logits(state)[rig.KEPT].log_softmax(-1)[token // 2])
    first, second = (torch.stack(part).mean() for part in parts)
    outcome = chosen.outcome(head, some, tables, torch.Generator())
    torch.testing.assert_close(outcome.loss, first + 0.5 * second)


def test_heads_begin_near_the_identity_and_read_no_layer():
    model, chosen = rig.target(), recipe("medusa:num_heads=2")
    head = chosen.build(model, rig.tables(model), 0)
    state = torch.randn(3, model.hidden_size, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(head[1](state), state, rtol=0.1, atol=0.1)
    assert chosen.tapped(12) == ()


def test_a_target_whose_head_is_no_matrix_is_refused():
    model = rig.target()
    model.logits = lambda hidden: 5 * torch.tanh(CausalLM.logits(model, hidden) / 5)
    with pytest.raises(ConfigError, match="scaled or capped"):
        recipe("medusa").build(model, rig.tables(model), 0)
