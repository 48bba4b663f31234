"""Signals: from a draft to per-position scores, and from those to the score of a prefix.

raw: q_j is the drafter's probability of its token when it was chosen (Draft.confidence) and C_k the
geometric mean of q_1..q_k, which may fall and rise again: every k is looked at (arXiv 2608.14787,
Table 1).
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from lenity.errors import ConfigError
from lenity.skipping.base import GatedRule, SkipContext


class Raw(GatedRule):
    """The drafter's own confidence; nothing is learned."""

    idea: ClassVar[str] = "skip while the drafter is sure of every token and of the whole prefix"
    paper: ClassVar[str] = "raw confidence of arXiv 2608.14787"

    type: Literal["raw"] = "raw"

    def signal(self, context: SkipContext) -> Float[Tensor, "B G"]:
        """Return Draft.confidence. Raises ConfigError when the drafter gives none."""
        if context.draft.confidence is None:
            raise ConfigError(
                "Skip rule 'raw' expects a drafter that gives a confidence per token, got a draft "
                "without. Use masked_diffusion, autoregressive or ngram, or the rule 'periodic'."
            )
        return context.draft.confidence

    def prefix_scores(self, scores: Float[Tensor, "B G"]) -> Float[Tensor, "B G"]:
        """Return the geometric mean of q_1..q_k."""
        return geometric_mean(scores)


def geometric_mean(scores: Float[Tensor, "B G"]) -> Float[Tensor, "B G"]:
    """Return (prod_{j<=k} q_j)^(1/k), summed as logarithms."""
    count = torch.arange(1, scores.shape[-1] + 1, device=scores.device)
    return (scores.log().cumsum(-1) / count).exp()
