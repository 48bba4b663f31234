"""Draft a whole block in one pass of a DFlash model.

Every committed token enters the drafter's cache once, as keys and values made of the target's
features alone. A round runs the block [anchor, mask, mask, …] behind them and forgets it.

With ``visible_pending`` committed tokens that the target has not seen, and that have no features
therefore, stand in the block as they are, in front of the anchor: [pending, …, anchor, mask, …].
They take the places of masks, so that p of them leave p fewer proposals; a block that is full of
them proposes nothing, and the target verifies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenity.drafters.base import DraftContext, no_draft
from lenity.drafters.block import HeadDrafter, HeadVocabulary, TapIds, cap
from lenity.drafters.chain import draft_chain
from lenity.errors import ModelMismatchError
from lenity.models.base import KVCache, LanguageModel
from lenity.models.heads.checkpoint import Checkpoint, open_checkpoint
from lenity.models.heads.dflash import DFlash as DFlashHead
from lenity.models.heads.dflash import check_fit, read_dflash
from lenity.models.heads.dflash_config import DFlashConfig, Slots, read_config
from lenity.models.heads.vocab_map import check_vocabulary
from lenity.types import Draft


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledBlock:
    """What one pass says of a block's slots that predict, in order.

    Slot j predicts the token behind ``token_ids[b, j]``. For the first ``num_pending[b]`` that
    token is known; the next one is row b's first proposal, behind its anchor.
    """

    token_ids: Int[Tensor, "B S"]
    hidden: Float[Tensor, "B S H"]
    num_pending: Sequence[int]

    def proposing(self, gamma: int) -> tuple[Int[Tensor, " B"], Float[Tensor, "B G H"]]:
        """Return each row's anchor, and the states of its first ``gamma`` proposals.

        A row with fewer proposals repeats its last slot.
        """
        if not any(self.num_pending):
            return self.token_ids[:, 0], self.hidden[:, :gamma]
        starts = torch.tensor(self.num_pending, device=self.hidden.device)[:, None]
        last = self.hidden.shape[1] - 1
        columns = (starts + torch.arange(gamma, device=starts.device)).clamp_max(last)
        anchors = self.token_ids.gather(1, columns[:, :1]).squeeze(1)
        return anchors, self.hidden.take_along_dim(columns[..., None], dim=1)


class BlockSession:
    """Context keys and values of the committed tokens, one slot per row."""

    def __init__(self, head: DFlashHead, target: LanguageModel, seen: KVCache | None) -> None:
        """Start without rows. Raises ModelMismatchError.

        ``seen`` is the target's cache where tokens that are not in it yet may stand in the block.
        """
        check_fit(head, target)
        rows = target.vocab_size if head.lm_head is None else head.lm_head.out_features
        self._vocabulary = HeadVocabulary(head.name, rows, target, head.kept_ids)
        if head.embed_tokens is not None:
            check_vocabulary(head.name, head.embed_tokens.num_embeddings, target)
        self._head, self._target, self._cache = head, target, head.new_cache()
        self._seen = seen
        self.taps: tuple[int, ...] = head.config.taps

    @torch.no_grad()
    def admit(self, token_ids: Sequence[int], features: Float[Tensor, "T F"] | None) -> None:
        """Add a row with the context of its prompt; a prompt of one token has none."""
        row = self._head.new_cache(1)
        if features is not None and len(features):
            self._head.remember(features[None].to(self._head.fc.weight.dtype), row)
            row.commit([len(features)])
        self._cache.append(row)

    @torch.no_grad()
    def propose(self, context: DraftContext) -> Draft:
        """Return up to ``context.limits[b]`` tokens, at most what one block has room for."""
        lengths = self._cache.lengths
        pending = [len(ids) - 1 - n for ids, n in zip(context.token_ids, lengths, strict=True)]
        assert self._seen is not None or not any(pending), (
            "the drafter's cache holds the context of all committed tokens but the anchor"
        )
        most = self._head.config.max_draft_length
        asked = cap(context, [max(0, most - count) for count in pending])
        if not asked.gamma:
            return no_draft(len(lengths), self._target.device)
        return self._draft(asked, self._fill(context.token_ids, pending))

    def _fill(self, token_ids: Sequence[Sequence[int]], pending: Sequence[int]) -> FilledBlock:
        """Run the block of each row: pending tokens, the anchor, and masks."""
        config = self._head.config
        known = [list(ids[len(ids) - 1 - n :]) for ids, n in zip(token_ids, pending, strict=True)]
        masks = [config.mask_token_id] * config.block_size
        block = torch.tensor(
            [[*ids, *masks][: config.block_size] for ids in known], device=self._target.device
        )
        hidden = self._head.run_slots(block, self._cache, self._target.embed)
        first = config.first_slot
        return FilledBlock(
            token_ids=block[:, : config.block_size - first],
            hidden=hidden[:, first:],
            num_pending=pending,
        )

    @torch.no_grad()
    def observe(
        self, accepted_lengths: Sequence[int], features: Float[Tensor, "B R F"] | None
    ) -> None:
        """Keep the context of each row's anchor and accepted tokens, and of pending ones before.

        A row that skipped keeps nothing: the target has not seen what was committed.
        """
        counts = [1 + accepted for accepted in accepted_lengths]
        if self._seen is not None:
            seen = zip(self._seen.lengths, self._cache.lengths, strict=True)
            counts = [theirs - ours for theirs, ours in seen]
        if not any(counts):
            return
        assert features is not None, "a block drafter asks for the target's features"
        self._head.remember(features.to(self._head.fc.weight.dtype), self._cache)
        self._cache.commit(counts)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        self._cache.keep(rows)

    def _lm_head(self, hidden: Float[Tensor, "*N H"]) -> Float[Tensor, "*N V"]:
        return self._target.logits(hidden.to(self._target.dtype))

    def _draft(self, asked: DraftContext, filled: FilledBlock) -> Draft:
        """Return the tokens of the proposing slots, each on its own."""
        _, hidden = filled.proposing(asked.gamma)
        logits = self._head.logits(hidden, self._lm_head)

        def advance(i: int, drafted: Int[Tensor, " B"] | None) -> Float[Tensor, "B D"]:
            return logits[:, i]

        return draft_chain(advance, asked, self._vocabulary)


class BlockDrafter(HeadDrafter):
    """What DFlash and DSpark let their users set."""

    slots: Slots | None = None
    """fill_in: slot k predicts its own place; anchor_first: the next. None takes the config's"""
    taps: TapIds = None
    """Target layers read, 0 the first and -1 the embeddings, as 1+9+17; none takes the config's"""
    visible_pending: bool = False
    """Put skipped tokens into the block, before the masks: only then may its drafts be skipped"""

    @property
    def takes_pending(self) -> bool:
        """Whether skipped tokens may stand in the block."""
        return self.visible_pending

    def _checkpoint(self, target: LanguageModel) -> tuple[Checkpoint, DFlashConfig]:
        checkpoint = open_checkpoint(str(self.model), revision=self.revision, target=target)
        config = read_config(
            checkpoint, num_target_layers=target.num_layers, slots=self.slots, taps=self.taps
        )
        return checkpoint, config


class DFlash(BlockDrafter):
    """A small bidirectional model on the target's features that fills a block in one pass.

    At temperature 0 draft token i is the argmax of its slot; above, it is drawn from the slot's law
    under the request's own sampling settings, independently of the other slots, and ``probs`` is
    that law. At most as many draft tokens as a block has slots that predict: its size, less one
    where slots are filled in.
    """

    idea: ClassVar[str] = "a small block model on the target's features, all positions in one pass"
    paper: ClassVar[str] = "Chen et al. 2026 (DFlash), arXiv 2602.06036"

    type: Literal["dflash"] = "dflash"

    def open(self, target: LanguageModel, cache: KVCache) -> BlockSession:
        """Return a session; the drafter is read when first asked for.

        Raises ModelMismatchError, UnsupportedModelError, ConfigError.
        """
        return BlockSession(self._heads(target), target, cache if self.visible_pending else None)

    def _read(self, target: LanguageModel, dtype: torch.dtype) -> DFlashHead:
        checkpoint, config = self._checkpoint(target)
        if config.markov_rank or config.has_confidence:
            raise ModelMismatchError(
                f"Expected a drafter without Markov and confidence heads in {checkpoint.folder}, "
                f"got one with them. Use the drafter 'dspark' for it."
            )
        return read_dflash(checkpoint, config, target, dtype)
