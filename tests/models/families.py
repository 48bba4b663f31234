"""Tiny random models of real architectures, built from their configs."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
WINDOWED = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"] * 2}

ATTENTION: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {}),
    "mistral-window": ("MistralConfig", "MistralForCausalLM", {"sliding_window": 8}),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", {**WINDOWED, "attn_impl": "eager"}),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", WINDOWED),
    "gpt-oss": (
        "GptOssConfig",
        "GptOssForCausalLM",
        {**WINDOWED, "num_local_experts": 4, "num_experts_per_tok": 2, "attn_impl": "eager"},
    ),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {"num_local_experts": 4}),
    "qwen3-moe": (
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    ),
}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1}
RECURRENT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mamba": ("MambaConfig", "MambaForCausalLM", {"state_size": 8, "head_dim": None}),
    "mamba2": ("Mamba2Config", "Mamba2ForCausalLM", {"num_heads": 8, "n_groups": 1}),
    "jamba": (
        "JambaConfig",
        "JambaForCausalLM",
        {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2, "mamba_dt_rank": 4},
    ),
    "qwen3-next": (
        "Qwen3NextConfig",
        "Qwen3NextForCausalLM",
        {
            "num_experts": 4,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
    ),
    "falcon-h1": ("FalconH1Config", "FalconH1ForCausalLM", {**MAMBA, "mamba_d_ssm": 64}),
    "bamba": ("BambaConfig", "BambaForCausalLM", {**MAMBA, "attn_layer_indices": [1]}),
    "lfm2": ("Lfm2Config", "Lfm2ForCausalLM", {"full_attn_idxs": [1, 3]}),
}


@cache
def build(family: str) -> PreTrainedModel:
    """Return the family's tiny model; tests share it and never change it."""
    return build_fresh(family)


def build_fresh(family: str, **changes: Any) -> PreTrainedModel:
    config_name, class_name, own = {**ATTENTION, **RECURRENT}[family]
    settings = {**SIZES, "pad_token_id": None, **own, **changes}
    implementation = settings.pop("attn_impl", None)
    settings = {name: value for name, value in settings.items() if value is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some recurrent families miss their CUDA kernels, loudly
        config = getattr(transformers, config_name)(**settings)
        with torch.random.fork_rng(devices=[]):
            module = getattr(transformers, class_name)._from_config(
                config, dtype=torch.float32, attn_implementation=implementation
            )
    return sharpen(module.eval())


@torch.no_grad()
def sharpen(module: PreTrainedModel) -> PreTrainedModel:
    """Draw weights so large that what attention sees decides the logits."""
    generator = torch.Generator().manual_seed(7)
    for parameter in module.parameters():
        if parameter.ndim >= 2:
            spread = 1.5 * parameter.shape[-1] ** -0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread)
    return module


@torch.no_grad()
def plain_logits(module: PreTrainedModel, token_ids: list[int]) -> torch.Tensor:
    """Return the logits of a forward that knows no cache, (T, V)."""
    return module(input_ids=torch.tensor([token_ids]), use_cache=False).logits[0]
