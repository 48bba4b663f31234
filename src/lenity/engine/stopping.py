"""Where a block ends: the one owner of end-of-sequence ids, stop ids, stop strings and lengths.

Tokens are looked at in order, before cache, ledger, counters or a stream see them. At one token,
an id comes before a string and a string before a length, so a request that completes its stop
string with its last allowed token ended because of the string.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from lenity.engine.streaming import TextStream
from lenity.sequences import Sequence
from lenity.types import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How many tokens of a block are emitted, and why no more; no reason while it goes on."""

    num_emitted: int
    finish_reason: FinishReason | None = None
    stop_match: str | int | None = None


def cut(sequence: Sequence, token_ids: SequenceOf[int], text: TextStream | None) -> Cut:
    """Return where ``token_ids`` end; ``text`` is fed the emitted ones."""
    room = sequence.room
    for count, token_id in enumerate(token_ids, start=1):
        matched = text.push(token_id) if text is not None else None
        if token_id in sequence.ending_ids:
            return Cut(num_emitted=count, finish_reason=FinishReason.STOP, stop_match=token_id)
        if matched is not None:
            return Cut(num_emitted=count, finish_reason=FinishReason.STOP, stop_match=matched)
        if count == room:
            return Cut(num_emitted=count, finish_reason=_out_of_room(sequence, count))
    return Cut(num_emitted=len(token_ids))


def _out_of_room(sequence: Sequence, count: int) -> FinishReason:
    is_length = sequence.num_emitted + count == sequence.settings.max_new_tokens
    return FinishReason.LENGTH if is_length else FinishReason.CONTEXT
