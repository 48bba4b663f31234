"""Attention of many short drafts over one text, in one pass.

While decoding, a draft's queries see the committed columns up to a place, and columns the draft
wrote itself. In training, A drafts begin at different places of one row; each sees its own part of
the row's columns, and its own columns only.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lenity.models.heads.blocks import Attention


def attend_drafts(
    attention: Attention,
    queries: Float[Tensor, "B heads A Q dim"],
    context: tuple[Float[Tensor, "B kv T dim"], Float[Tensor, "B kv T dim"]],
    own: tuple[Float[Tensor, "B kv A S dim"], Float[Tensor, "B kv A S dim"]] | None,
    sees: Bool[Tensor, "B A T"],
) -> Float[Tensor, "B A Q H"]:
    """Return the projected mixture of values.

    ``context`` are keys and values of the row, ``sees`` which of its columns a draft may attend
    to; ``own`` are those of the drafts, all of which their queries see.
    """
    keys, values = context
    grouped = queries.unflatten(1, (keys.shape[1], -1)) * queries.shape[-1] ** -0.5
    shape = grouped.shape[:-1]
    far = (grouped.flatten(2, 4) @ keys.transpose(-1, -2)).unflatten(2, shape[2:])
    far = far.to(torch.float32).masked_fill(~sees[:, None, None, :, None], -float("inf"))
    width = keys.shape[2]
    scores = far
    if own is not None:
        near = _scores(grouped, own[0]).to(torch.float32)
        scores = torch.cat([far, near], -1)
    weights = scores.softmax(-1).to(values.dtype)
    mixed = (weights[..., :width].flatten(2, 4) @ values).unflatten(2, shape[2:])
    if own is not None:
        mixed = mixed + _mix(weights[..., width:], own[1])
    mixed = mixed.flatten(1, 2)  # B heads A Q dim
    return attention.o_proj(mixed.permute(0, 2, 3, 1, 4).flatten(3))


def _scores(grouped: Tensor, keys: Tensor) -> Tensor:
    """Return (B, kv, group, A, Q, S). One query a draft is too little for a matrix product."""
    if grouped.shape[4] == 1:
        return (grouped * keys[:, :, None]).sum(-1)[..., None, :]
    return grouped @ keys[:, :, None].transpose(-1, -2)


def _mix(weights: Tensor, values: Tensor) -> Tensor:
    """Return (B, kv, group, A, Q, dim)."""
    if weights.shape[4] == 1:
        return (weights.transpose(-1, -2) * values[:, :, None]).sum(-2, keepdim=True)
    return weights @ values[:, :, None]
