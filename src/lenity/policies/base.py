"""What a policy is: knobs, and one pure decision per position, per token law or per block.

A policy knows no model and keeps no state. Of three kinds, ``verify`` runs each:

* MatchPolicy (greedy): which mismatches pass, position by position.
* BlockPolicy (greedy): how long a prefix passes, given what the request has already spent.
* TokenPolicy (sampling): with what probability a draft token passes, and what replaces it.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from lenity.registry import join_spec
from lenity.types import Draft, Scores


class Policy(BaseModel):
    """Knobs of a verification rule; frozen, and refusing what it does not know."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, ser_json_inf_nan="strings"
    )

    idea: ClassVar[str]
    paper: ClassVar[str]
    is_strict: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset()
    """Optional fields of Scores that the rule reads."""

    type: str
    """Registered name of the rule."""

    def strict_limit(self) -> Policy:
        """Return this rule at zero relaxation, where it must equal strict by token id."""
        raise NotImplementedError

    @property
    def spec(self) -> str:
        """Return the rule in the spelling of the command line, defaults left out."""
        knobs = self.model_dump(exclude={"type"}, exclude_defaults=True)
        return join_spec(self.type, knobs)

    def __str__(self) -> str:
        """Return the spec."""
        return self.spec


class RelaxedPolicy(Policy):
    """A rule that may commit tokens the target would not have chosen."""

    relax_special: bool = False
    """Whether a special or stop token may be relaxed, or relaxed away"""


@runtime_checkable
class MatchPolicy(Protocol):
    """A greedy rule that judges each position by itself."""

    def accepts(self, draft: Draft, scores: Scores) -> Bool[Tensor, "B G"]:
        """Return which positions pass although they may differ from the target's argmax."""
        ...


@runtime_checkable
class BlockPolicy(Protocol):
    """A greedy rule that weighs the whole block and remembers what was spent."""

    def accepted_length(
        self,
        draft: Draft,
        scores: Scores,
        may_relax: Bool[Tensor, "B G"],
        spent_units: Int[Tensor, " B"],
    ) -> Int[Tensor, " B"]:
        """Return how many draft tokens to commit, padding and forbidden positions excluded."""
        ...


@runtime_checkable
class TokenPolicy(Protocol):
    """A sampling rule: an acceptance law and the law that replaces a rejected token."""

    def accept_prob(
        self,
        target_probs: Float[Tensor, "*N V"],
        draft_probs: Float[Tensor, "*N V"] | None,
        token_ids: Int[Tensor, "*N"],
    ) -> Float[Tensor, "*N"]:
        """Return the probability of accepting each draft token; None is a point mass."""
        ...

    def residual(
        self,
        target_probs: Float[Tensor, "*N V"],
        draft_probs: Float[Tensor, "*N V"] | None,
        token_ids: Int[Tensor, "*N"],
    ) -> Float[Tensor, "*N V"]:
        """Return the law to draw from where the draft token was rejected."""
        ...
