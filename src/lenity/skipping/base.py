"""What a skip rule is: knobs, and one pure decision per block: how long a prefix needs no target.

Verifier skipping (arXiv 2608.14787, section 2). With per-position scores q_1..q_G of a draft,
local scores B_k = min_{j<=k} q_j and prefix scores C_k,
    K^ = max{k : B_k >= local and C_k >= prefix},        0 if there is none,
and the prefix is committed unverified iff  D < max_unverified,  K^ >= max(1, min_prefix)  and no
guard objects. D counts the tokens committed since the last target pass; it is tested before the
skip, so that D never exceeds max_unverified + gamma - 1. Limits: min_prefix > gamma, local > 1 and
max_unverified = 0 never skip.

Paper map: ``local`` is eta_b, ``prefix`` is eta_c, ``min_prefix`` is K_min, ``max_unverified`` is
S_max. A skip adds no token of the target: no bonus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from lenity.registry import join_spec
from lenity.types import Draft


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipContext:
    """What a rule may look at: the draft, and per request what the target has no part in.

    ``num_emitted[b]`` counts new tokens so far, ``rounds[b]`` the request's rounds so far.
    """

    draft: Draft
    num_emitted: Sequence[int]
    rounds: Sequence[int]


class SkipRule(BaseModel):
    """Knobs of a skip rule; frozen, and refusing what it does not know."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        ser_json_inf_nan="strings",
        arbitrary_types_allowed=True,
    )

    idea: ClassVar[str]
    paper: ClassVar[str]

    type: str
    """Registered name of the rule."""
    max_unverified: int | None = Field(default=64, ge=0)
    """S_max: skipping pauses once this many tokens have seen no target; none for no limit"""
    debt: float | None = Field(default=None, ge=0)
    """Nats: once a request's ledger holds this much, it skips no more; none for no limit"""
    repetition_guard: bool = True
    """Whether a prefix that repeats itself is sent to the target"""

    def load(self, device: torch.device) -> None:
        """Read the files that the rule decides by, if there are any. Raises ConfigError.

        What is read is kept; without this call the first decision reads it.
        """

    def prefix_length(self, context: SkipContext) -> Int[Tensor, " B"]:
        """Return how many draft tokens of each row need no target; 0 asks for a target pass.

        Gates only; staleness, debt and guards are tested by whoever commits.
        """
        raise NotImplementedError

    @property
    def spec(self) -> str:
        """Return the rule in the spelling of the command line, defaults left out."""
        return join_spec(self.type, self.model_dump(exclude={"type"}, exclude_defaults=True))

    def __str__(self) -> str:
        """Return the spec."""
        return self.spec


class GatedRule(SkipRule):
    """A rule that scores positions and gates prefixes."""

    local: float = Field(default=0.9, ge=0)
    """eta_b, the least score any token of the prefix may have; above 1 never skips"""
    prefix: float = Field(default=0.93, ge=0)
    """eta_c, the least score of the prefix as a whole; above 1 never skips"""
    min_prefix: int = Field(default=6, ge=0)
    """K_min, draft tokens a skip must commit; at least one, whatever it says"""

    def signal(self, context: SkipContext) -> Float[Tensor, "B G"]:
        """Return q: the score of every draft position, in [0, 1]."""
        raise NotImplementedError

    def prefix_scores(self, scores: Float[Tensor, "B G"]) -> Float[Tensor, "B G"]:
        """Return C_1..C_G of float64 scores."""
        raise NotImplementedError

    def prefix_length(self, context: SkipContext) -> Int[Tensor, " B"]:
        """Return K^ where it reaches min_prefix, else 0.

        A row with a score that is not a number in [0, 1] is sent to the target.
        """
        scores = self.signal(context).to(torch.float64)
        lengths = context.draft.lengths
        is_real = torch.arange(scores.shape[1], device=scores.device) < lengths[:, None]
        is_score = (scores >= 0) & (scores <= 1)
        is_sound = (is_score | ~is_real).all(-1)
        clean = torch.where(is_score, scores, 0.0)
        passes = (local_scores(clean) >= self.local) & (self.prefix_scores(clean) >= self.prefix)
        longest = longest_passing(passes & is_real) * is_sound
        return longest * (longest >= max(1, self.min_prefix))


def local_scores(scores: Float[Tensor, "B G"]) -> Float[Tensor, "B G"]:
    """Return B_k = min_{j<=k} q_j."""
    return scores.cummin(-1).values if scores.shape[-1] else scores


def longest_passing(passes: Bool[Tensor, "B G"]) -> Int[Tensor, " B"]:
    """Return max{k : passes_k}, 0 if there is none; a prefix may fail and a longer one pass."""
    count = torch.arange(1, passes.shape[-1] + 1, device=passes.device)
    padded = torch.nn.functional.pad(passes * count, (1, 0))
    return padded.amax(-1)
