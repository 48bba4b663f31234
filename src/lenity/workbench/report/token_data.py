"""What the token view of a report shows: texts token by token, each with its kind and price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from lenity.workbench.records import KIND_LETTERS, Frozen, SampleRecord

Written = Annotated[str, AfterValidator(lambda text: text.encode(errors="replace").decode())]
"""Text files can hold: half a surrogate pair, which an engine's JSON may bring, becomes "?"."""

RELAXED = KIND_LETTERS["relaxed"]


class TokenDetail(Frozen):
    """What is known of one token beyond its kind."""

    position: int = Field(ge=0)
    """Index among the new tokens"""
    regret: float | None = Field(default=None, ge=0)
    """Nats; of every relaxed token"""
    rank: int | None = Field(default=None, ge=0)
    """Place among the target's logits, 0 = best"""
    choice: Written | None = None
    """Text of the token the target would have chosen"""


class TokenText(Frozen):
    """One arm's answer to a prompt."""

    arm: str
    pieces: tuple[Written, ...]
    """Each new token's share of the text"""
    kinds: str
    """One letter a piece, see records.KIND_LETTERS"""
    details: tuple[TokenDetail, ...] = ()
    """Of relaxed tokens always; of others where something is known"""
    regret_spent: float = Field(default=0.0, ge=0)
    """Nats charged to the request"""
    finish_reason: str | None = None
    score: float | None = None
    """The task's, from 0 to 1"""
    note: Written | None = None
    """Such as what the scorer read"""

    @model_validator(mode="after")
    def _fits(self) -> TokenText:
        strangers = sorted(set(self.kinds) - set(KIND_LETTERS.values()))
        if len(self.pieces) != len(self.kinds) or strangers:
            raise ValueError(
                f"{self.arm}: expected one of {', '.join(KIND_LETTERS.values())} for each of "
                f"{len(self.pieces)} pieces, got {self.kinds!r}; give a letter for every token"
            )
        places = [detail.position for detail in self.details]
        relaxed = {i for i, kind in enumerate(self.kinds) if kind == RELAXED}
        priced = {detail.position for detail in self.details if detail.regret is not None}
        is_within = relaxed <= priced and set(places) <= set(range(len(self.kinds)))
        if len(set(places)) != len(places) or not is_within:
            raise ValueError(
                f"{self.arm}: expected one detail with its regret for each relaxed token "
                f"{sorted(relaxed)}, got details at {places}; take them from the ledger"
            )
        return self

    @classmethod
    def of(
        cls, record: SampleRecord, pieces: Sequence[str], text_of: Callable[[int], str]
    ) -> TokenText:
        """Return a record's answer: ``pieces`` are its tokens' shares of the text, in order.

        ``text_of`` names the target's choices. A failed record is refused by the check of kinds,
        unless it has no tokens.
        """
        details = tuple(
            TokenDetail(
                position=token.position,
                regret=token.regret,
                rank=token.rank,
                choice=None if token.choice_id is None else text_of(token.choice_id),
            )
            for token in record.relaxed
        )
        return cls(
            arm=record.arm,
            pieces=tuple(pieces),
            kinds=record.kinds,
            details=details,
            regret_spent=record.regret_spent,
            finish_reason=record.finish_reason,
            score=record.score,
            note=record.score_detail,
        )


class TokenSample(Frozen):
    """One prompt and the arms' answers to it."""

    task: str
    item_id: str
    prompt: Written
    """As rendered, or as asked"""
    texts: tuple[TokenText, ...] = Field(min_length=1)
    note: str | None = None
    """Why this sample is shown, such as "largest regret of the run" """
