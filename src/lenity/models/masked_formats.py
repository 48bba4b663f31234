"""Published masked-diffusion checkpoints, read as stock Qwen2 and Llama modules.

Two dialects. Dream (and DiffuCoder) keeps Qwen2's names; it was adapted from a causal model, so its
prediction for a position is read one row to the left. LLaDA has names of its own and no shift. Both
attend in both directions. Their remote code is not needed and never run (Ye et al. 2025, "Dream
7B", arXiv 2508.15487; Gong et al. 2025, "DiffuCoder"; Nie et al. 2025, "LLaDA", arXiv 2502.09992).

What lenity trains is in Dream's layout and may say ``prefix_attention: causal``: committed tokens
then see only what is before them, and the block sees everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import torch

from lenity.errors import ConfigError, UnsupportedModelError
from lenity.models.heads.checkpoint import Checkpoint, listed


class MaskedFormat(StrEnum):
    """Published formats of masked-diffusion language models."""

    DREAM = "dream"  # Qwen2's names, biases on queries, keys and values
    LLADA = "llada"  # model.transformer.blocks.*, no biases


IS_SHIFTED = {
    "DreamModel": True,
    "DreamForCausalLM": False,
    "LLaDAModelLM": False,
}
"""Whether the prediction for position t is read from row t - 1, by architecture."""

_LLADA_TOP = {
    "model.embed_tokens.weight": "model.transformer.wte.weight",
    "model.norm.weight": "model.transformer.ln_f.weight",
    "lm_head.weight": "model.transformer.ff_out.weight",
}
_LLADA_PARTS = {
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
}
_LLADA_SWITCHES: dict[str, tuple[Any, ...]] = {
    "activation_type": ("silu",),
    "alibi": (False,),
    "attention_layer_norm": (False,),
    "block_type": ("llama",),
    "include_bias": (False,),
    "include_qkv_bias": (False,),
    "layer_norm_type": ("rms",),
    "rope": (True,),
    "scale_logits": (False,),
}
"""What LLaDA's config may say of a model that is a Llama; null and silence are as good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedConfig:
    """What a checkpoint says about itself, in one form whoever wrote it.

    ``words`` are arguments of the stock config class. ``special_ids`` are the ids the config gives
    a role other than text or its end: mask, padding, beginning.
    """

    format: MaskedFormat
    words: Mapping[str, Any]
    mask_token_id: int
    special_ids: frozenset[int]
    is_shifted: bool
    prefix: Literal["full", "causal"] = "full"

    @property
    def is_tied(self) -> bool:
        """Whether the LM head is the embedding."""
        return bool(self.words["tie_word_embeddings"])

    def key(self, name: str) -> str:
        """Return the key under which a parameter of the stock module is published."""
        if name == "lm_head.weight" and self.is_tied:
            name = "model.embed_tokens.weight"
        if self.format is MaskedFormat.DREAM:
            return name
        if name in _LLADA_TOP:
            return _LLADA_TOP[name]
        index, _, rest = name.removeprefix("model.layers.").partition(".")
        part, _, kind = rest.rpartition(".")
        return f"model.transformer.blocks.{index}.{_LLADA_PARTS[part]}.{kind}"


def read_masked_config(checkpoint: Checkpoint, is_shifted: bool | None = None) -> MaskedConfig:
    """Return what a checkpoint says about itself; ``is_shifted`` overrides the table.

    Raises UnsupportedModelError for another architecture, ConfigError for a config that lacks
    what is needed.
    """
    config = checkpoint.config
    kind = str(config.get("model_type", "")).lower()
    names = config.get("architectures") or []
    architecture = str(names[0]) if names else ""
    if kind not in tuple(MaskedFormat):
        raise UnsupportedModelError(
            f"Expected a masked-diffusion model (model_type Dream or llada), got model_type "
            f"{config.get('model_type')!r}, architecture {architecture or 'unnamed'!r} in "
            f"{checkpoint.folder}. Causal models are drafted with by 'autoregressive'."
        )
    found = MaskedFormat(kind)
    words = (_dream_words if found is MaskedFormat.DREAM else _llada_words)(checkpoint)
    mask = _number(checkpoint, "mask_token_id")
    if mask >= words["vocab_size"]:
        raise ConfigError(
            f"Expected mask_token_id below the {words['vocab_size']} rows of the embedding, got "
            f"{mask} in {checkpoint.folder / 'config.json'}. Download the file again."
        )
    prefix = config.get("prefix_attention", "full")
    if prefix not in ("full", "causal"):
        raise UnsupportedModelError(
            f"Expected prefix_attention full or causal, got {prefix!r} in {checkpoint.folder}. "
            f"This is a variant that lenity does not know."
        )
    named = (mask, config.get("pad_token_id"), config.get("bos_token_id"))
    ends = config.get("eos_token_id")
    ends = set(ends) if isinstance(ends, list) else {ends}
    return MaskedConfig(
        format=found,
        words=words,
        mask_token_id=mask,
        # Some pad with the end of text, which has to stay possible.
        special_ids=frozenset(i for i in named if i is not None and (i == mask or i not in ends)),
        is_shifted=_find_shift(checkpoint, architecture) if is_shifted is None else is_shifted,
        prefix=prefix,
    )


def build_module(config: MaskedConfig) -> Any:
    """Return the stock causal LM without weights, on the meta device; see ``settle``."""
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    with torch.device("meta"):
        if config.format is MaskedFormat.DREAM:
            return Qwen2ForCausalLM(Qwen2Config(**config.words))
        return LlamaForCausalLM(LlamaConfig(**config.words))


def settle(module: Any, device: torch.device) -> None:
    """Make what a module computes from its config, which no checkpoint holds; tie what is tied."""
    decoder = module.model
    decoder.rotary_emb = type(decoder.rotary_emb)(config=module.config).to(device)
    if module.config.tie_word_embeddings:
        module.lm_head.weight = decoder.embed_tokens.weight


def _dream_words(checkpoint: Checkpoint) -> dict[str, Any]:
    config = checkpoint.config
    heads = _number(checkpoint, "num_attention_heads")
    if config.get("use_sliding_window"):
        raise UnsupportedModelError(
            f"Expected full attention, got use_sliding_window in {checkpoint.folder}. lenity runs "
            f"masked-diffusion models that see the whole sequence."
        )
    return {
        "vocab_size": _number(checkpoint, "vocab_size"),
        "hidden_size": _number(checkpoint, "hidden_size"),
        "intermediate_size": _number(checkpoint, "intermediate_size"),
        "num_hidden_layers": _number(checkpoint, "num_hidden_layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": int(config.get("num_key_value_heads") or heads),
        "max_position_embeddings": int(config.get("max_position_embeddings") or 32768),
        "rms_norm_eps": float(config.get("rms_norm_eps") or 1e-6),
        "hidden_act": config.get("hidden_act") or "silu",
        "rope_parameters": _rope(config, 10000.0),
        "tie_word_embeddings": bool(config.get("tie_word_embeddings", False)),
        **_QUIET,
    }


def _llada_words(checkpoint: Checkpoint) -> dict[str, Any]:
    config = checkpoint.config
    odd = [
        f"{name}={config[name]!r}"
        for name, known in _LLADA_SWITCHES.items()
        if config.get(name) is not None and config[name] not in known
    ]
    if odd:
        raise UnsupportedModelError(
            f"Expected a LLaDA that is a Llama with full attention, got {listed(odd)} in "
            f"{checkpoint.folder}. This is a variant that lenity does not know."
        )
    heads, size = _number(checkpoint, "n_heads"), _number(checkpoint, "d_model")
    inner = config.get("mlp_hidden_size") or int(config.get("mlp_ratio", 4)) * size
    return {
        "vocab_size": int(config.get("embedding_size") or _number(checkpoint, "vocab_size")),
        "hidden_size": size,
        "intermediate_size": int(inner),
        "num_hidden_layers": _number(checkpoint, "n_layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": int(config.get("n_kv_heads") or heads),
        "max_position_embeddings": int(config.get("max_sequence_length") or 4096),
        "rms_norm_eps": float(config.get("rms_norm_eps") or 1e-5),
        "hidden_act": "silu",
        "rope_parameters": _rope(config, 10000.0),
        "tie_word_embeddings": bool(config.get("weight_tying", False)),
        **_QUIET,
    }


_QUIET: dict[str, Any] = {
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "use_cache": False,
    "attn_implementation": "sdpa",  # takes a boolean mask; eager reads it as numbers
}
"""What stock classes would otherwise decide for themselves."""


def _rope(config: Mapping[str, Any], theta: float) -> dict[str, Any]:
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    theta = config.get("rope_theta") or scaling.get("rope_theta") or theta
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    rest = {name: value for name, value in scaling.items() if name != "type"}
    return {**rest, "rope_type": kind, "rope_theta": float(theta)}


def _number(checkpoint: Checkpoint, name: str) -> int:
    value = checkpoint.config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(
            f"Expected a whole number {name!r} in {checkpoint.folder / 'config.json'}, got "
            f"{value!r}. Take the config.json that was published with the weights."
        )
    return value


def _find_shift(checkpoint: Checkpoint, architecture: str) -> bool:
    if architecture not in IS_SHIFTED:
        raise UnsupportedModelError(
            f"Expected one of the architectures {listed(IS_SHIFTED)}, got {architecture!r} in "
            f"{checkpoint.folder}: whether its logits are shifted is not known. Say so with "
            f"shift=true or shift=false; draft-check shows which one fits."
        )
    return IS_SHIFTED[architecture]
