"""Draft with Medusa heads, as a chain of each head's best token.

The state that gave the anchor drafts everything behind it: head 0 the token after the anchor, head
1 the one after that. A head knows nothing of the token before its own, so above temperature 0 the
law of a block is the product of its positions' laws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenity.drafters.base import DraftContext, no_draft
from lenity.drafters.block import HeadDrafter, HeadVocabulary, cap
from lenity.drafters.chain import draft_chain
from lenity.errors import ModelMismatchError
from lenity.models.base import KVCache, LanguageModel
from lenity.models.heads.checkpoint import open_checkpoint
from lenity.models.heads.formats import Format, format_of
from lenity.models.heads.medusa import MedusaHeads, read_medusa
from lenity.types import Draft


class MedusaSession:
    """The last state the target gave for each row: all that Medusa remembers."""

    def __init__(self, heads: MedusaHeads, target: LanguageModel) -> None:
        """Start without rows."""
        width = heads.vocab_size or target.vocab_size
        self._vocabulary = HeadVocabulary(heads.name, width, target)
        self._heads, self._target = heads, target
        self.taps: tuple[int, ...] = (target.num_layers,)  # what enters the target's LM head
        self._dtype = next(heads.parameters()).dtype
        self._states = torch.zeros(0, target.hidden_size, dtype=self._dtype, device=target.device)
        self._most: list[int] = []  # draft tokens a row can get: none before its first state

    def admit(self, token_ids: Sequence[int], features: Float[Tensor, "T F"] | None) -> None:
        """Add a row; a prompt of one token has no state yet, so its first round has no draft."""
        has_state = features is not None and len(features) > 0
        empty = self._states.new_zeros(1, self._states.shape[1])
        state = empty if features is None or not has_state else features[-1:].to(self._dtype)
        self._states = torch.cat([self._states, state])
        self._most.append(len(self._heads) if has_state else 0)

    @torch.no_grad()
    def propose(self, context: DraftContext) -> Draft:
        """Return up to ``context.limits[b]`` tokens, at most one a head."""
        asked = cap(context, self._most)
        if not asked.gamma:
            return no_draft(len(self._most), self._target.device)
        logits = self._heads(self._states, self._lm_head, asked.gamma)

        def advance(i: int, drafted: Int[Tensor, " B"] | None) -> Float[Tensor, "B D"]:
            return logits[:, i]

        return draft_chain(advance, asked, self._vocabulary)

    def observe(
        self, accepted_lengths: Sequence[int], features: Float[Tensor, "B R F"] | None
    ) -> None:
        """Keep each row's state at its last accepted token, the one that gave the next anchor."""
        assert features is not None, "Medusa asks for the target's last state"
        rows = torch.arange(len(accepted_lengths), device=features.device)
        last = torch.tensor(list(accepted_lengths), device=features.device, dtype=torch.int64)
        self._states = features[rows, last].to(self._dtype)
        self._most = [len(self._heads)] * len(accepted_lengths)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        self._states = self._states[list(rows)]
        self._most = [self._most[row] for row in rows]

    def _lm_head(self, states: Float[Tensor, "*N H"]) -> Float[Tensor, "*N V"]:
        return self._target.logits(states.to(self._target.dtype))


class Medusa(HeadDrafter):
    """Independent heads on the target's last hidden state, one a draft position.

    A chain: at temperature 0 draft token i is the argmax of head i; above, it is drawn from head
    i's law under the request's own sampling settings, independently of the other positions, and
    ``probs`` is that law. At most as many draft tokens as there are heads.
    """

    idea: ClassVar[str] = "independent heads on the target's last hidden state"
    paper: ClassVar[str] = "Cai et al. 2024 (Medusa), arXiv 2401.10774"

    type: Literal["medusa"] = "medusa"

    def open(self, target: LanguageModel, cache: KVCache) -> MedusaSession:
        """Return a session; the heads are read when first asked for. Raises ModelMismatchError."""
        heads: MedusaHeads = self._heads(target)
        if heads.hidden_size != target.hidden_size:
            raise ModelMismatchError(
                f"Expected {heads.name} to read {target.name}'s states of {target.hidden_size} "
                f"numbers, got heads for {heads.hidden_size}. Use heads trained for {target.name}."
            )
        return MedusaSession(heads, target)

    def _read(self, target: LanguageModel, dtype: torch.dtype) -> MedusaHeads:
        checkpoint = open_checkpoint(str(self.model), revision=self.revision, target=target)
        format_of(checkpoint, Format.MEDUSA)
        return read_medusa(checkpoint, dtype=dtype, device=target.device)
