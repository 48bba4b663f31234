"""Rules that judge each position by itself, alone or held to a request's budget.

Without a budget such a rule relaxes wherever its own test passes. With one it is held to what ASD
is held to (arXiv 2608.03447): the prefix ends before the first relaxed token that would take the
request's ledger above it,
    C_t = sum_{i<=t} d_i r_i <= B - s.
The paper compares ASD with local rules "at the same maximum regret" and does not say which of the
two it means: tune the test until the dearest request costs what ASD's does, or give both the same
ledger. The knob makes either.
"""

from __future__ import annotations

from jaxtyping import Bool, Int
from pydantic import Field
from torch import Tensor

from lenity.ledger import budget_units, to_units
from lenity.policies.asd import longest_prefix
from lenity.policies.base import RelaxedPolicy
from lenity.types import Draft, Scores


class LocalPolicy(RelaxedPolicy):
    """A rule with a test per position (``accepts``) and, if wanted, a ledger."""

    budget: float | None = Field(default=None, ge=0)
    """B, nats a request may give away in all; 0 is strict, none keeps the rule purely local"""

    def accepts(self, draft: Draft, scores: Scores) -> Bool[Tensor, "B G"]:
        """Return which positions pass although they may differ from the target's argmax."""
        raise NotImplementedError

    def accepted_length(
        self,
        draft: Draft,
        scores: Scores,
        may_relax: Bool[Tensor, "B G"],
        spent_units: Int[Tensor, " B"],
    ) -> Int[Tensor, " B"]:
        """Return the longest prefix whose mismatches pass the test and fit the budget."""
        is_match = draft.token_ids == scores.top_id[:, :-1]
        if self.budget == 0:
            return longest_prefix(is_match, draft.lengths)
        passes = may_relax & self.accepts(draft, scores)
        if self.budget is not None:
            # a match has regret 0, so that the sum over all positions is the sum over mismatches
            left = budget_units(self.budget) - spent_units[:, None]
            passes &= to_units(scores.regret).cumsum(-1) <= left
        return longest_prefix(is_match | passes, draft.lengths)
