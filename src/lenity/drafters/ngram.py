"""Prompt lookup: draft what followed the last time the sequence ended like this.

The longest suffix of ``min_match`` to ``max_match`` tokens that occurred before wins, and among its
occurrences the most recent one; what followed it is the draft. Stated as the loop that it equals:

    for n in max_match, ..., min_match:
        for end in len(ids) - 1, ..., n:             # most recent first
            if ids[end - n : end] == ids[-n:]: draft ids[end:], and go on with the draft itself
                                               where the sequence ends (periodic text)

The loop is never run. Every n-gram is put into a dictionary once, when its follower is committed,
so a round costs the new tokens and one look-up per n, whatever the length of the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from lenity.drafters.base import DraftContext, Drafter
from lenity.models.base import KVCache, LanguageModel
from lenity.types import Draft


class SuffixIndex:
    """The position after the most recent occurrence of every n-gram of a growing sequence."""

    def __init__(self, min_match: int, max_match: int) -> None:
        """Index n-grams of ``min_match`` to ``max_match`` tokens."""
        self._sizes = range(min_match, max_match + 1)
        self._followers: dict[tuple[int, ...], int] = {}
        self._num_indexed = 1  # the first token follows nothing

    def extend(self, token_ids: Sequence[int]) -> None:
        """Index what is new in ``token_ids``, which starts with all that was indexed before."""
        for position in range(self._num_indexed, len(token_ids)):
            for size in self._sizes:
                if size > position:
                    break
                self._followers[tuple(token_ids[position - size : position])] = position
        self._num_indexed = max(self._num_indexed, len(token_ids))

    def lookup(self, token_ids: Sequence[int]) -> tuple[int, int]:
        """Return (position after the match, match length) for the longest suffix; (0, 0) if none.

        The suffix itself is not in the index: nothing follows it yet.
        """
        for size in reversed(self._sizes):
            if size < len(token_ids):
                position = self._followers.get(tuple(token_ids[-size:]), 0)
                if position:
                    return position, size
        return 0, 0


class NgramSession:
    """One index per row; it asks nothing of any model."""

    taps: tuple[int, ...] = ()

    def __init__(self, settings: Ngram, target: LanguageModel) -> None:
        """Start without rows."""
        self._settings = settings
        self._device = target.device
        self._vocab_size = target.vocab_size
        self._unknown_ids = frozenset(target.unknown_ids.tolist())
        self._rows: list[SuffixIndex] = []

    def admit(self, token_ids: Sequence[int], features: Float[Tensor, "T F"] | None) -> None:
        """Index a prompt."""
        index = SuffixIndex(self._settings.min_match, self._settings.max_match)
        index.extend(token_ids)
        self._rows.append(index)

    def propose(self, context: DraftContext) -> Draft:
        """Return what followed the longest earlier occurrence of each row's suffix."""
        blocks: list[list[int]] = []
        matches: list[int] = []
        for index, ids, limit in zip(self._rows, context.token_ids, context.limits, strict=True):
            index.extend(ids)
            position, match_length = index.lookup(ids) if limit else (0, 0)
            blocks.append(self._follow(ids, position, limit) if match_length else [])
            matches.append(match_length)
        return self._draft(blocks, matches)

    def observe(
        self, accepted_lengths: Sequence[int], features: Float[Tensor, "B R F"] | None
    ) -> None:
        """Do nothing: the next round's committed tokens say it all."""

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        self._rows = [self._rows[row] for row in rows]

    def _follow(self, ids: Sequence[int], position: int, limit: int) -> list[int]:
        """Return ``limit`` tokens from ``position``, or those before an id that has no token."""
        block: list[int] = []
        for source in range(position, position + limit):
            token = ids[source] if source < len(ids) else block[source - len(ids)]
            if token >= self._vocab_size or token in self._unknown_ids:
                break
            block.append(token)
        return block

    def _draft(self, blocks: list[list[int]], matches: list[int]) -> Draft:
        width = max(map(len, blocks), default=0)
        token_ids = torch.zeros(len(blocks), width, dtype=torch.int64)
        confidence = torch.zeros(len(blocks), width)
        for row, (block, match_length) in enumerate(zip(blocks, matches, strict=True)):
            token_ids[row, : len(block)] = torch.tensor(block, dtype=torch.int64)
            confidence[row, : len(block)] = match_length / self._settings.max_match
        lengths = torch.tensor([len(block) for block in blocks], dtype=torch.int64)
        return Draft(
            token_ids=token_ids.to(self._device),
            lengths=lengths.to(self._device),
            confidence=confidence.to(self._device),
        )


class Ngram(Drafter):
    """Prompt lookup: the continuation of the longest suffix that occurred before.

    A draft token is certain (a point mass) at any temperature; its ``confidence`` is match length
    / ``max_match``. No match, no draft: such a round costs a plain target pass.
    """

    idea: ClassVar[str] = "what followed the last time the text ended like this"
    paper: ClassVar[str] = "Saxena 2023, prompt lookup decoding; Yang et al. 2023, arXiv 2304.04487"
    is_certain: ClassVar[bool] = True
    is_target_free: ClassVar[bool] = True

    type: Literal["ngram"] = "ngram"
    max_match: int = Field(default=4, ge=1, le=64)
    """Longest suffix looked up, tokens"""
    min_match: int = Field(default=2, ge=1)
    """Shortest suffix looked up, tokens; at most max_match"""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min_match > self.max_match:
            raise ValueError(
                f"min_match must not exceed max_match={self.max_match}, got {self.min_match}; "
                f"lower min_match or raise max_match"
            )
        return self

    def open(self, target: LanguageModel, cache: KVCache) -> NgramSession:
        """Return a session; any target will do."""
        return NgramSession(self, target)
