"""What a family of drafters says about its training: one class a family, and their registry."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from lenity.models.base import LanguageModel
from lenity.models.heads.blocks import BlockShape, read_rotary
from lenity.registry import Registry, build_knobs, join_spec, split_spec
from lenity.training.batches import ReplyBatch
from lenity.training.tables import TargetTables

RECIPES = Registry(
    "recipe",
    {
        "dflash": "lenity.training.dspark:DFlashRecipe",
        "dspark": "lenity.training.dspark:DSparkRecipe",
        "eagle3": "lenity.training.eagle3:Eagle3Recipe",
        "masked_diffusion": "lenity.training.masked_diffusion:MaskedDiffusionRecipe",
        "medusa": "lenity.training.medusa:MedusaRecipe",
    },
)
"""Families that can be trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one batch gave: the loss in nats, and which draft tokens are the target's.

    ``accuracy[k]`` is the share of draft tokens k that are right given right ones before them,
    ``num_bases`` how many drafts that is of.
    """

    loss: Float[Tensor, ""]
    accuracy: Float[Tensor, " K"]
    num_bases: int

    @classmethod
    def of(
        cls,
        loss: Float[Tensor, ""],
        hits: Bool[Tensor, "B M K"],
        is_there: Bool[Tensor, "B M K"],
    ) -> Outcome:
        """Count ``hits`` (draft token k behind a base is the reply's) where there is such a token.

        The drafts were made from the reply's own tokens, so those before are right.
        """
        counts = is_there.flatten(0, 1).sum(0).clamp_min(1)
        return cls(
            loss=loss,
            accuracy=(hits & is_there).flatten(0, 1).sum(0) / counts,
            num_bases=int(is_there[..., 0].sum()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A drafter as it is published: config.json and tensors under their published names."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    file: str = "model.safetensors"


class Recipe(BaseModel):
    """How a family of drafters is built and trained; frozen, and refusing what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    type: str
    """Registered name of the family"""
    draft_vocab_size: int | None = Field(default=4096, ge=1)
    """Tokens the drafter knows, the most frequent of the replies; none keeps all"""

    @property
    @abstractmethod
    def depth(self) -> int:
        """Draft tokens that training looks at."""

    @abstractmethod
    def tapped(self, num_layers: int) -> tuple[int, ...]:
        """Return the target's layers to capture."""

    @abstractmethod
    def build(self, target: LanguageModel, tables: TargetTables, seed: int) -> nn.Module:
        """Return an untrained drafter in float32 on the target's device."""

    @abstractmethod
    def outcome(
        self, head: Any, batch: ReplyBatch, tables: TargetTables, draw: torch.Generator
    ) -> Outcome:
        """Return the loss of a batch."""

    @abstractmethod
    def hits(self, head: Any, batch: ReplyBatch, tables: TargetTables) -> Bool[Tensor, "B M K"]:
        """Return which draft tokens behind each base are the reply's, given the ones before."""

    @abstractmethod
    def publish(self, head: Any, target: LanguageModel, tables: TargetTables) -> Published:
        """Return the drafter in the layout it is published in."""

    @property
    def spec(self) -> str:
        """Return the recipe in the spelling of the command line, defaults left out."""
        return join_spec(self.type, self.model_dump(exclude={"type"}, exclude_defaults=True))


def recipe(spec: str | Recipe) -> Recipe:
    """Return the recipe a spec names, e.g. ``recipe("eagle3:unroll=4")``.

    Raises RegistryError for an unknown name, ConfigError for an unknown or unusable knob.
    """
    if isinstance(spec, Recipe):
        return spec
    name, knobs = split_spec(spec)
    built: Recipe = build_knobs(RECIPES.load(name), knobs, f"recipe {name!r}")
    return built


def layer_words(
    target: LanguageModel, num_layers: int, intermediate_size: int | None
) -> dict[str, Any]:
    """Return the part of a config that describes a drafter's layers, shaped as the target's."""
    config = getattr(getattr(target, "module", None), "config", None)
    config = config.get_text_config(decoder=True) if config is not None else None
    size = target.hidden_size
    heads = int(getattr(config, "num_attention_heads", None) or max(1, size // 64))
    rope = getattr(config, "rope_parameters", None) or {}
    theta = rope.get("rope_theta") or getattr(config, "rope_theta", None) or 10000.0
    inner = intermediate_size or getattr(config, "intermediate_size", None) or 4 * size
    return {
        "model_type": "llama",
        "hidden_size": size,
        "intermediate_size": int(inner),
        "num_hidden_layers": num_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": int(getattr(config, "num_key_value_heads", None) or heads),
        "head_dim": int(getattr(config, "head_dim", None) or size // heads),
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": float(theta),
        "max_position_embeddings": target.max_positions or 4096,
        "vocab_size": target.vocab_size,
        "tie_word_embeddings": False,
        "bos_token_id": getattr(config, "bos_token_id", None),
        "eos_token_id": min(target.eos_token_ids, default=None),
    }


def shape_of(words: Mapping[str, Any], *, has_qk_norm: bool = False) -> BlockShape:
    """Return the shape that ``layer_words`` describes."""
    return BlockShape(
        hidden_size=words["hidden_size"],
        num_heads=words["num_attention_heads"],
        num_kv_heads=words["num_key_value_heads"],
        head_dim=words["head_dim"],
        intermediate_size=words["intermediate_size"],
        windows=(None,) * words["num_hidden_layers"],
        rotary=read_rotary(words, words["head_dim"]),
        norm_eps=words["rms_norm_eps"],
        max_positions=words["max_position_embeddings"],
        has_qk_norm=has_qk_norm,
    )


def initialise(module: nn.Module, seed: int) -> None:
    """Draw linear maps and embeddings from N(0, 1 / inputs), the maps into the residual a tenth.

    Every parameter has its own generator, so that adding one changes no other. Norms are 1.
    """
    for index, (name, parameter) in enumerate(module.named_parameters()):
        draw = torch.Generator().manual_seed(seed * 1_000_003 + index)
        if name.endswith("bias"):
            parameter.data.zero_()
        elif parameter.ndim < 2:
            parameter.data.fill_(1)
        else:
            scale = parameter.shape[-1] ** -0.5
            scale *= 0.1 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1
            parameter.data.copy_(torch.randn(parameter.shape, generator=draw) * scale)


def vocabulary_map(kept_ids: Int[Tensor, " D"], vocab_size: int) -> dict[str, Tensor]:
    """Return d2t and t2d of a reduced vocabulary, nothing for the whole one."""
    if len(kept_ids) == vocab_size:
        return {}
    kept = kept_ids.cpu()
    rows = torch.arange(len(kept))
    return {"d2t": kept - rows, "t2d": torch.isin(torch.arange(vocab_size), kept)}
