"""Priced prefix: spend the budget only where it buys tokens.

ASD gates an exception by the length that remains, a proxy for what it may unlock. The target has
already scored every row, so what it really unlocks in this block is known. Among the feasible
prefixes (C_t <= B - s, N_t <= M, optionally r_i / q_i <= g; see asd) choose
    t* = argmax_t ( t - price * C_t ),   ties -> smaller C_t, then smaller t.

The scalar loop: enumerate t = 0..K, stop at the first infeasible one, keep the best.
Limits: price = 0 is the longest feasible prefix (asd without a gate); price = inf accepts only
exceptions of zero regret; budget 0 is strict by token id. Bonus token: the target's argmax, free.

Pacing: with ``price_max`` set, price(z) = price * (price_max / price)^z where z = s / B, the
threshold of the online knapsack problem (Zhou, Chakrabarty and Lukose 2008), keeps budget for
later bargains. This rule is lenity's own; it is in no paper and in no default.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from lenity.ledger import budget_units, to_units
from lenity.policies.asd import longest_prefix
from lenity.policies.base import RelaxedPolicy
from lenity.types import UNITS_PER_NAT, Draft, Scores


class Priced(RelaxedPolicy):
    """The prefix with the best balance of tokens gained and regret paid."""

    idea: ClassVar[str] = "the prefix that gains most tokens after paying for its regret"
    paper: ClassVar[str] = "lenity's own (docs/policies.md)"

    type: Literal["priced"] = "priced"
    budget: float = Field(default=8.0, ge=0)
    """B, nats a request may give away in all (inf allowed); 0 is strict"""
    price: float = Field(default=0.5, ge=0)
    """Tokens that one nat must buy (inf allowed: only free exceptions)"""
    price_max: float | None = Field(default=None, gt=0)
    """Tokens that the last nat of the budget must buy; none for a constant price"""
    block_cap: int | None = Field(default=None, ge=0)
    """M, relaxed tokens allowed per round; none for no cap"""
    gate: float | None = Field(default=None, ge=0)
    """g, nats of regret allowed per remaining draft position; none for no gate"""

    @model_validator(mode="after")
    def _check_pacing(self) -> Priced:
        if self.price_max is not None and not 0 < self.price <= self.price_max < float("inf"):
            raise ValueError(
                f"pacing needs 0 < price <= price_max < inf, got price={self.price} and "
                f"price_max={self.price_max}; raise price_max or leave it out"
            )
        return self

    def strict_limit(self) -> Priced:
        """Return the rule with budget 0."""
        return self.model_copy(update={"budget": 0.0})

    def accepted_length(
        self,
        draft: Draft,
        scores: Scores,
        may_relax: Bool[Tensor, "B G"],
        spent_units: Int[Tensor, " B"],
    ) -> Int[Tensor, " B"]:
        """Return t* of each request."""
        is_match = draft.token_ids == scores.top_id[:, :-1]
        if self.budget == 0:
            return longest_prefix(is_match, draft.lengths)
        # a match has regret 0, so that the sum over all positions is the sum over mismatches
        cost = to_units(scores.regret).cumsum(-1)
        passes = may_relax & (cost <= budget_units(self.budget) - spent_units[:, None])
        if self.block_cap is not None:
            passes &= (~is_match).cumsum(-1) <= self.block_cap
        if self.gate is not None:
            column = torch.arange(draft.gamma, device=cost.device, dtype=torch.float64)
            passes &= scores.regret <= self.gate * (draft.lengths[:, None] - column)
        longest = longest_prefix(is_match | passes, draft.lengths)
        return self._best_prefix(cost, longest, spent_units)

    def _best_prefix(
        self, cost: Int[Tensor, "B G"], longest: Int[Tensor, " B"], spent: Int[Tensor, " B"]
    ) -> Int[Tensor, " B"]:
        """Return argmax_t (t - price * C_t) over t <= longest; ties to smaller C_t, then t."""
        cost = torch.nn.functional.pad(cost, (1, 0))
        lengths = torch.arange(cost.shape[-1], device=cost.device)
        nats = cost.to(torch.float64) / UNITS_PER_NAT
        paid = torch.where(cost > 0, self._price(spent)[:, None] * nats, 0.0)
        gain = torch.where(lengths <= longest[:, None], lengths - paid, -float("inf"))
        is_best = gain == gain.amax(-1, keepdim=True)
        cheapest = torch.where(is_best, cost, torch.iinfo(torch.int64).max)
        return cheapest.argmin(-1)

    def _price(self, spent_units: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Return the price each request pays now, tokens per nat."""
        price = torch.full(spent_units.shape, self.price, dtype=torch.float64)
        price = price.to(spent_units.device)
        if self.price_max is None or self.budget == float("inf"):
            return price
        share = spent_units.to(torch.float64) / max(budget_units(self.budget), 1)
        return price * (self.price_max / self.price) ** share
