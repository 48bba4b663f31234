"""Training Medusa-1: heads on the target's last state, the target's LM head shared and frozen.

Head k of base t predicts the token at t + 2 + k; its cross entropy is weighted with
``head_decay`` ** k (Cai et al. 2024, arXiv 2401.10774, section 2.2.1).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from lenity.errors import ConfigError
from lenity.models.base import LanguageModel
from lenity.models.heads.medusa import MedusaHeads
from lenity.training.batches import ReplyBatch, take
from lenity.training.losses import hard_cross_entropy, is_best, weighted_mean
from lenity.training.recipe import Outcome, Published, Recipe, initialise
from lenity.training.tables import TargetTables


class MedusaRecipe(Recipe):
    """Medusa v1 heads without LM heads of their own.

    ``draft_vocab_size`` is what the loss is taken over; decoding uses the whole of the target's.
    """

    type: Literal["medusa"] = "medusa"
    num_heads: int = Field(default=5, ge=1)
    """Heads, one a draft token"""
    num_blocks: int = Field(default=1, ge=1)
    """Residual blocks of a head"""
    head_decay: float = Field(default=0.8, gt=0, le=1)
    """Factor of the loss from one head to the next"""

    @property
    def depth(self) -> int:
        """Heads."""
        return self.num_heads

    def tapped(self, num_layers: int) -> tuple[int, ...]:
        """Return no layer: the state that enters the LM head is captured anyway."""
        return ()

    def build(self, target: LanguageModel, tables: TargetTables, seed: int) -> MedusaHeads:
        """Return heads that begin as the identity. Raises ConfigError."""
        if tables.rows is None:
            raise ConfigError(
                f"Expected a target whose LM head is one matrix, for Medusa shares it, got "
                f"{target.name}, whose logits are scaled or capped. Train 'eagle3' for it."
            )
        heads = MedusaHeads(self.num_heads, self.num_blocks, target.hidden_size, None)
        initialise(heads, seed)
        for parameter in heads.parameters():
            parameter.data.mul_(0.01)
        return heads.to(target.device)

    def outcome(
        self, head: Any, batch: ReplyBatch, tables: TargetTables, draw: torch.Generator
    ) -> Outcome:
        """Return the loss, summed over heads with their weights."""
        bases, is_real = batch.bases()
        tokens, is_there = batch.drafted(bases, is_real, self.num_heads)
        rows = tables.row_of(tokens)
        logits = self._logits(head, batch, tables)
        losses = hard_cross_entropy(logits, rows)
        weights = self.head_decay ** torch.arange(self.num_heads, device=rows.device)
        loss = weighted_mean(losses, is_there & (rows >= 0), weights)
        return Outcome.of(loss, is_best(logits, rows), is_there)

    @torch.no_grad()
    def hits(self, head: Any, batch: ReplyBatch, tables: TargetTables) -> Bool[Tensor, "B M K"]:
        """Return which draft tokens behind each base are the reply's."""
        bases, is_real = batch.bases()
        tokens, is_there = batch.drafted(bases, is_real, self.num_heads)
        return (self._logits(head, batch, tables).argmax(-1) == tables.row_of(tokens)) & is_there

    def publish(self, head: Any, target: LanguageModel, tables: TargetTables) -> Published:
        """Return config and tensors as Medusa's own training writes them."""
        config = {
            "architectures": ["MedusaModel"],
            "medusa_num_heads": self.num_heads,
            "medusa_num_layers": self.num_blocks,
            "base_model_name_or_path": target.name,
            "hidden_size": target.hidden_size,
            "vocab_size": target.vocab_size,
            "version": "2",
        }
        tensors = {name: tensor.detach() for name, tensor in head.state_dict().items()}
        return Published(config=config, tensors=tensors, file="medusa_lm_head.safetensors")

    def _logits(
        self, head: MedusaHeads, batch: ReplyBatch, tables: TargetTables
    ) -> Float[Tensor, "B M K D"]:
        states = take(batch.last, batch.bases()[0])
        logits: Tensor = head(states, tables.logits)
        return logits
