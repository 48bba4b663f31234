"""Tiny EAGLE-3 checkpoints with random weights, in any dialect, for any target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

SHAPE = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "head_dim": 12,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
}


def eagle3_tensors(
    shape: Mapping[str, Any],
    *,
    target_size: int,
    vocab_size: int,
    num_taps: int = 3,
    draft_vocab_size: int | None = None,
    seed: int = 0,
    first: str = "midlayer.",
) -> dict[str, Tensor]:
    """Return a head's tensors, wide enough that its context is heard."""
    size, inner, dim = shape["hidden_size"], shape["intermediate_size"], shape["head_dim"]
    heads, kv = shape["num_attention_heads"] * dim, shape["num_key_value_heads"] * dim
    shapes = {
        "fc.weight": (size, num_taps * target_size),
        "norm.weight": (size,),
        "lm_head.weight": (draft_vocab_size or vocab_size, size),
        "embed_tokens.weight": (vocab_size, size),
    }
    for layer in range(shape["num_hidden_layers"]):
        prefix, wide = (first, 2 * size) if layer == 0 else (f"layers.{layer}.", size)
        shapes |= {
            f"{prefix}input_layernorm.weight": (size,),
            f"{prefix}post_attention_layernorm.weight": (size,),
            f"{prefix}self_attn.q_proj.weight": (heads, wide),
            f"{prefix}self_attn.k_proj.weight": (kv, wide),
            f"{prefix}self_attn.v_proj.weight": (kv, wide),
            f"{prefix}self_attn.o_proj.weight": (size, heads),
            f"{prefix}mlp.gate_proj.weight": (inner, size),
            f"{prefix}mlp.up_proj.weight": (inner, size),
            f"{prefix}mlp.down_proj.weight": (size, inner),
        }
    shapes[f"{first}hidden_norm.weight"] = (size,)
    generator = torch.Generator().manual_seed(seed)
    tensors = {key: random_tensor(shape, generator) for key, shape in shapes.items()}
    if draft_vocab_size is not None:
        kept = torch.randperm(vocab_size, generator=generator)[:draft_vocab_size].sort().values
        tensors["d2t"] = kept - torch.arange(draft_vocab_size)
        tensors["t2d"] = torch.isin(torch.arange(vocab_size), kept)
    return tensors


def random_tensor(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    drawn = torch.randn(shape, generator=generator)
    return 1 + 0.1 * drawn if len(shape) == 1 else drawn * 1.5 * shape[-1] ** -0.5


def write(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    save_file(dict(tensors), folder / "model.safetensors")
    return folder


def eagle3_folder(
    folder: Path,
    *,
    target_size: int,
    vocab_size: int,
    config: Mapping[str, Any] | None = None,
    **options: Any,
) -> Path:
    """Write a flat (SafeAILab) checkpoint; ``config`` overrides its settings."""
    written = {**SHAPE, "vocab_size": vocab_size, **(config or {})}
    tensors = eagle3_tensors(written, target_size=target_size, vocab_size=vocab_size, **options)
    return write(folder, written, tensors)
