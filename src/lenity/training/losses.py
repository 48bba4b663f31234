"""Losses of drafters, position by position; every one is a pure function of tensors.

p is the target's law over the drafter's vocabulary, q the drafter's.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


def soft_cross_entropy(
    logits: Float[Tensor, "*N D"], p: Float[Tensor, "*N D"]
) -> Float[Tensor, "*N"]:
    """Return -sum_v p(v) log q(v), in nats."""
    logits = logits.to(torch.float32)
    return logits.logsumexp(-1) - (p * logits).sum(-1)


def hard_cross_entropy(
    logits: Float[Tensor, "*N D"], rows: Int[Tensor, "*N"]
) -> Float[Tensor, "*N"]:
    """Return -log q(row), in nats; 0 where there is no row (-1)."""
    flat = logits.to(torch.float32).flatten(0, -2)
    loss = F.cross_entropy(flat, rows.flatten(), ignore_index=-1, reduction="none")
    return loss.view(rows.shape)


def total_variation(logits: Float[Tensor, "*N D"], p: Float[Tensor, "*N D"]) -> Float[Tensor, "*N"]:
    """Return half of sum_v |p(v) - q(v)|: the chance that a draw from q is rejected."""
    return 0.5 * (p - logits.to(torch.float32).softmax(-1)).abs().sum(-1)


def weighted_mean(
    losses: Float[Tensor, "*N K"], counts: Bool[Tensor, "*N K"], weights: Float[Tensor, " K"]
) -> Float[Tensor, ""]:
    """Return the mean over what counts at each position, summed with the positions' weights."""
    flat, counted = losses.flatten(0, -2), counts.flatten(0, -2).to(losses.dtype)
    per_position = (flat * counted).sum(0) / counted.sum(0).clamp_min(1)
    return (per_position * weights).sum()


@torch.no_grad()
def is_best(logits: Float[Tensor, "*N D"], rows: Int[Tensor, "*N"]) -> Bool[Tensor, "*N"]:
    """Return whether a row has the largest logit, alone or with others; never where it is -1."""
    own = logits.gather(-1, rows.clamp_min(0)[..., None])[..., 0]
    return (own >= logits.amax(-1)) & (rows >= 0)
