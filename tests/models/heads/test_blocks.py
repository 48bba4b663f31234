"""Our parts against transformers' own layers, with the same weights."""

from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RotaryEmbedding

from lenity.errors import UnsupportedModelError
from lenity.models.cache import SlotCache
from lenity.models.heads.blocks import (
    BlockShape,
    Layer,
    layer_masks,
    place,
    read_rotary,
    read_windows,
)
from tests.models.heads.tiny import random_tensor

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 256,
}
SCALED = {
    "default": {"rope_type": "default", "rope_theta": 5e5},
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}


def shape(rope, **changes):
    made = BlockShape(
        hidden_size=32,
        num_heads=4,
        num_kv_heads=2,
        head_dim=12,
        intermediate_size=48,
        windows=(None,),
        rotary=read_rotary({**SIZES, "rope_parameters": rope}, 12),
    )
    return replace(made, **changes)


def theirs(kind, rope, **changes):
    config_class, layer_class, rotary_class = {
        "llama": (LlamaConfig, LlamaDecoderLayer, LlamaRotaryEmbedding),
        "qwen3": (Qwen3Config, Qwen3DecoderLayer, Qwen3RotaryEmbedding),
    }[kind]
    config = config_class(**SIZES, rope_parameters=rope, **changes)
    config._attn_implementation = "eager"
    layer, generator = layer_class(config, 0).eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(random_tensor(tuple(parameter.shape), generator))
    return layer, rotary_class(config)


@torch.no_grad()
def run_theirs(layer, rotary, x):
    positions = torch.arange(x.shape[1])[None]
    hidden = torch.full((x.shape[1], x.shape[1]), -torch.inf).triu(1)[None, None]
    out = layer(x, attention_mask=hidden, position_embeddings=rotary(x, positions))
    return out[0] if isinstance(out, tuple) else out


def ours_like(layer, made):
    ours = Layer(made)
    ours.load_state_dict(layer.state_dict())
    return ours.eval().requires_grad_(False)


def run(layer, made, x, cache, counts):
    """Write x and commit ``counts``."""
    positions = place(cache, x.shape[1], x.device)
    masks = layer_masks(made.windows, positions, cache.slots.width)
    out = layer(x, made.rotary(positions, x.dtype), masks[0], cache)
    cache.commit(counts)
    return out


@pytest.mark.parametrize("rope", SCALED)
def test_rotary_positions_are_transformers(rope):
    _, rotary = theirs("llama", dict(SCALED[rope]))
    positions = torch.tensor([[0, 1, 7, 100]])
    cos, sin = rotary(torch.zeros(1, 4, 32), positions)
    ours = shape(SCALED[rope]).rotary(positions, torch.float32)
    assert torch.allclose(ours[0][:, 0], cos, atol=1e-5)
    assert torch.allclose(ours[1][:, 0], sin, atol=1e-5)


@pytest.mark.parametrize(
    "config",
    [
        {"rope_theta": 5e5},
        {"rope_parameters": {"rope_theta": 5e5}},
        {"rope_scaling": {"type": "default", "rope_theta": 5e5}},
        {"rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 2]}, "rope_theta": 5e5},
        {"rope_parameters": {"full_attention": {"rope_theta": 5e5, "rope_type": "default"}}},
    ],
)
def test_theta_is_found_wherever_it_is_written(config):
    positions = torch.tensor([[3, 50]])
    found = read_rotary({**SIZES, **config}, 12)(positions, torch.float32)
    expected = shape(SCALED["default"]).rotary(positions, torch.float32)
    assert torch.equal(found[0], expected[0])


def test_rotary_positions_that_depend_on_length_are_refused():
    with pytest.raises(UnsupportedModelError, match="'dynamic'"):
        read_rotary({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 12)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("llama", {}),
        ("llama", {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu_pytorch_tanh"}),
        ("qwen3", {}),
    ],
)
def test_a_layer_is_transformers_however_it_is_fed(kind, changes):
    theirs_, rotary = theirs(kind, dict(SCALED["default"]), **changes)
    made = shape(
        SCALED["default"],
        has_qk_norm=kind == "qwen3",
        has_qkv_bias="attention_bias" in changes,
        has_output_bias="attention_bias" in changes,
        has_mlp_bias="mlp_bias" in changes,
        activation=changes.get("hidden_act", "silu"),
    )
    ours = ours_like(theirs_, made)
    x = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(1))
    expected = run_theirs(theirs_, rotary, x)
    whole = run(ours, made, x, SlotCache(1, 2), [9, 9])
    assert torch.allclose(whole, expected, atol=1e-5)
    # Row 0 commits four tokens of the first six, row 1 all: ragged from then on.
    cache = SlotCache(1, 2)
    run(ours, made, x[:, :6], cache, [4, 6])
    rest = torch.stack([x[0, 4:7], x[1, 6:9]])
    ragged = run(ours, made, rest, cache, [3, 3])
    assert torch.allclose(ragged[0], expected[0, 4:7], atol=1e-5)
    assert torch.allclose(ragged[1], expected[1, 6:9], atol=1e-5)
    # Without a cache, as in training.
    turn = made.rotary(torch.arange(9)[None], x.dtype)
    bare = ours(x, turn, torch.ones(9, 9, dtype=torch.bool).tril()[None, None])
    assert torch.allclose(bare, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, (None, None)),
        ({"sliding_window": 8}, (None, None)),
        ({"sliding_window": 8, "model_type": "mistral"}, (8, 8)),
        ({"sliding_window": 8, "use_sliding_window": True}, (8, 8)),
        ({"sliding_window": 8, "use_sliding_window": False, "model_type": "mistral"}, (None, None)),
        (
            {"sliding_window": 8, "layer_types": ["full_attention", "sliding_attention", "x"]},
            (None, 8),
        ),
        ({"sliding_window": 8, "layer_types": ["sliding_attention"]}, (8, 8)),
        ({"sliding_window": None, "layer_types": ["sliding_attention"] * 2}, (None, None)),
    ],
)
def test_windows_are_read(config, expected):
    assert read_windows(config, 2) == expected
