import pytest
import torch

from lenity.errors import UnsupportedModelError
from lenity.models.causal import CausalLM
from lenity.models.masked_formats import MaskedConfig, MaskedFormat
from lenity.training.denoiser import Denoiser, first_weights, stock_words
from lenity.training.tables import TargetTables
from tests.models.families import build
from tests.training import rig


def made_of(model, chosen):
    config = MaskedConfig(
        format=MaskedFormat.DREAM,
        words=stock_words(model, len(chosen)),
        mask_token_id=0,
        special_ids=frozenset(),
        is_shifted=True,
    )
    tables = TargetTables(model, torch.arange(model.vocab_size))
    head = Denoiser(config, frozenset({7}))
    return head.fill(first_weights(head, model, chosen, tables, 0), model.device), tables


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_seeing_only_backwards_it_is_the_target(family):
    model = CausalLM(build(family))
    head, tables = made_of(model, range(model.num_layers))
    token_ids = torch.randint(model.vocab_size, (2, 9), generator=torch.Generator().manual_seed(0))
    places = torch.arange(9).expand(2, -1)
    sees = (places[:, None, :] <= places[..., None]).contiguous()
    found = head(tables.embedding[token_ids], places, sees)
    expected = model.hidden_states(token_ids, model.new_cache(2)).last
    torch.testing.assert_close(found.detach(), expected, rtol=1e-4, atol=1e-4)


def test_positions_and_sight_are_what_was_asked_for():
    model = rig.target()
    head, tables = made_of(model, (0, 1))
    x = tables.embedding[torch.tensor([[1, 2, 3]])]
    places, sees = torch.arange(3)[None], torch.ones(1, 3, 3, dtype=torch.bool)
    both = head(x, places, sees)
    assert not torch.allclose(head(x, places * 2, sees), both, atol=1e-3)
    sees = sees.clone()
    sees[0, 0, 2] = False
    assert not torch.allclose(head(x, places, sees)[0, 0], both[0, 0], atol=1e-3)


def test_layers_are_taken_in_the_order_named():
    model = rig.target()
    head, _ = made_of(model, (1, 0))
    theirs = model.module.model.layers
    for mine, other in ((0, 1), (1, 0)):
        weight = head.layers[mine].mlp.up_proj.weight
        assert torch.equal(weight, theirs[other].mlp.up_proj.weight)
        assert not head.layers[mine].self_attn.q_proj.bias.any(), "a Llama has none"


def test_it_is_a_copy_that_trains_and_the_target_stays():
    model = rig.target()
    head, tables = made_of(model, (0, 1))
    names = {name for name, parameter in head.named_parameters() if parameter.requires_grad}
    assert names == set(head.state_dict())
    away = (head.mask.detach() - tables.embedding.mean(0)) / tables.embedding.std(0)
    assert 0 < away.abs().max() < 0.5
    before = model.module.model.layers[0].mlp.up_proj.weight.clone()
    with torch.no_grad():
        head.layers[0].mlp.up_proj.weight.zero_()
    assert torch.equal(model.module.model.layers[0].mlp.up_proj.weight, before)


@pytest.mark.parametrize("family", ["gpt2", "qwen3"])
def test_layers_of_another_kind_are_refused(family):
    model = CausalLM(build(family))
    with pytest.raises(UnsupportedModelError, match="layers of Llama and Qwen2 only"):
        made_of(model, (0,))
