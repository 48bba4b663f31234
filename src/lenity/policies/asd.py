r"""Approximate Speculative Decoding: a budgeted longest prefix (arXiv 2608.03447, section 3).

With regret r_i = z_i(y*_i) - z_i(x_i), mismatch d_i, remaining length q_i = K - i + 1 and s the
regret a request has spent so far, the prefix x[1..t] is feasible iff
    C_t = sum_{i<=t} d_i r_i <= B - s,   N_t = sum_{i<=t} d_i <= M,   r_i / q_i <= g where d_i.
The longest feasible prefix is committed, then the target's argmax (recovered or bonus token).

The scalar loop: walk i = 1..K; at a mismatch add r_i and one; stop before the first i that breaks
one of the three tests. Limits: B = 0 is strict by token id (a tie with another id is rejected);
B = M = g = inf accepts every draft token. Bonus token: argmax of row K+1, free of charge.

Paper map: our ``budget`` is B, ``gate`` is g, ``block_cap`` is M. K is the number of draft tokens
scored in this round. Greedy only: the paper defines nothing for sampling.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Int
from pydantic import Field
from torch import Tensor

from lenity.ledger import budget_units, to_units
from lenity.policies.base import RelaxedPolicy
from lenity.types import Draft, Scores


class Asd(RelaxedPolicy):
    """Longest prefix under a request budget, a local gate and a block cap."""

    idea: ClassVar[str] = "longest prefix whose regret fits a request budget, a gate and a cap"
    paper: ClassVar[str] = "Approximate Speculative Decoding, arXiv 2608.03447"

    type: Literal["asd"] = "asd"
    budget: float = Field(default=8.0, ge=0)
    """B, nats a request may give away in all (inf allowed); 0 is strict"""
    gate: float = Field(default=0.25, ge=0)
    """g, nats of regret allowed per remaining draft position (inf allowed)"""
    block_cap: int | None = Field(default=2, ge=0)
    """M, relaxed tokens allowed per round; none for no cap"""
    position_value: Literal["remaining", "share"] = "remaining"
    """What the gate divides by: remaining K-i+1 (paper), or share of the block (serving patch)"""
    g0_is_strict: bool = False
    """Whether gate=0 rejects zero-regret ties too (the authors' API) or passes them (the paper)"""
    require_remaining: bool = False
    """Whether budget must be left before a mismatch, so that a spent request rejects ties too"""

    def strict_limit(self) -> Asd:
        """Return the rule with budget 0."""
        return self.model_copy(update={"budget": 0.0})

    def accepted_length(
        self,
        draft: Draft,
        scores: Scores,
        may_relax: Bool[Tensor, "B G"],
        spent_units: Int[Tensor, " B"],
    ) -> Int[Tensor, " B"]:
        """Return the longest feasible prefix of each request."""
        is_match = draft.token_ids == scores.top_id[:, :-1]
        if self.budget == 0 or (self.gate == 0 and self.g0_is_strict):
            return longest_prefix(is_match, draft.lengths)
        # a match has regret 0, so that the sum over all positions is the sum over mismatches
        cost = to_units(scores.regret)
        total_cost = cost.cumsum(-1)
        left = budget_units(self.budget) - spent_units[:, None]
        passes = may_relax & (total_cost <= left)
        if self.require_remaining:
            passes &= total_cost - cost < left
        if self.block_cap is not None:
            passes &= (~is_match).cumsum(-1) <= self.block_cap
        if self.gate != float("inf"):
            passes &= self._passes_gate(draft, scores)
        return longest_prefix(is_match | passes, draft.lengths)

    def _passes_gate(self, draft: Draft, scores: Scores) -> Bool[Tensor, "B G"]:
        """Return r_i <= g * value_i in float64, so that a regret of exactly g passes."""
        column = torch.arange(draft.gamma, device=draft.lengths.device, dtype=torch.float64)
        remaining = draft.lengths[:, None] - column
        regret = scores.regret.to(torch.float64)
        if self.position_value == "share":
            # the serving patch counts positions from 0: the first has value K/K = 1; the K stands
            # on the regret's side, for a share such as 2/3 is no binary number
            regret = regret * draft.lengths[:, None]
        return regret <= self.gate * remaining


def longest_prefix(passes: Bool[Tensor, "B G"], lengths: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Return how many leading real positions pass: sum_t prod_{i<=t} passes_i, t <= length."""
    return torch.minimum(passes.cumprod(-1).sum(-1), lengths)
