"""How far two laws are apart at a position, four ways; p is the target's, q the drafter's.

    kl          KL(p || q) = sum_v p log(p / q)                      nats, may be infinite
    reverse_kl  KL(q || p)                                           nats, may be infinite
    js          (KL(p || m) + KL(q || m)) / 2 with m = (p + q) / 2   nats, at most log 2
    tv          sum_v |p - q| / 2                                    at most 1

0 log 0 is 0. Where the draft token x was certain, q is the point mass on x, and with s = p(x):
kl is infinite (unless s = 1), reverse_kl = -log s, tv = 1 - s, and js is
(s log(2s / (1 + s)) + (1 - s) log 2 + log(2 / (1 + s))) / 2: tests of the token, not of two laws.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

DivergenceName = Literal["kl", "reverse_kl", "js", "tv"]
DIVERGENCES: tuple[DivergenceName, ...] = ("kl", "reverse_kl", "js", "tv")
"""The order of the last axis of ``Scores.divergence``."""


def divergences(
    target_logprobs: Float[Tensor, "*N V"],
    draft_logprobs: Float[Tensor, "*N V"] | None,
    token_ids: Int[Tensor, "*N"],
) -> Float[Tensor, "*N K"]:
    """Return every divergence of DIVERGENCES, in its order, from two log-softmaxes.

    Without the drafter's, its law is the point mass on the token. NaN where a law is none.
    """
    if draft_logprobs is None:
        own = target_logprobs.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1)
        found = _from_certainty(own)
    else:
        found = _between(target_logprobs, draft_logprobs)
    # rounding takes equal laws a little below 0; NaN stays
    return torch.stack([found[name] for name in DIVERGENCES], -1).clamp_min(0)


def _between(
    target: Float[Tensor, "*N V"], draft: Float[Tensor, "*N V"]
) -> dict[str, Float[Tensor, "*N"]]:
    p, q = target.exp(), draft.exp()
    middle = torch.logaddexp(target, draft) - math.log(2)
    return {
        "kl": _expected(p, target - draft),
        "reverse_kl": _expected(q, draft - target),
        "js": (_expected(p, target - middle) + _expected(q, draft - middle)) / 2,
        "tv": (p - q).abs().sum(-1) / 2,
    }


def _expected(law: Float[Tensor, "*N V"], gap: Float[Tensor, "*N V"]) -> Float[Tensor, "*N"]:
    """Return sum_v law * gap, where a token of probability 0 adds nothing."""
    return (law * gap).masked_fill(law == 0, 0).sum(-1)


def _from_certainty(logprob: Float[Tensor, "*N"]) -> dict[str, Float[Tensor, "*N"]]:
    """Return the divergences of a law that gives the draft token ``logprob`` nats."""
    share = logprob.exp()
    log_both = torch.log1p(share)  # of 1 + s
    head = (share * (logprob - log_both)).masked_fill(share == 0, 0)
    return {
        "kl": torch.where(logprob < 0, torch.inf, -logprob),
        "reverse_kl": -logprob,
        "js": (head - log_both) / 2 + math.log(2),
        "tv": 1 - share,
    }
