"""Which published format a drafter checkpoint has, told from its config and its keys.

Formats differ by who wrote them, since the same tensors mean different things: see the reader of
each family. What lenity cannot run is refused here, by its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from lenity.errors import UnsupportedModelError
from lenity.models.heads.checkpoint import Checkpoint, listed

_Config = Mapping[str, Any]


class Format(StrEnum):
    """Published formats of drafter checkpoints."""

    EAGLE3_SAFEAI = "eagle3-safeai"  # SafeAILab, SpecForge, AngelSlim, NVIDIA: midlayer.*, flat
    EAGLE3_SPECULATORS = "eagle3-speculators"  # layers.0.*, nested config
    EAGLE3_DEEPSPEC = "eagle3-deepspec"  # layers.0.* with q/k norms, full vocabulary, flat
    PEAGLE = "peagle"  # EAGLE-3 with mask_hidden: all draft tokens in one pass
    DFLASH_ZLAB = "dflash-zlab"  # z-lab, SpecForge: flat with dflash_config
    DFLASH_SPECULATORS = "dflash-speculators"  # nested config
    DFLASH_DEEPSPEC = "dflash-deepspec"  # flat, own embedding and head, markov_rank 0
    DSPARK_DEEPSPEC = "dspark-deepspec"  # flat, with a Markov head
    DSPARK_SPECULATORS = "dspark-speculators"  # nested config, with a Markov head
    DSPARK_SPECFORGE = "dspark-specforge"  # dflash_config with projector_type dspark
    MEDUSA = "medusa"  # heads 0.0.linear.weight ...

    @property
    def family(self) -> str:
        """Return the drafter that runs the format: eagle3, dflash, dspark or medusa."""
        return "eagle3" if self is Format.PEAGLE else self.value.partition("-")[0]


def detect_format(config: _Config, keys: Iterable[str]) -> Format:
    """Return the format of a checkpoint.

    ``config`` is its config.json, ``keys`` the names of its tensors. Raises UnsupportedModelError
    naming the variant where lenity has no forward for it.
    """
    keys = frozenset(key.removeprefix("model.") for key in keys)
    for variant, is_it in _REFUSED.items():
        if is_it(config, keys):
            raise UnsupportedModelError(
                f"Expected a drafter in one of the formats {', '.join(Format)}, got {variant}. "
                f"lenity has no forward for it: take another drafter for this target."
            )
    for found, is_it in _KNOWN.items():
        if is_it(config, keys):
            return found
    raise UnsupportedModelError(
        f"Expected a drafter in one of the formats {', '.join(Format)}, got architectures "
        f"{config.get('architectures')} with the tensors {listed(sorted(keys))}. Check that the "
        f"path is a drafter's; a whole language model drafts with 'autoregressive'."
    )


def format_of(checkpoint: Checkpoint, *expected: Format) -> Format:
    """Return the checkpoint's format, one of the expected ones. Raises UnsupportedModelError."""
    found = detect_format(checkpoint.config, checkpoint.keys)
    if found not in expected:
        raise UnsupportedModelError(
            f"Expected a checkpoint in one of the formats {', '.join(expected)}, got {found} in "
            f"{checkpoint.folder}. Use the drafter {found.family!r} for it."
        )
    return found


def _holds(keys: frozenset[str], *parts: str) -> bool:
    """Return whether a dotted part, or a prefix of keys that ends in a dot, is there."""
    return any(part in f".{key}." for key in keys for part in parts)


def _says(config: _Config, word: str) -> bool:
    """Return whether the architecture, model type or projector is called so."""
    names = [
        *(config.get("architectures") or ()),
        config.get("speculators_model_type"),
        config.get("model_type"),
        config.get("projector_type"),
        (config.get("dflash_config") or {}).get("projector_type"),
    ]
    return any(word in str(name).lower() for name in names)


_REFUSED: Mapping[str, Callable[[_Config, frozenset[str]], bool]] = {
    "DFlash2 (attention_conv, mlp_conv, candidate_selector)": lambda config, keys: (
        _holds(keys, "attention_conv.", "mlp_conv.", "candidate_selector.")
        or _says(config, "dflash2")
    ),
    "XPress (refiner_head)": lambda config, keys: (
        _holds(keys, ".refiner_head.") or _says(config, "xpress")
    ),
    "Domino (prefix_gru, embed_proj)": lambda config, keys: (
        _holds(keys, ".prefix_gru.", ".embed_proj.") or _says(config, "domino")
    ),
    "Hydra heads": lambda config, keys: _holds(keys, ".hydra_head."),
    "an MTP layer": lambda config, keys: (
        _holds(keys, ".mtp.", ".mtp_layers.", ".eh_proj.", ".mtp_dspark.") or _says(config, "mtp")
    ),
    "EAGLE-1 or EAGLE-2": lambda config, keys: (
        "fc.weight" in keys
        and "layers.0.self_attn.q_proj.weight" in keys
        and not _holds(keys, ".hidden_norm.")
    ),
}
"""Variants that look like what we know and compute something else."""


def _is_speculators(config: _Config) -> bool:
    return "speculators_model_type" in config or "transformer_layer_config" in config


def _is_block(keys: frozenset[str]) -> bool:
    return "hidden_norm.weight" in keys and "fc.weight" in keys


def _is_markov(config: _Config, keys: frozenset[str]) -> bool:
    return _holds(keys, ".markov_head.") or bool(config.get("markov_rank"))


def _is_eagle3(keys: frozenset[str]) -> bool:
    first = {"midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight"}
    return bool(first & keys)


_KNOWN: Mapping[Format, Callable[[_Config, frozenset[str]], bool]] = {
    Format.MEDUSA: lambda config, keys: any(
        part.isdigit() and f"{part}.0.linear.weight" in key
        for key in keys
        for part in key.removeprefix("medusa_head.").split(".")[:1]
    ),
    Format.PEAGLE: lambda config, keys: "mask_hidden" in keys,
    Format.EAGLE3_SPECULATORS: lambda config, keys: _is_eagle3(keys) and _is_speculators(config),
    Format.EAGLE3_DEEPSPEC: lambda config, keys: (
        _is_eagle3(keys) and config.get("target_layer_ids") is not None
    ),
    Format.EAGLE3_SAFEAI: lambda config, keys: _is_eagle3(keys),
    Format.DSPARK_SPECULATORS: lambda config, keys: (
        _is_block(keys) and _is_speculators(config) and _is_markov(config, keys)
    ),
    Format.DFLASH_SPECULATORS: lambda config, keys: _is_block(keys) and _is_speculators(config),
    Format.DSPARK_SPECFORGE: lambda config, keys: (
        _is_block(keys) and "dflash_config" in config and _says(config, "dspark")
    ),
    Format.DFLASH_ZLAB: lambda config, keys: _is_block(keys) and "dflash_config" in config,
    Format.DSPARK_DEEPSPEC: lambda config, keys: _is_block(keys) and _is_markov(config, keys),
    Format.DFLASH_DEEPSPEC: lambda config, keys: _is_block(keys),
}
"""Asked in this order: the first that fits."""
