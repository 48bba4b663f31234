"""What a run stores of one request in one arm: one JSON line. Reading it needs no torch.

Counters have one definition, that of ``lenity.types.RoundRecord``; here they are at rest. Rates
are made from sums, in ``metrics``. Times in seconds, regret in nats or in units of 2^-20 nat.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION = 2
"""Of the lines of a run; readers refuse a newer one. Version 1 had no family."""

UNITS_PER_NAT = 1 << 20
"""As in lenity.types, which imports torch."""

KIND_LETTERS = {
    "accepted": "a",
    "relaxed": "x",
    "recovered": "r",
    "bonus": "b",
    "skipped": "s",
    "plain": "p",
}
"""One letter per token of ``SampleRecord.kinds``; the names are those of TokenKind."""


class Frozen(BaseModel):
    """A record: frozen, and refusing what it does not know."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, ser_json_inf_nan="strings"
    )


class RoundCounts(Frozen):
    """One request's counters in one round, as RoundRecord has them."""

    drafted: int = Field(ge=0)
    """Tokens proposed"""
    evaluated: int = Field(ge=0)
    """Draft tokens scored by the target"""
    accepted: int = Field(ge=0)
    """Draft tokens kept and emitted: a prefix; the next token is not among them"""
    emitted: int = Field(ge=0)
    """Tokens committed after stop handling"""
    relaxed: int = Field(ge=0)
    """Emitted tokens that strict would have rejected"""
    regret_units: int = Field(ge=0)
    """What the ledger was charged, in 2^-20 nat"""
    target_passes: int = Field(default=1, ge=0)
    """Target forwards"""
    skipped: int = Field(default=0, ge=0)
    """Tokens emitted without a target pass"""
    shadow_accepted: int | None = Field(default=None, ge=0)
    """What strict would have accepted of a skipped round's draft, where a shadow verifier looked"""
    batch_size: int = Field(default=1, ge=1)
    """Requests that shared the round and its seconds"""
    draft_seconds: float = 0.0
    target_seconds: float = 0.0
    verify_seconds: float = 0.0
    commit_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of all stages, of the whole batch."""
        stages = (self.draft_seconds, self.target_seconds, self.verify_seconds)
        return sum(stages) + self.commit_seconds


class RelaxedToken(Frozen):
    """An emitted token that strict would have rejected: where, by how much, instead of what."""

    position: int = Field(ge=0)
    """Index among the new tokens"""
    regret: float = Field(ge=0)
    """Nats charged to the ledger"""
    rank: int | None = Field(default=None, ge=0)
    """Place among the target's logits, 0 = best; none where it was not kept"""
    choice_id: int | None = None
    """What strict would have emitted"""


class SampleRecord(Frozen):
    """One request in one arm. A failed one keeps its error and enters no mean."""

    schema_version: int = SCHEMA_VERSION
    """Of this line"""
    arm: str
    """Name of the arm within the run, such as strict-a or relaxed"""
    repeat: int = Field(default=0, ge=0)
    """Which repetition of the protocol"""
    task: str
    """Name and version of the task, such as gsm8k@1"""
    item_id: str
    """Of the prompt within its task"""
    family: str | None = None
    """Kind of prompt within its task; none where not recorded"""
    status: Literal["ok", "failed"] = "ok"
    """Whether the request ended as it should"""
    error: str | None = None
    """What went wrong, for a failed request"""
    prompt_ids: tuple[int, ...] = ()
    """The rendered prompt"""
    token_ids: tuple[int, ...] = ()
    """New tokens, the one that ended the request included"""
    text: str | None = None
    """Their text"""
    finish_reason: str | None = None
    """stop, length, context or interrupted"""
    kinds: str = ""
    """One letter per new token, see KIND_LETTERS"""
    relaxed: tuple[RelaxedToken, ...] = ()
    """The ledger's entries, by position"""
    logprobs: tuple[float, ...] = ()
    """Target log-probability of each new token, nats"""
    rounds: tuple[RoundCounts, ...] = ()
    """Counters, round by round"""
    prefill_seconds: float = 0.0
    """Of the prompt's pass"""
    wall_seconds: float = 0.0
    """From admission to the last token, prefill included"""
    score: float | None = None
    """The task's, from 0 to 1; none where the task has no scorer"""
    score_detail: str | None = None
    """What the scorer read or why it said no"""

    @model_validator(mode="after")
    def _check_identities(self) -> SampleRecord:
        """Refuse a line whose counters do not add up."""
        if self.status == "failed":
            if not self.error:
                raise ValueError(f"{self.item_id}: a failed request needs its error")
            return self
        emitted = sum(r.emitted for r in self.rounds)
        if emitted != len(self.token_ids) or len(self.kinds) != len(self.token_ids):
            raise ValueError(
                f"{self.item_id}: {len(self.token_ids)} token ids, {emitted} emitted and "
                f"{len(self.kinds)} kinds; these must agree"
            )
        if self.kinds.count("x") != len(self.relaxed):
            raise ValueError(
                f"{self.item_id}: {self.kinds.count('x')} relaxed kinds and "
                f"{len(self.relaxed)} ledger entries; these must agree"
            )
        for counts in self.rounds:
            if not counts.relaxed <= counts.accepted <= counts.evaluated <= counts.drafted:
                raise ValueError(f"{self.item_id}: counters out of order in {counts}")
        return self

    @property
    def key(self) -> tuple[str, int, str, str]:
        """What a run holds at most once: arm, repeat, task, item."""
        return self.arm, self.repeat, self.task, self.item_id

    @property
    def output_hash(self) -> str:
        """Hash of the new token ids."""
        return hash_ids(self.token_ids)

    @property
    def regret_spent(self) -> float:
        """Nats charged to the ledger, skipped tokens' debt included."""
        return sum(r.regret_units for r in self.rounds) / UNITS_PER_NAT


def hash_ids(token_ids: Iterable[int]) -> str:
    """Return 16 hex digits that stand for a sequence of token ids."""
    text = ",".join(map(str, token_ids))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
