"""Periodic skipping: a fixed number of tokens every so many rounds, whatever anyone thinks of them.

Baseline of the verifier-skipping paper, arXiv 2608.14787: every ``period``-th round tries to skip
exactly ``count`` tokens, under the same guards; all others verify. Staleness does not matter to it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from lenity.skipping.base import SkipContext, SkipRule


class Periodic(SkipRule):
    """A schedule, blind to the draft."""

    idea: ClassVar[str] = "skip a fixed number of tokens in every P-th round"
    paper: ClassVar[str] = "baseline of arXiv 2608.14787"

    type: Literal["periodic"] = "periodic"
    max_unverified: int | None = Field(default=None, ge=0)
    """S_max: skipping pauses once this many tokens have seen no target; none for no limit"""
    period: int = Field(default=4, ge=1)
    """P: a request's rounds P, 2P, ... try to skip"""
    count: int = Field(default=6, ge=1)
    """Tokens such a round commits; a shorter draft is verified"""

    def prefix_length(self, context: SkipContext) -> Int[Tensor, " B"]:
        """Return ``count`` where it is a request's turn and its draft is long enough, else 0."""
        lengths = context.draft.lengths
        turns = [(done + 1) % self.period == 0 for done in context.rounds]
        is_due = torch.tensor(turns, device=lengths.device)
        return self.count * (is_due & (lengths >= self.count))
