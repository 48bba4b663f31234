"""Medusa v1: independent heads on the state that enters the target's own LM head.

Head i reads the target's final, normed hidden state at position t and predicts token t + 2 + i;
token t + 1 is the target's own. A head is L residual blocks x + SiLU(Wx + b) and a linear map to
the vocabulary, its own or the target's (Cai et al. 2024, arXiv 2401.10774, section 2.1.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lenity.models.heads.checkpoint import Checkpoint, fill
from lenity.models.heads.formats import Format

PREFIX = "medusa_head."
"""What stands before a head's keys in a checkpoint of the whole model."""
_KEY = re.compile(r"(\d+)\.(\d+)\.(linear\.weight|linear\.bias|weight)")


class ResBlock(nn.Module):
    """x + SiLU(Wx + b)."""

    def __init__(self, size: int) -> None:
        """Map ``size`` features to as many."""
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x: Float[Tensor, "*N H"]) -> Float[Tensor, "*N H"]:
        """Return the input and its correction."""
        return x + nn.functional.silu(self.linear(x))


class MedusaHeads(nn.ModuleList):
    """Heads 0 .. K-1; parameters carry their published names, ``{head}.{layer}.…``."""

    def __init__(
        self, num_heads: int, num_blocks: int, hidden_size: int, vocab_size: int | None
    ) -> None:
        """Make ``num_heads`` heads; ``vocab_size`` None leaves the last map to the target."""
        super().__init__()
        for _ in range(num_heads):
            layers: list[nn.Module] = [ResBlock(hidden_size) for _ in range(num_blocks)]
            if vocab_size is not None:
                layers.append(nn.Linear(hidden_size, vocab_size, bias=False))
            self.append(nn.Sequential(*layers))
        self.num_blocks, self.hidden_size, self.vocab_size = num_blocks, hidden_size, vocab_size
        self.name = "medusa"

    def forward(
        self,
        hidden: Float[Tensor, "*N H"],
        lm_head: Callable[[Tensor], Tensor],
        count: int | None = None,
    ) -> Float[Tensor, "*N K V"]:
        """Return the logits of the first ``count`` heads (default: all).

        ``lm_head`` is the target's; heads that bring their own do not call it.
        """
        states = torch.stack([head(hidden) for head in list(self)[:count]], dim=-2)
        return states if self.vocab_size is not None else lm_head(states)

    def describe(self) -> dict[str, Any]:
        """Return what was understood of the checkpoint, as plain values."""
        return {
            "format": str(Format.MEDUSA),
            "heads": len(self),
            "draft_length": len(self),
            "residual_blocks": self.num_blocks,
            "hidden_size": self.hidden_size,
            "vocabulary_rows": self.vocab_size,
            "lm_head": "the target's" if self.vocab_size is None else "one a head",
            "parameters": sum(weight.numel() for weight in self.parameters()),
        }


def read_medusa(checkpoint: Checkpoint, *, dtype: torch.dtype, device: torch.device) -> MedusaHeads:
    """Return the Medusa heads of a checkpoint, frozen.

    Heads are counted from the keys: the number in published configs is not reliable. Residual
    blocks of a head that are not there share the weights of one that is, for training repeats one
    module and safetensors writes a shared tensor once. Raises ModelMismatchError, ConfigError.
    """
    prefix = PREFIX if any(key.startswith(PREFIX) for key in checkpoint.keys) else ""
    parts = _parts(checkpoint, prefix)
    num_heads = 1 + max(head for head, _, _ in parts)
    num_blocks, has_maps = _count_blocks(checkpoint, parts)
    hidden_size = checkpoint.shape(next(iter(parts.values())))[-1]
    vocab_size = None
    if has_maps:
        vocab_size = checkpoint.shape(f"{prefix}0.{num_blocks}.weight")[0]
    with torch.device("meta"):
        heads = MedusaHeads(num_heads, num_blocks, hidden_size, vocab_size)
    heads.name = checkpoint.name

    def key_of(own: str) -> str:
        head, layer, part = own.split(".", 2)
        blocks = [b for b in (int(layer), *range(num_blocks)) if (int(head), b, part) in parts]
        return parts[int(head), blocks[0], part] if blocks else prefix + own

    others = checkpoint.keys - set(parts.values()) if prefix else ()
    return fill(heads, checkpoint, names=key_of, ignored=others, dtype=dtype, device=device)


def _parts(checkpoint: Checkpoint, prefix: str) -> dict[tuple[int, int, str], str]:
    """Return the keys of all heads by head, layer and part. Raises ModelMismatchError."""
    parts = {}
    for key in sorted(checkpoint.keys):
        found = _KEY.fullmatch(key.removeprefix(prefix)) if key.startswith(prefix) else None
        if found is not None:
            parts[int(found[1]), int(found[2]), found[3]] = key
    if not parts:
        raise checkpoint.missing(["0.0.linear.weight"])
    return parts


def _count_blocks(
    checkpoint: Checkpoint, parts: Mapping[tuple[int, int, str], str]
) -> tuple[int, bool]:
    """Return how many residual blocks a head has, and whether it maps to the vocabulary itself.

    The map's key tells the number; without a map the config is asked too.
    """
    maps = sorted({layer for _, layer, part in parts if part == "weight"})
    if maps:
        return maps[0], True
    found = 1 + max(layer for _, layer, _ in parts)
    return max(found, int(checkpoint.config.get("medusa_num_layers") or 0)), False
