"""Strict verification: commit exactly what the target would have produced.

Greedy: accept x_i iff x_i = argmax z_i (by token id).
Sampling: accept with probability min(1, p(x)/q(x)); on rejection draw from norm((p - q)+)
(Leviathan et al. 2023; Chen et al. 2023). Bonus token: from p. No limits: it is the limit.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lenity.policies.base import Policy
from lenity.sampling import point_mass
from lenity.types import Draft, Scores

_RESIDUAL_FLOOR = 1e-8
"""Residual mass below this is rounding: p and q agree, and p itself is drawn from."""


class Strict(Policy):
    """The target's own law, token for token."""

    idea: ClassVar[str] = "commit only what the target would have produced"
    paper: ClassVar[str] = "Leviathan et al. 2023, arXiv 2211.17192"
    is_strict: ClassVar[bool] = True

    type: Literal["strict"] = "strict"

    def strict_limit(self) -> Strict:
        """Return itself."""
        return self

    def accepts(self, draft: Draft, scores: Scores) -> Bool[Tensor, "B G"]:
        """Return False everywhere: no mismatch passes."""
        return torch.zeros_like(scores.regret, dtype=torch.bool)

    def accept_prob(
        self,
        target_probs: Float[Tensor, "*N V"],
        draft_probs: Float[Tensor, "*N V"] | None,
        token_ids: Int[Tensor, "*N"],
    ) -> Float[Tensor, "*N"]:
        """Return min(1, p(x)/q(x)). A point mass has q(x) = 1."""
        ids = token_ids.unsqueeze(-1)
        p = target_probs.gather(-1, ids).squeeze(-1)
        if draft_probs is None:
            return p
        q = draft_probs.gather(-1, ids).squeeze(-1)
        # x was drawn from q, so q(x) > 0; padding may hold anything and must not divide by zero
        return (p / q.clamp_min(torch.finfo(q.dtype).tiny)).clamp_max(1.0)

    def residual(
        self,
        target_probs: Float[Tensor, "*N V"],
        draft_probs: Float[Tensor, "*N V"] | None,
        token_ids: Int[Tensor, "*N"],
    ) -> Float[Tensor, "*N V"]:
        """Return norm((p - q)+), or p where that has no mass."""
        if draft_probs is None:
            draft_probs = point_mass(token_ids, target_probs.shape[-1])
        left = (target_probs - draft_probs).clamp_min(0)
        mass = left.sum(-1, keepdim=True)
        return torch.where(mass > _RESIDUAL_FLOOR, left / mass.clamp_min(1e-30), target_probs)
