"""MARS: accept the target's second best token where it is nearly as good as the best.

Accept x iff it is the argmax, or it is the second best and z_2 / z_1 > ratio, on raw logits with
z_1 > 0 and z_2 > 0 (MARS, arXiv 2601.15498, the paper's greedy rule; its theta is our ``ratio``).
The scalar loop: stop at the first mismatch whose token is not second, or whose ratio is too small.

A ratio of logits is no property of the law: adding a constant to a row changes it, and below 0 it
orders the wrong way round. That is why a row with z_2 <= 0 is strict; whoever wants a rule that
means the same for every model takes ``lenience``. A tie for second place goes to the lower id.
The authors' released code differs from their paper: greedy decoding is strict there, and sampling
relaxes (after logits processors). This is the paper's rule, greedy only.

Limits: ratio = 1 is strict by token id (z_2 / z_1 > 1 never holds, a tie included); ratio = 0
accepts every second best token with a positive logit, and never a third. ``budget`` holds it to a
ledger. Bonus token: the target's argmax.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from jaxtyping import Bool
from pydantic import Field
from torch import Tensor

from lenity.errors import ShapeError
from lenity.policies.local import LocalPolicy
from lenity.types import Draft, Scores


class Margin(LocalPolicy):
    """The second best token, where its raw logit is close to the best one's."""

    idea: ClassVar[str] = "accept the second best token where z_2 / z_1 > ratio"
    paper: ClassVar[str] = "MARS, arXiv 2601.15498 (greedy rule of the paper)"
    needs: ClassVar[frozenset[str]] = frozenset({"draft_rank"})

    type: Literal["margin"] = "margin"
    ratio: float = Field(default=0.9, ge=0, le=1)
    """theta, largest z_2 / z_1 that is still rejected; 1 is strict"""

    def strict_limit(self) -> Margin:
        """Return the rule with ratio 1."""
        return self.model_copy(update={"ratio": 1.0})

    def accepts(self, draft: Draft, scores: Scores) -> Bool[Tensor, "B G"]:
        """Return where the draft token is second and z_2 / z_1 > ratio, in float64."""
        if scores.draft_rank is None:
            raise ShapeError(
                "margin expects scores.draft_rank, got None. Reduce the logits with "
                "needs={'draft_rank'}."
            )
        second = scores.draft_logit.to(torch.float64)  # the draft token's own, where it is second
        is_close = second / scores.top_logit[:, :-1].to(torch.float64) > self.ratio
        return (scores.draft_rank == 1) & (second > 0) & is_close
