"""Top-k acceptance: accept a draft token among the target's k largest logits.

The scalar loop: stop at the first i whose draft token has k or more tokens ranked before it.
Ties at the k-th place go to the lower token id, so that the rule is one function of the logits.
Limits: k = 1 is strict; k = V accepts every finite draft token. Bonus token: the target's argmax.
Baseline of the verifier-skipping paper, arXiv 2608.14787 (k in {2, 3, 5}).
"""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Bool
from pydantic import Field
from torch import Tensor

from lenity.errors import ShapeError
from lenity.policies.base import RelaxedPolicy
from lenity.types import Draft, Scores


class TopK(RelaxedPolicy):
    """Membership in the target's k best tokens."""

    idea: ClassVar[str] = "accept while x is among the target's k largest logits"
    paper: ClassVar[str] = "baseline of arXiv 2608.14787"
    needs: ClassVar[frozenset[str]] = frozenset({"draft_rank"})

    type: Literal["top_k"] = "top_k"
    k: int = Field(default=2, ge=1)
    """Number of best tokens that pass; 1 is strict"""

    def strict_limit(self) -> TopK:
        """Return the rule with k = 1."""
        return self.model_copy(update={"k": 1})

    def accepts(self, draft: Draft, scores: Scores) -> Bool[Tensor, "B G"]:
        """Return rank < k, ranks counted from 0."""
        if scores.draft_rank is None:
            raise ShapeError(
                "top_k expects scores.draft_rank, got None. Reduce the logits with "
                "needs={'draft_rank'}."
            )
        return scores.draft_rank < self.k
