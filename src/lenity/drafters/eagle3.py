"""Draft with an EAGLE-3 head, token by token, or with P-EAGLE, all tokens in one pass.

The head keeps a cache of its own, one slot a row. Pair t joins the target's state of position t
with the token of position t + 1, so n committed tokens make n - 1 pairs, the last with the anchor.
What is committed in the cache comes from the target's states only: pairs written while drafting
hold the head's own states, stand behind the lengths, and are written over in the next round.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from lenity.drafters.base import DraftContext, no_draft
from lenity.drafters.block import HeadDrafter, HeadVocabulary, TapIds, cap
from lenity.drafters.chain import Advance, draft_chain
from lenity.errors import ModelMismatchError
from lenity.models.base import KVCache, LanguageModel
from lenity.models.cache import SlotCache
from lenity.models.heads.eagle3 import Eagle3Head
from lenity.models.heads.vocab_map import borrow_embedding, check_vocabulary
from lenity.types import Draft


class Eagle3Session:
    """A head's cache of committed pairs, and the states of those not written yet."""

    def __init__(
        self,
        head: Eagle3Head,
        target: LanguageModel,
        *,
        max_positions: int | None = None,
        depth: int | None = None,
        chunk: int = 512,
    ) -> None:
        """Start without rows; at most ``chunk`` pairs a row enter one forward."""
        shape = head.config.shape
        self.taps: tuple[int, ...] = head.config.taps
        self._head, self._device, self._chunk = head, target.device, chunk
        self._dtype, self._size = head.fc.weight.dtype, shape.hidden_size
        self._num_layers = shape.num_layers
        self._most, self._max_positions = depth or sys.maxsize, max_positions
        self._vocabulary = HeadVocabulary(
            head.name, head.config.draft_vocab_size, target, head.kept_ids
        )
        self._borrowed: Tensor | None = None
        if head.embed_tokens is None:
            weight = borrow_embedding(head.name, self._size, target)
            self._borrowed = weight.to(self._dtype)
        self._cache = SlotCache(self._num_layers, label=f"{head.name} draft cache")
        self._pending: list[Tensor] = []  # fused states of the positions from lengths[b] on
        self._is_open: list[bool] = []  # closed for good where the head's positions have ended
        self._is_fed: list[bool] = []  # whether the round wrote the row's last pair

    @torch.no_grad()
    def admit(self, token_ids: Sequence[int], features: Float[Tensor, "T F"] | None) -> None:
        """Add a row and write all pairs of its prompt but the last, ``chunk`` at a time.

        A prompt of one token has no pair and gets no draft in its first round.
        """
        slot = SlotCache(self._num_layers, 1)
        states = torch.empty(0, self._size, dtype=self._dtype, device=self._device)
        is_open = self._room(token_ids) > 0
        if features is not None and is_open:
            states = self._prefill(slot, token_ids, features)
        self._cache.append(slot)
        self._pending.append(states)
        self._is_open.append(is_open)
        self._is_fed.append(False)

    @torch.no_grad()
    def propose(self, context: DraftContext) -> Draft:
        """Return up to ``context.limits[b]`` tokens, fewer where the head's positions end."""
        rooms = [self._room(ids) for ids in context.token_ids]
        self._close(rooms)
        most = [
            min(room, self._most) if is_open and len(states) else 0
            for room, is_open, states in zip(rooms, self._is_open, self._pending, strict=True)
        ]
        asked = cap(context, most)
        self._is_fed = [limit > 0 for limit in asked.limits]
        if not asked.gamma:
            return no_draft(len(rooms), self._device)
        advance = self._parallel(asked) if self._head.config.is_parallel else self._chain(asked)
        return draft_chain(advance, asked, self._vocabulary)

    @torch.no_grad()
    def observe(
        self, accepted_lengths: Sequence[int], features: Float[Tensor, "B R F"] | None
    ) -> None:
        """Take the target's states of the anchors and the accepted tokens."""
        assert features is not None, "EAGLE-3 reads the target's states"
        self._advance([int(is_fed) for is_fed in self._is_fed])
        self._is_fed = [False] * len(accepted_lengths)
        states = self._fuse(features)
        for row, accepted in enumerate(accepted_lengths):
            if self._is_open[row]:
                new = states[row, : accepted + 1]
                self._pending[row] = torch.cat([self._pending[row], new])

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        self._cache.keep(rows)
        self._pending = [self._pending[row] for row in rows]
        self._is_open = [self._is_open[row] for row in rows]
        self._is_fed = [self._is_fed[row] for row in rows]

    def _prefill(
        self, slot: SlotCache, token_ids: Sequence[int], features: Float[Tensor, "T F"]
    ) -> Float[Tensor, "N H"]:
        """Commit all pairs of a prompt but the last; return that one's state."""
        assert len(features) == len(token_ids) - 1, "a state for every token but the anchor"
        for start in range(0, len(features) - 1, self._chunk):
            stop = min(start + self._chunk, len(features) - 1)
            tokens = torch.tensor([token_ids[start + 1 : stop + 1]], device=self._device)
            self._head(self._fuse(features[None, start:stop]), self._embed(tokens), slot)
            slot.commit([stop - start])
        return self._fuse(features[-1:])

    def _chain(self, context: DraftContext) -> Advance:
        """Write what is pending; return the steps of a chain behind it."""
        state = self._catch_up(context, num_slots=0)

        def advance(i: int, drafted: Int[Tensor, " B"] | None) -> Float[Tensor, "B D"]:
            nonlocal state
            if drafted is not None:
                embedded = self._embed(drafted[:, None])
                state = self._head(state, embedded, self._cache, offset=i)
            return self._head.logits(state[:, 0])

        return advance

    def _parallel(self, context: DraftContext) -> Advance:
        """Write what is pending and a slot for every further draft token, in one pass."""
        logits = self._head.logits(self._catch_up(context, num_slots=context.gamma - 1))

        def advance(i: int, drafted: Int[Tensor, " B"] | None) -> Float[Tensor, "B D"]:
            return logits[:, i]

        return advance

    def _catch_up(self, context: DraftContext, num_slots: int) -> Float[Tensor, "B S H"]:
        """Write all pending pairs; return the states behind each row's last pair and its slots.

        All but the last pair are committed; that one is written again if the round is drafted
        again. Rows that ask for nothing are not fed.
        """
        wanted = [len(s) if fed else 0 for s, fed in zip(self._pending, self._is_fed, strict=True)]
        while max(wanted) > self._chunk:
            counts = [min(max(count - 1, 0), self._chunk) for count in wanted]
            self._write(context, counts)
            self._advance(counts)
            wanted = [total - count for total, count in zip(wanted, counts, strict=True)]
        states = self._write(context, wanted, num_slots)
        self._advance([max(count - 1, 0) for count in wanted])
        first = torch.tensor([max(count - 1, 0) for count in wanted], device=states.device)
        columns = first[:, None] + torch.arange(num_slots + 1, device=states.device)
        return states[torch.arange(len(wanted), device=states.device)[:, None], columns]

    def _write(
        self, context: DraftContext, counts: Sequence[int], num_slots: int = 0
    ) -> Float[Tensor, "B T H"]:
        """Write the first ``counts[b]`` pending pairs of each row, and slots behind them.

        Rows are padded on the right. Returns the head's states.
        """
        width, head = max(counts) + num_slots, self._head
        slot_state = head.slot_state() if num_slots else None
        hidden = torch.zeros(len(counts), width, self._size, dtype=self._dtype, device=self._device)
        tokens: list[list[int]] = []
        fill = [head.config.mask_token_id or 0] * num_slots
        for row, count in enumerate(counts):
            start = self._cache.lengths[row] + 1
            ids = [*context.token_ids[row][start : start + count], *fill]
            tokens.append(ids + [0] * (width - len(ids)))
            hidden[row, :count] = self._pending[row][:count]
            if slot_state is not None:
                hidden[row, count : count + num_slots] = slot_state
        embedded = self._embed(torch.tensor(tokens, dtype=torch.int64, device=self._device))
        return head(hidden, embedded, self._cache)

    def _advance(self, counts: Sequence[int]) -> None:
        """Commit the first ``counts[b]`` written pairs and forget their states."""
        self._cache.commit(counts)
        for row, count in enumerate(counts):
            self._pending[row] = self._pending[row][count:]

    def _close(self, rooms: Sequence[int]) -> None:
        """Stop following rows that outgrew the head; texts only grow, so for good."""
        for row, room in enumerate(rooms):
            if room <= 0 and self._is_open[row]:
                self._is_open[row] = False
                self._pending[row] = self._pending[row][:0]

    def _room(self, token_ids: Sequence[int]) -> int:
        """Return how many tokens can be drafted before the head's positions run out.

        The last of n - 1 pairs stands at position n - 2, and so on for every further token.
        """
        limit = self._max_positions
        return sys.maxsize if limit is None else limit - len(token_ids) + 2

    def _fuse(self, features: Float[Tensor, "*N F"]) -> Float[Tensor, "*N H"]:
        return self._head.fuse(features.to(self._dtype))

    def _embed(self, token_ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T H"]:
        return self._head.embed(token_ids, self._borrowed)


class Eagle3(HeadDrafter):
    """A one-layer head over three or more of the target's layers, its own states fed back.

    A chain: at temperature 0 each draft token is the head's argmax. Above, it is drawn under the
    request's own sampling settings and ``probs`` is the law it was drawn from; tokens outside the
    head's vocabulary have probability 0. EAGLE-3.1 and P-EAGLE checkpoints are told from their
    config and weights; P-EAGLE draws its positions independently of each other.
    """

    idea: ClassVar[str] = "one layer on the target's features, its own states fed back"
    paper: ClassVar[str] = "Li et al. 2025 (EAGLE-3), arXiv 2503.01840"

    type: Literal["eagle3"] = "eagle3"
    taps: TapIds = None
    """Target layers whose outputs are read, e.g. 1+15+26 (0 = first layer, -1 = embeddings);
    none takes the checkpoint's"""
    norm_output: bool | None = None
    """Whether the normed state is fed back (EAGLE-3.1); none takes the checkpoint's word"""
    depth: int | None = Field(default=None, ge=1)
    """Most draft tokens per round; none leaves it to gamma"""
    max_positions: int | None = Field(default=None, ge=1)
    """Positions the drafter may use; none takes the checkpoint's"""
    prefill_chunk: int = Field(default=512, ge=1)
    """Most tokens per row in one forward over a prompt"""

    def open(self, target: LanguageModel, cache: KVCache) -> Eagle3Session:
        """Return a session; the head is read when first asked for.

        Raises ModelMismatchError for a head of another target, UnsupportedModelError, ConfigError.
        """
        head: Eagle3Head = self._heads(target)
        config = head.config
        if config.tap_size != target.hidden_size or max(config.taps) >= target.num_layers:
            raise ModelMismatchError(
                f"Expected {head.name} to read states of {target.hidden_size} numbers from "
                f"{target.name}'s {target.num_layers} layers, got a head for states of "
                f"{config.tap_size} after the layers {config.taps}. Use a head trained for "
                f"{target.name}."
            )
        check_vocabulary(head.name, config.vocab_size, target)
        return Eagle3Session(
            head,
            target,
            max_positions=self.max_positions or config.shape.max_positions,
            depth=self.depth,
            chunk=self.prefill_chunk,
        )

    def _read(self, target: LanguageModel, dtype: torch.dtype) -> Eagle3Head:
        from lenity.models.heads.checkpoint import open_checkpoint
        from lenity.models.heads.eagle3_config import read_config

        checkpoint = open_checkpoint(str(self.model), revision=self.revision, target=target)
        config = read_config(
            checkpoint,
            num_target_layers=target.num_layers,
            target_hidden_size=target.hidden_size,
            taps=self.taps,
            norm_output=self.norm_output,
        )
        return Eagle3Head.load(checkpoint, config, dtype=dtype, device=target.device)
