"""What a drafter is: frozen settings, and a session that follows one batch.

All that changes while decoding lives in the session; a drafter can serve many batches at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from lenity.models.base import KVCache, LanguageModel
from lenity.registry import join_spec
from lenity.sampling import Coins, Sampling
from lenity.types import Draft


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftContext:
    """What a session may look at in one round.

    ``token_ids[b]`` are the committed tokens of row b, prompt included, anchor last; read only.
    ``limits[b]`` is the most draft tokens row b may get (0 allowed). ``wants_logprobs`` asks for
    ``Draft.logprobs`` of every drafter that has a law.
    """

    token_ids: Sequence[Sequence[int]]
    limits: Sequence[int]
    sampling: Sequence[Sampling]
    coins: Coins
    wants_logprobs: bool = False

    @property
    def gamma(self) -> int:
        """Draft positions of the round: the largest limit."""
        return max(self.limits, default=0)


@runtime_checkable
class DraftSession(Protocol):
    """One batch being drafted for. Rows enter behind the others and leave by ``keep``."""

    taps: tuple[int, ...]
    """Target layers whose outputs the session wants; () for a target-free drafter."""

    def admit(self, token_ids: Sequence[int], features: Float[Tensor, "T F"] | None) -> None:
        """Add a row: its prompt, and the target's features of all prompt tokens but the last."""
        ...

    def propose(self, context: DraftContext) -> Draft:
        """Return a draft with at most ``context.limits[b]`` tokens for row b."""
        ...

    def observe(
        self, accepted_lengths: Sequence[int], features: Float[Tensor, "B R F"] | None
    ) -> None:
        """Learn how many draft tokens of each row were committed, and the rows' features."""
        ...

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        ...


class Drafter(BaseModel):
    """Settings of a drafter; frozen, and refusing what they do not know."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, arbitrary_types_allowed=True
    )

    idea: ClassVar[str]
    paper: ClassVar[str]
    is_certain: ClassVar[bool] = False
    """Whether its draft tokens come from no law at all: each is a point mass at any temperature."""
    is_target_free: ClassVar[bool] = False
    """Whether it drafts from tokens alone, without the target's features or cache."""

    type: str
    """Registered name of the drafter."""

    @property
    def takes_pending(self) -> bool:
        """Whether it can draft behind committed tokens that the target has not seen yet.

        Only then may its drafts be committed unverified. A target-free drafter can by its nature;
        another declares it: its session then finds such tokens in ``token_ids`` behind the length
        of the target's cache, and their features among those of the round that verifies them.
        """
        return self.is_target_free

    def open(self, target: LanguageModel, cache: KVCache) -> DraftSession:
        """Return a session for batches of ``target``, whose cache is ``cache``.

        Raises ModelMismatchError when the drafter cannot draft for this target.
        """
        raise NotImplementedError

    def describe(self, target: LanguageModel) -> dict[str, Any]:
        """Return what was understood of the drafter, for this target: names and plain values.

        ``draft_length`` is how many tokens a round may have by its own nature; it is left out
        where gamma alone decides. Raises what ``open`` raises.
        """
        return {"idea": self.idea}

    @property
    def spec(self) -> str:
        """Return the drafter in the spelling of the command line, defaults left out."""
        return join_spec(self.type, self.model_dump(exclude={"type"}, exclude_defaults=True))

    def __str__(self) -> str:
        """Return the spec."""
        return self.spec


def no_draft(batch_size: int, device: torch.device) -> Draft:
    """Return the draft of plain decoding: no position for any row."""
    return Draft(
        token_ids=torch.zeros(batch_size, 0, dtype=torch.int64, device=device),
        lengths=torch.zeros(batch_size, dtype=torch.int64, device=device),
    )
