"""Tiny masked-diffusion checkpoints as they are published, and their forward written out again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.models.heads.tiny import random_tensor

SIZE, INNER, HEADS, KV_HEADS, LAYERS = 32, 48, 4, 2, 2
DIM = SIZE // HEADS
THETA = 10000.0
EPS = 1e-6
PARTS = {
    "dream": {
        "layer": "model.layers.{}.",
        "embedding": "model.embed_tokens.weight",
        "norm": "model.norm.weight",
        "head": "lm_head.weight",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.o_proj",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
        "first": "input_layernorm",
        "second": "post_attention_layernorm",
    },
    "llada": {
        "layer": "model.transformer.blocks.{}.",
        "embedding": "model.transformer.wte.weight",
        "norm": "model.transformer.ln_f.weight",
        "head": "model.transformer.ff_out.weight",
        "q": "q_proj",
        "k": "k_proj",
        "v": "v_proj",
        "o": "attn_out",
        "gate": "ff_proj",
        "up": "up_proj",
        "down": "ff_out",
        "first": "attn_norm",
        "second": "ff_norm",
    },
}
"""Where each dialect keeps a part (spec of the published layouts, not our reader's table)."""


def masked_config(dialect: str, vocab_size: int, mask: int, **changes: Any) -> dict[str, Any]:
    if dialect == "dream":
        config: dict[str, Any] = {
            "model_type": "Dream",
            "architectures": ["DreamModel"],
            "auto_map": {"AutoModel": "modeling_dream.DreamModel"},
            "hidden_size": SIZE,
            "intermediate_size": INNER,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "max_position_embeddings": 256,
            "rms_norm_eps": EPS,
            "rope_theta": THETA,
            "rope_scaling": None,
            "tie_word_embeddings": False,
            "vocab_size": vocab_size,
        }
    else:
        config = {
            "model_type": "llada",
            "architectures": ["LLaDAModelLM"],
            "d_model": SIZE,
            "mlp_hidden_size": INNER,
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "n_kv_heads": KV_HEADS,
            "max_sequence_length": 256,
            "rms_norm_eps": EPS,
            "rope_theta": THETA,
            "weight_tying": False,
            "embedding_size": vocab_size,
            "vocab_size": vocab_size,
            "layer_norm_type": "rms",
            "activation_type": "silu",
            "include_bias": False,
            "rope": True,
            "alibi": False,
        }
    return config | {"mask_token_id": mask, "pad_token_id": None, "eos_token_id": None} | changes


def masked_tensors(dialect: str, vocab_size: int, seed: int = 0) -> dict[str, Tensor]:
    """Return weights large enough that choices are clear and neighbours are heard."""
    names = PARTS[dialect]
    shapes: dict[str, tuple[int, ...]] = {
        names["embedding"]: (vocab_size, SIZE),
        names["norm"]: (SIZE,),
        names["head"]: (vocab_size, SIZE),
    }
    for layer in range(LAYERS):
        prefix = names["layer"].format(layer)
        for part, rows, columns in (
            ("q", HEADS * DIM, SIZE),
            ("k", KV_HEADS * DIM, SIZE),
            ("v", KV_HEADS * DIM, SIZE),
            ("o", SIZE, HEADS * DIM),
            ("gate", INNER, SIZE),
            ("up", INNER, SIZE),
            ("down", SIZE, INNER),
        ):
            shapes[f"{prefix}{names[part]}.weight"] = (rows, columns)
            if dialect == "dream" and part in "qkv":
                shapes[f"{prefix}{names[part]}.bias"] = (rows,)
        shapes[f"{prefix}{names['first']}.weight"] = (SIZE,)
        shapes[f"{prefix}{names['second']}.weight"] = (SIZE,)
    draw = torch.Generator().manual_seed(seed)
    return {key: random_tensor(shape, draw) for key, shape in shapes.items()}


def masked_folder(
    folder: Path, dialect: str, *, vocab_size: int = 128, mask: int = 121, **changes: Any
) -> Path:
    """Write a random checkpoint; ``changes`` are keys of its config."""
    tensors = masked_tensors(dialect, vocab_size)
    config = masked_config(dialect, vocab_size, mask, **changes)
    if config.get("tie_word_embeddings") or config.get("weight_tying"):
        del tensors[PARTS[dialect]["head"]]
    return write(folder, config, tensors)


def write(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    save_file(dict(tensors), folder / "model.safetensors")
    return folder


def forward(dialect: str, tensors: Mapping[str, Tensor], ids: list[int]) -> Tensor:
    """Return the normed states (T, H) of one row, every token seeing every other, in float64."""
    names = PARTS[dialect]
    weights = {key: tensor.to(torch.float64) for key, tensor in tensors.items()}
    x = weights[names["embedding"]][ids]
    for layer in range(LAYERS):
        prefix = names["layer"].format(layer)

        def linear(part: str, y: Tensor, prefix: str = prefix) -> Tensor:
            out = y @ weights[f"{prefix}{names[part]}.weight"].T
            return out + weights.get(f"{prefix}{names[part]}.bias", torch.zeros(1))

        y = _norm(x, weights[f"{prefix}{names['first']}.weight"])
        x = x + linear("o", _attend(linear("q", y), linear("k", y), linear("v", y)))
        y = _norm(x, weights[f"{prefix}{names['second']}.weight"])
        x = x + linear("down", torch.nn.functional.silu(linear("gate", y)) * linear("up", y))
    return _norm(x, weights[names["norm"]])


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    out = []
    for head in range(HEADS):
        group = head // (HEADS // KV_HEADS)
        own = slice(head * DIM, (head + 1) * DIM)
        shared = slice(group * DIM, (group + 1) * DIM)
        scores = _turn(q[:, own]) @ _turn(k[:, shared]).T / DIM**0.5
        out.append(scores.softmax(-1) @ v[:, shared])
    return torch.cat(out, -1)


def _turn(x: Tensor) -> Tensor:
    half = DIM // 2
    angles = torch.arange(len(x))[:, None] * THETA ** (-torch.arange(half) / half)
    angles = angles.to(x.dtype)
    first, second = x[:, :half], x[:, half:]
    return torch.cat(
        [
            first * angles.cos() - second * angles.sin(),
            second * angles.cos() + first * angles.sin(),
        ],
        -1,
    )
