"""The requests of a batch: their tokens, what was committed to them, and why they ended."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from lenity.processors import Processor, walk
from lenity.requests import GenerationSettings
from lenity.sampling import Sampling
from lenity.types import FinishReason, RoundRecord, TokenReceipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one round added to one request, complete in itself.

    A request's result is made from its commits alone, and a commit is added in one step: stopping
    between two instructions can lose a round, never half of one. ``priced`` replaces the receipts
    of earlier, skipped tokens, by index among the new tokens. ``processor_states`` are those after
    its tokens, filled in when it is added.
    """

    receipts: tuple[TokenReceipt, ...]
    record: RoundRecord
    finish_reason: FinishReason | None = None
    stop_match: str | int | None = None
    priced: tuple[tuple[int, TokenReceipt], ...] = ()
    processor_states: tuple[Any, ...] = ()

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Return the emitted tokens."""
        return tuple(receipt.token_id for receipt in self.receipts)


@dataclass(slots=True, kw_only=True)
class Sequence:
    """One request while it is being decoded.

    ``token_ids`` are prompt and committed tokens; the last is the anchor. ``policy`` is the rule
    that runs, ``requested_policy`` the spec that was asked for. ``num_pending`` tokens were skipped
    since the last target pass: they are committed and not in the target's cache.
    """

    index: int
    name: str
    token_ids: list[int]
    prompt_length: int
    settings: GenerationSettings
    policy: Any
    requested_policy: str
    seed: int
    ending_ids: frozenset[int]
    guarded_ids: frozenset[int]
    max_length: int
    processors: tuple[Processor, ...] = ()
    processor_states: tuple[Any, ...] = ()
    is_phase_over: bool = False
    num_pending: int = 0
    commits: list[Commit] = field(default_factory=list)
    prefill_seconds: float = 0.0
    sampling: Sampling = field(init=False)

    def __post_init__(self) -> None:
        """Start the processors on the prompt."""
        self.sampling = self.settings.sampling
        prompt = self.token_ids[: self.prompt_length]
        self.processor_states = tuple(p.start(prompt) for p in self.processors)

    @property
    def num_emitted(self) -> int:
        """New tokens so far."""
        return len(self.token_ids) - self.prompt_length

    @property
    def room(self) -> int:
        """New tokens that may still be emitted, by max_new_tokens and by the context."""
        return self.max_length - len(self.token_ids)

    @property
    def draft_limit(self) -> int:
        """Draft tokens worth scoring: one token is always left for the target."""
        return max(0, min(self.settings.gamma, self.room - 1))

    @property
    def receipts(self) -> tuple[TokenReceipt, ...]:
        """Every new token's receipt, skipped ones with the price a later pass found."""
        out = [receipt for commit in self.commits for receipt in commit.receipts]
        for commit in self.commits:
            for index, receipt in commit.priced:
                out[index] = receipt
        return tuple(out)

    @property
    def is_finished(self) -> bool:
        """Whether the last commit ended the request."""
        return bool(self.commits) and self.commits[-1].finish_reason is not None

    def add(self, commit: Commit) -> None:
        """Commit a round: tokens, processor states and phase move together.

        Only new tokens end the relaxed phase: a chat's history is full of former turns' ends.
        """
        assert not self.is_finished, f"request {self.name} is frozen"
        states = walk(self.processors, self.processor_states, commit.token_ids)[-1]
        is_end = any(token_id in self.settings.strict_after for token_id in commit.token_ids)
        self.commits.append(replace(commit, processor_states=states))
        self.processor_states, self.is_phase_over = states, self.is_phase_over or is_end
        self.token_ids.extend(commit.token_ids)
        is_skip = commit.record.skipped > 0
        self.num_pending = self.num_pending + len(commit.receipts) if is_skip else 0
