"""Draft a whole block in one pass of a DFlash model.

Every committed token enters the drafter's cache once, as keys and values made of the target's
features alone. A round runs the block [anchor, mask, mask, …] behind them and forgets it.
"""

from __future__ import annotations

from collections.abc import Sequence
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


class BlockSession:
    """Context keys and values of the committed tokens, one slot per row."""

    def __init__(self, head: DFlashHead, target: LanguageModel) -> None:
        """Start without rows. Raises ModelMismatchError."""
        check_fit(head, target)
        rows = target.vocab_size if head.lm_head is None else head.lm_head.out_features
        self._vocabulary = HeadVocabulary(head.name, rows, target, head.kept_ids)
        if head.embed_tokens is not None:
            check_vocabulary(head.name, head.embed_tokens.num_embeddings, target)
        self._head, self._target, self._cache = head, target, head.new_cache()
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
        """Return up to ``context.limits[b]`` tokens, at most what one block proposes."""
        batch_size = len(context.token_ids)
        asked = cap(context, [self._head.config.max_draft_length] * batch_size)
        if not asked.gamma:
            return no_draft(batch_size, self._target.device)
        assert self._cache.lengths == [len(ids) - 1 for ids in context.token_ids], (
            "the drafter's cache holds the context of all committed tokens but the anchor"
        )
        anchors = torch.tensor([ids[-1] for ids in context.token_ids], device=self._target.device)
        hidden = self._head.run_block(anchors, self._cache, self._target.embed)
        first = self._head.config.first_slot
        return self._draft(asked, anchors, hidden[:, first : first + asked.gamma])

    @torch.no_grad()
    def observe(
        self, accepted_lengths: Sequence[int], features: Float[Tensor, "B R F"] | None
    ) -> None:
        """Keep the context of each row's anchor and accepted tokens."""
        assert features is not None, "a block drafter asks for the target's features"
        self._head.remember(features.to(self._head.fc.weight.dtype), self._cache)
        self._cache.commit([1 + accepted for accepted in accepted_lengths])

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        self._cache.keep(rows)

    def _lm_head(self, hidden: Float[Tensor, "*N H"]) -> Float[Tensor, "*N V"]:
        return self._target.logits(hidden.to(self._target.dtype))

    def _draft(
        self, asked: DraftContext, anchors: Int[Tensor, " B"], hidden: Float[Tensor, "B G H"]
    ) -> Draft:
        """Return the tokens of slots whose states are ``hidden``, each on its own."""
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
        return BlockSession(self._heads(target), target)

    def _read(self, target: LanguageModel, dtype: torch.dtype) -> DFlashHead:
        checkpoint, config = self._checkpoint(target)
        if config.markov_rank or config.has_confidence:
            raise ModelMismatchError(
                f"Expected a drafter without Markov and confidence heads in {checkpoint.folder}, "
                f"got one with them. Use the drafter 'dspark' for it."
            )
        return read_dflash(checkpoint, config, target, dtype)
