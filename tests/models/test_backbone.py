import pytest
import torch
from transformers import LlamaConfig

from lenity.errors import UnsupportedModelError
from lenity.models.backbone import (
    Backbone,
    Head,
    find_decoder,
    keep_layers,
    layer_kinds,
    positions_limit,
)
from lenity.models.masks import MaskForm
from tests.models.families import ATTENTION, build, build_fresh


@pytest.mark.parametrize("family", sorted(ATTENTION))
def test_the_head_is_what_the_model_computes(family: str):
    module = build(family)
    ids = torch.randint(3, 96, (1, 6), generator=torch.Generator().manual_seed(0))
    decoder, _ = find_decoder(module)
    with torch.no_grad():
        hidden = decoder(input_ids=ids, use_cache=False)[0]
        expected = module(input_ids=ids, use_cache=False).logits
        found = Head(module)(hidden)
    assert torch.equal(found, expected)


def test_the_bare_head_is_used_where_it_is_enough():
    assert Head(build("llama"))._bare is build("llama").lm_head
    assert Head(build("gemma2"))._bare is None
    scaled = build_fresh("llama")
    assert Head(scaled).vocab_size == 96


def test_views_share_weights_and_are_made_once():
    module = build("gemma3")
    backbone = Backbone(module, MaskForm())
    view = backbone.view((0, 3))
    assert view is backbone.view((0, 3))
    assert view.layers[1] is module.model.layers[3]
    assert view.embed_tokens is module.model.embed_tokens
    assert view.config.layer_types == ["sliding_attention", "full_attention"]
    assert len(module.model.layers) == 4
    assert module.config.num_hidden_layers == 4


def test_every_list_with_an_entry_per_layer_is_cut():
    config = build_fresh("gemma3").config
    config.per_layer_note = ["a", "b", "c", "d"]
    kept = keep_layers(config, [1, 2])
    assert kept.per_layer_note == ["b", "c"]
    assert kept.layer_types == ["full_attention", "sliding_attention"]
    assert kept._attn_implementation == config._attn_implementation
    assert layer_kinds(kept) == ("full_attention", "sliding_attention")
    assert layer_kinds(build("llama").config) == ()


def test_a_model_without_a_list_of_layers_is_refused():
    module = build_fresh("llama")
    module.model.layers.append(module.model.layers[0])
    with pytest.raises(UnsupportedModelError, match="a list of 4 layers"):
        find_decoder(module)


def test_a_longrope_model_ends_where_its_rotation_would_change():
    config = LlamaConfig(
        max_position_embeddings=256,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "original_max_position_embeddings": 32,
            "short_factor": [1.0] * 64,
            "long_factor": [2.0] * 64,
        },
    )
    assert positions_limit(config) == 32
    assert positions_limit(LlamaConfig(max_position_embeddings=256)) == 256
