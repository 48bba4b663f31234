"""Attention masks for rows of different lengths, in the form a model's forward takes.

In a slot cache the column of a token is its position, so a mask follows from the positions of the
queries alone. Every query sees at least itself, padding included: a row without any visible column
is NaN in fused attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far back a kind of layer looks.

    ``window`` positions, the query included; or to the start of the query's ``chunk``; or, when
    both are None, to the first token.
    """

    window: int | None = None
    chunk: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether a query sees every earlier token."""
        return self.window is None and self.chunk is None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskForm:
    """What a model wants as ``attention_mask``; found by trying, see probe.py.

    ``reaches`` maps layer kinds to how far they look. ``is_mapping``: the forward takes one mask
    per kind; otherwise all kinds share one tensor. ``is_additive``: 0 and the dtype's lowest
    number are added to the scores (eager attention); otherwise True means attend (SDPA).
    ``takes_none``: no mask at all is understood as causal when nothing needs hiding.
    """

    reaches: Mapping[str, Reach] = field(default_factory=lambda: {"full_attention": Reach()})
    is_mapping: bool = False
    is_additive: bool = False
    takes_none: bool = False

    @property
    def name(self) -> str:
        """Return the form in words, such as ``"dict of bool"``."""
        kind = "additive float" if self.is_additive else "bool"
        return f"dict of {kind}" if self.is_mapping else f"{kind} tensor"


def causal_mask(
    positions: Int[Tensor, "B T"], width: int, reach: Reach
) -> Bool[Tensor, "B 1 T width"]:
    """Return which of ``width`` columns each query may attend to.

    A query at position p sees column c when c <= p, and p - c < window, or c lies in p's chunk.
    """
    columns = torch.arange(width, device=positions.device)
    queries = positions[:, None, :, None]
    mask = columns <= queries
    if reach.window is not None:
        mask &= columns > queries - reach.window
    if reach.chunk is not None:
        mask &= columns >= queries - queries % reach.chunk
    return mask


def additive(mask: Bool[Tensor, "*N"], dtype: torch.dtype) -> Tensor:
    """Return 0 where True and the dtype's lowest number elsewhere."""
    lowest = torch.finfo(dtype).min
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, lowest)


def build_masks(
    form: MaskForm, positions: Int[Tensor, "B T"], width: int, dtype: torch.dtype
) -> Tensor | dict[str, Tensor]:
    """Return the mask, or the masks per layer kind, for queries at ``positions``."""
    masks: dict[str, Tensor] = {}
    for kind, reach in form.reaches.items():
        mask = causal_mask(positions, width, reach)
        masks[kind] = additive(mask, dtype) if form.is_additive else mask
        if not form.is_mapping:
            return masks[kind]
    return masks
