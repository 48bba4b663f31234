"""Fuzzy speculative decoding: accept where target and drafter say nearly the same.

Accept x iff Div(p, q) <= threshold, a test of the two laws and not of the token (Holsman et al.
2025, arXiv 2502.20704); at temperature 0 also where x is the target's argmax. Div is ``js``,
``kl`` = KL(p || q), ``reverse_kl`` = KL(q || p) or ``tv``; p is the target's law, q the drafter's
(policies/divergence.py). The published code's "JS" is not JS; by its authors the paper's figures
belong to the reverse KL. The scalar loop: stop at the first mismatch with Div > threshold.

Temperature 0: p and q are the softmax of the logits, before temperature and filters (processed,
both are point masses and there is nothing to compare). A drafter whose tokens are certain by
nature, such as ngram, has a point mass as q: then ``tv`` = 1 - p(x) and ``reverse_kl`` =
-log p(x) test the token after all, and ``kl`` is infinite, so that it is refused.

Temperature above 0: p and q are the laws that are drawn from, after temperature and filters, so
that the emitted law is exactly q where Div(p, q) <= threshold and p elsewhere. A rejected token is
replaced by a draw from p. ``reducible`` puts the strict test and its residual in that place: the
same emitted law at a higher acceptance ("r-fuzzy"). Only what p gives nothing, masked or filtered
away, is rejected all the same (policies/verify.py), and its share of q is drawn from p.

Limits: threshold = 0 is strict, by token id at temperature 0; threshold = inf accepts every draft
token that p gives a probability. ``budget`` holds the rule to a ledger (temperature 0).
Bonus token: the target's argmax, or a draw from p.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from lenity.errors import ConfigError, ShapeError
from lenity.policies.divergence import DIVERGENCES, DivergenceName, divergences
from lenity.policies.local import LocalPolicy
from lenity.policies.strict import Strict
from lenity.types import Draft, Scores

_STRICT = Strict()


class Fuzzy(LocalPolicy):
    """A divergence test on the laws of target and drafter."""

    idea: ClassVar[str] = "accept where the laws of target and drafter diverge little"
    paper: ClassVar[str] = "Holsman et al. 2025, Fuzzy Speculative Decoding, arXiv 2502.20704"
    needs: ClassVar[frozenset[str]] = frozenset({"divergence"})

    type: Literal["fuzzy"] = "fuzzy"
    divergence: DivergenceName = "js"
    """Div: js, kl (target || draft), reverse_kl (draft || target) or tv"""
    threshold: float = Field(default=0.1, ge=0)
    """T, largest divergence that is accepted, nats (tv: a share of 1; inf allowed); 0 is strict"""
    reducible: bool = False
    """Above temperature 0, whether a token that fails gets the strict test before p is drawn"""

    def strict_limit(self) -> Fuzzy:
        """Return the rule with threshold 0."""
        return self.model_copy(update={"threshold": 0.0})

    def accepts(self, draft: Draft, scores: Scores) -> Bool[Tensor, "B G"]:
        """Return Div(p, q) <= threshold; nothing at threshold 0."""
        if self.threshold == 0:
            return torch.zeros_like(scores.regret, dtype=torch.bool)
        if scores.divergence is None:
            raise ShapeError(
                "fuzzy expects scores.divergence, got None. Compare the laws with "
                "lenity.policies.divergence.divergences."
            )
        found = scores.divergence[..., DIVERGENCES.index(self.divergence)]
        return found.to(torch.float64) <= self.threshold

    def accept_prob(
        self,
        target_probs: Float[Tensor, "*N V"],
        draft_probs: Float[Tensor, "*N V"] | None,
        token_ids: Int[Tensor, "*N"],
    ) -> Float[Tensor, "*N"]:
        """Return 1 where the laws are close, and 0 (or strict's probability) elsewhere."""
        self._check_sampling(draft_probs)
        draft_logprobs = None if draft_probs is None else draft_probs.log()
        found = divergences(target_probs.log(), draft_logprobs, token_ids)
        is_close = found[..., DIVERGENCES.index(self.divergence)] <= self.threshold
        if not self.reducible:
            return is_close.to(target_probs.dtype)
        strict = _STRICT.accept_prob(target_probs, draft_probs, token_ids)
        return torch.where(is_close, 1.0, strict)

    def residual(
        self,
        target_probs: Float[Tensor, "*N V"],
        draft_probs: Float[Tensor, "*N V"] | None,
        token_ids: Int[Tensor, "*N"],
    ) -> Float[Tensor, "*N V"]:
        """Return p, or strict's residual for the reducible rule."""
        if self.reducible:
            return _STRICT.residual(target_probs, draft_probs, token_ids)
        return target_probs

    def _check_sampling(self, draft_probs: Float[Tensor, "*N V"] | None) -> None:
        if self.budget is not None:
            raise ConfigError(
                f"Expected temperature 0 for {self}: regret is defined against the argmax, and "
                f"nothing is charged above it. Leave the budget out, or decode greedily."
            )
        if draft_probs is None and self.divergence == "kl":
            raise ConfigError(
                f"Expected a drafter with a law of its own for {self}, got certain draft tokens, "
                f"from which KL(target || draft) is infinite. Use divergence=tv, js or reverse_kl."
            )
