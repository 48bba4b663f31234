"""Greedy lenience: accept a draft token whose probability is close to the best one.

Accept x iff p(x) >= ratio * max p, i.e. -regret >= log(ratio)      (lenience l of Leviathan et
al. 2023, appendix A.5; greedy form as used by the verifier-skipping paper, arXiv 2608.14787).
The scalar loop: stop at the first i with r_i > -log(ratio) that is not the argmax.
Limits: ratio = 1 compares token ids, so a tie with another id is rejected, as in strict; ratio
-> 0 accepts every finite draft token. Bonus token: the target's argmax. Our ``ratio`` is l.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool
from pydantic import Field
from torch import Tensor

from lenity.policies.base import RelaxedPolicy
from lenity.types import Draft, Scores


class Lenience(RelaxedPolicy):
    """A likelihood-ratio test against the target's best token."""

    idea: ClassVar[str] = "accept while p(x) >= ratio * max p"
    paper: ClassVar[str] = "Leviathan et al. 2023, arXiv 2211.17192, lenience (greedy form)"

    type: Literal["lenience"] = "lenience"
    ratio: float = Field(default=0.9, gt=0, le=1)
    """l, smallest accepted p(x) / max p; 1 is strict"""

    def strict_limit(self) -> Lenience:
        """Return the rule with ratio 1."""
        return self.model_copy(update={"ratio": 1.0})

    def accepts(self, draft: Draft, scores: Scores) -> Bool[Tensor, "B G"]:
        """Return regret <= -log(ratio) in float64; nothing at ratio 1."""
        if self.ratio == 1:
            return torch.zeros_like(scores.regret, dtype=torch.bool)
        return scores.regret.to(torch.float64) <= -math.log(self.ratio)
