"""Draft with DSpark: a DFlash block, corrected from left to right and cut where it is unsure."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from lenity.drafters.base import DraftContext
from lenity.drafters.block import cut
from lenity.drafters.chain import draft_chain
from lenity.drafters.dflash import BlockDrafter, BlockSession, FilledBlock
from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.base import KVCache, LanguageModel
from lenity.models.heads.dspark import DSpark as DSparkHead
from lenity.models.heads.dspark import read_dspark
from lenity.models.heads.vocab_map import check_vocabulary
from lenity.types import Draft


class DSparkSession(BlockSession):
    """A block session whose tokens follow one another, with a confidence of their own."""

    def __init__(
        self, head: DSparkHead, target: LanguageModel, seen: KVCache | None, threshold: float
    ) -> None:
        """Start without rows; blocks are cut at the first confidence below ``threshold``."""
        super().__init__(head, target, seen)
        if head.markov_head is not None:
            rows = head.markov_head.markov_w1.num_embeddings
            check_vocabulary(head.name, rows, target)
        self._spark, self._threshold = head, threshold

    def _draft(self, asked: DraftContext, filled: FilledBlock) -> Draft:
        """Return the tokens of the proposing slots, each given the one before it."""
        anchors, hidden = filled.proposing(asked.gamma)
        base = self._head.logits(hidden, self._lm_head)
        markov = self._spark.markov_head
        state = self._read(filled)

        def advance(i: int, drafted: Int[Tensor, " B"] | None) -> Float[Tensor, "B D"]:
            nonlocal state
            if markov is None:
                return base[:, i]
            previous = anchors if drafted is None else drafted
            bias, state = markov(previous, hidden[:, i], state)
            return base[:, i] + bias

        draft = draft_chain(advance, asked, self._vocabulary)
        previous = torch.cat([anchors[:, None], draft.token_ids[:, :-1]], 1)
        trust = self._spark.confidence_logits(previous, hidden)
        if trust is None:
            return draft
        confidence = trust.to(torch.float32).sigmoid()
        is_trusted = confidence >= self._threshold
        lengths = is_trusted.to(torch.int64).cumprod(1).sum(1)
        return cut(replace(draft, confidence=confidence), lengths)

    def _read(self, filled: FilledBlock) -> Tensor | None:
        """Return the Markov head's state before the first proposals, pending tokens read.

        None where there are none, and for kinds that have no state.
        """
        markov, state = self._spark.markov_head, None
        if markov is None or not any(filled.num_pending):
            return None
        counts = torch.tensor(filled.num_pending, device=filled.hidden.device)[:, None]
        for j in range(min(max(filled.num_pending), filled.hidden.shape[1])):
            _, following = markov(filled.token_ids[:, j], filled.hidden[:, j], state)
            if following is None:
                return None
            before = torch.zeros_like(following) if state is None else state
            state = torch.where(j < counts, following, before)
        return state


class DSpark(BlockDrafter):
    """A DFlash block whose tokens are drawn from left to right, each knowing the one before.

    Above temperature 0 a token is drawn from its slot's law after the Markov correction, under the
    request's own sampling settings, and ``probs`` is that law. ``confidence`` is the confidence
    head's estimate that a token is accepted given that those before it were. A slot's confidence
    does not depend on its own token, so that cutting there keeps strict decoding exact.
    """

    idea: ClassVar[str] = "a DFlash block with a Markov correction and a confidence per position"
    paper: ClassVar[str] = "DeepSeek-AI 2026 (DSpark), github.com/deepseek-ai/DeepSpec"

    type: Literal["dspark"] = "dspark"
    confidence_threshold: float = Field(default=0.0, ge=0, le=1)
    """Draft up to the first position whose confidence is below this; 0 drafts whole blocks"""

    def open(self, target: LanguageModel, cache: KVCache) -> DSparkSession:
        """Return a session; the drafter is read when first asked for.

        Raises ModelMismatchError, UnsupportedModelError, ConfigError.
        """
        head: DSparkHead = self._heads(target)
        if self.confidence_threshold and head.confidence_head is None:
            raise ConfigError(
                f"Expected a drafter with a confidence head for confidence_threshold="
                f"{self.confidence_threshold:g}, got {head.name}, which has none. Leave the "
                f"threshold at 0."
            )
        seen = cache if self.visible_pending else None
        return DSparkSession(head, target, seen, self.confidence_threshold)

    def _read(self, target: LanguageModel, dtype: torch.dtype) -> DSparkHead:
        checkpoint, config = self._checkpoint(target)
        if not config.markov_rank and not config.has_confidence:
            raise ModelMismatchError(
                f"Expected a drafter with a Markov or a confidence head in {checkpoint.folder}, "
                f"got neither. Use the drafter 'dflash' for it."
            )
        return read_dspark(checkpoint, config, target, dtype)
