"""Training DFlash and DSpark: many blocks of one reply in one pass.

Anchors are drawn at random; a block sees the target's features before its anchor and its own slots.
Slot k is weighted with exp(-k / ``slot_scale``). DFlash learns by cross entropy alone; DSpark by

    0.1 cross entropy + 0.9 total variation + BCE(confidence, 1 - total variation)

each slot given the reply's token before it (DeepSeek-AI 2026, "DSpark"; Chen et al. 2026,
"DFlash", arXiv 2602.06036). Both are published in DeepSpec's layout, slots anchor first.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from lenity.drafters.block import TapIds
from lenity.models.base import LanguageModel
from lenity.models.heads.blocks import Layer
from lenity.models.heads.dflash_config import DFlashConfig, default_layer_ids
from lenity.models.heads.dspark import DSpark
from lenity.models.heads.formats import Format
from lenity.training.attention import attend_drafts
from lenity.training.batches import ReplyBatch, take
from lenity.training.losses import is_best, soft_cross_entropy, total_variation, weighted_mean
from lenity.training.recipe import (
    Outcome,
    Published,
    Recipe,
    initialise,
    layer_words,
    shape_of,
    vocabulary_map,
)
from lenity.training.tables import TargetTables

CHUNK = 48
"""Blocks of a reply that are looked at together when every base is asked for."""


class BlockRecipe(Recipe):
    """A block of slots filled in one pass; slot k drafts the token k + 1 behind the anchor."""

    taps: TapIds = None
    """Target layers to read; none takes one a draft layer and one more, evenly spaced"""
    block_size: int = Field(default=7, ge=2)
    """Slots, which is how many draft tokens a block makes"""
    num_layers: int = Field(default=2, ge=1)
    """Layers of the drafter"""
    num_anchors: int = Field(default=24, ge=1)
    """Blocks of a reply in one training step"""
    slot_scale: float = Field(default=4.0, gt=0)
    """Slots over which the weight of the loss falls to 1 / e"""
    intermediate_size: int | None = Field(default=None, ge=1)
    """Width of the MLP; none takes the target's"""
    markov_rank: int = Field(default=0, ge=0)
    """Rank of the correction by the token before; 0 is none"""
    markov_kind: Literal["vanilla", "gated", "rnn"] = "vanilla"
    """Kind of that correction"""
    has_confidence: bool = False
    """Whether slots say how likely they are accepted"""
    cross_entropy_weight: float = Field(default=1.0, ge=0)
    """Weight of the cross entropy with the target's law"""
    variation_weight: float = Field(default=0.0, ge=0)
    """Weight of the total variation from the target's law"""

    @property
    def depth(self) -> int:
        """Slots."""
        return self.block_size

    def tapped(self, num_layers: int) -> tuple[int, ...]:
        """Return the layers to read."""
        count = self.num_layers + 1
        return self.taps or (default_layer_ids(num_layers, count) if num_layers >= 6 else (0,))

    def build(self, target: LanguageModel, tables: TargetTables, seed: int) -> DSpark:
        """Return an untrained drafter whose LM head begins as the target's."""
        shape = shape_of(self._words(target), has_qk_norm=True)
        config = DFlashConfig(
            format=Format.DSPARK_DEEPSPEC if self.markov_rank else Format.DFLASH_DEEPSPEC,
            shape=shape,
            block_size=self.block_size,
            mask_token_id=mask_token(target, tables),
            taps=self.tapped(target.num_layers),
            slots="anchor_first",
            is_causal=(False,) * self.num_layers,
            markov_rank=self.markov_rank,
            markov_kind=self.markov_kind,
            has_confidence=self.has_confidence,
            is_confidence_markov=bool(self.markov_rank),
        )
        head = DSpark(
            config,
            target.hidden_size,
            head_rows=len(tables.kept_ids),
            vocab_size=target.vocab_size,
        )
        initialise(head, seed)
        if head.markov_head is not None:
            head.markov_head.markov_w2.weight.data.mul_(0.1)
        head = head.to(target.device)
        head.kept_ids = tables.kept_ids
        if tables.rows is not None and head.lm_head is not None:
            head.lm_head.weight.data.copy_(tables.rows)
        return head

    def outcome(
        self, head: Any, batch: ReplyBatch, tables: TargetTables, draw: torch.Generator
    ) -> Outcome:
        """Return the loss of blocks at drawn anchors."""
        bases, is_real = self._draw(batch, draw)
        tokens, is_there = batch.drafted(bases, is_real, self.block_size)
        rows = tables.row_of(tokens)
        hidden = run_blocks(head, batch, tables, bases)
        logits, trust = corrected(head, batch, bases, hidden)
        steps = torch.arange(self.block_size, device=bases.device)
        with torch.no_grad():
            states = take(batch.last, bases[..., None] + 1 + steps)
            laws = tables.logits(states).to(torch.float32).softmax(-1)
        variation = total_variation(logits, laws)
        losses = self.variation_weight * variation
        losses = losses + self.cross_entropy_weight * soft_cross_entropy(logits, laws)
        if trust is not None:
            losses = losses + F.binary_cross_entropy_with_logits(
                trust.to(torch.float32), 1 - variation.detach(), reduction="none"
            )
        weights = torch.exp(-steps / self.slot_scale)
        loss = weighted_mean(losses, is_there & (rows >= 0), weights)
        return Outcome.of(loss, is_best(logits, rows), is_there)

    @torch.no_grad()
    def hits(self, head: Any, batch: ReplyBatch, tables: TargetTables) -> Bool[Tensor, "B M K"]:
        """Return which draft tokens are the reply's, each given the reply's token before it."""
        bases, is_real = batch.bases()
        tokens, is_there = batch.drafted(bases, is_real, self.block_size)
        best = []
        for part in bases.split(CHUNK, dim=1):
            hidden = run_blocks(head, batch, tables, part)
            best.append(corrected(head, batch, part, hidden)[0].argmax(-1))
        return (torch.cat(best, 1) == tables.row_of(tokens)) & is_there

    def publish(self, head: Any, target: LanguageModel, tables: TargetTables) -> Published:
        """Return config and tensors as DeepSpec writes them."""
        config = self._words(target) | {
            "model_type": "qwen3",
            "architectures": ["Qwen3DSparkModel"],
            "block_size": self.block_size,
            "mask_token_id": head.config.mask_token_id,
            "target_layer_ids": list(head.config.taps),
            "num_target_layers": target.num_layers,
            "num_anchors": self.num_anchors,
            "markov_rank": self.markov_rank,
            "markov_head_type": self.markov_kind,
            "enable_confidence_head": self.has_confidence,
            "confidence_head_with_markov": bool(self.markov_rank),
            "draft_vocab_size": len(tables.kept_ids),
        }
        tensors = {name: tensor.detach() for name, tensor in head.state_dict().items()}
        return Published(
            config=config, tensors=tensors | vocabulary_map(tables.kept_ids, target.vocab_size)
        )

    def _words(self, target: LanguageModel) -> dict[str, Any]:
        return layer_words(target, self.num_layers, self.intermediate_size)

    def _draw(
        self, batch: ReplyBatch, draw: torch.Generator
    ) -> tuple[Int[Tensor, "B A"], Bool[Tensor, "B A"]]:
        """Return bases drawn evenly from each reply, with replacement."""
        shares = torch.rand(len(batch.starts), self.num_anchors, generator=draw)
        counts = (batch.lengths - batch.starts - 1)[:, None]
        steps = (shares.to(counts.device) * counts).to(torch.int64)
        bases = batch.starts[:, None] - 1 + steps
        return bases, bases + 2 < batch.lengths[:, None]


class DFlashRecipe(BlockRecipe):
    """A DFlash drafter in DeepSpec's layout."""

    type: Literal["dflash"] = "dflash"


class DSparkRecipe(BlockRecipe):
    """A DSpark drafter in DeepSpec's layout: Markov and confidence heads on a DFlash block."""

    type: Literal["dspark"] = "dspark"
    markov_rank: int = Field(default=32, ge=0)
    """Rank of the correction by the token before; 0 is none"""
    has_confidence: bool = True
    """Whether slots say how likely they are accepted"""
    cross_entropy_weight: float = Field(default=0.1, ge=0)
    """Weight of the cross entropy with the target's law"""
    variation_weight: float = Field(default=0.9, ge=0)
    """Weight of the total variation from the target's law"""


def mask_token(target: LanguageModel, tables: TargetTables) -> int:
    """Return an id to fill slots with: one no token stands for, or the last one not kept."""
    if len(target.unknown_ids):
        return int(target.unknown_ids[0])
    is_free = torch.ones(target.vocab_size, dtype=torch.bool)
    is_free[tables.kept_ids.cpu()] = False
    free = is_free.nonzero()
    return int(free[-1]) if len(free) else target.vocab_size - 1


def run_blocks(
    head: DSpark, batch: ReplyBatch, tables: TargetTables, bases: Int[Tensor, "B A"]
) -> Float[Tensor, "B A S H"]:
    """Return the normed states of all slots of the blocks whose anchors stand behind ``bases``."""
    size, config = head.config.block_size, head.config
    slots = torch.arange(size, device=bases.device)
    token_ids = bases.new_full((*bases.shape, size), config.mask_token_id)
    token_ids[..., 0] = take(batch.token_ids, bases + 1)
    x = F.embedding(token_ids, tables.embedding)
    context = head.fuse(batch.taps)
    positions = torch.arange(context.shape[1], device=bases.device).expand(len(bases), -1)
    places = (bases[..., None] + 1 + slots).flatten(1)
    sees = positions[:, None] <= bases[..., None]
    far, near = config.shape.rotary(positions, x.dtype), config.shape.rotary(places, x.dtype)
    for layer in head.layers:
        assert isinstance(layer, Layer)
        attention = layer.self_attn
        normed = layer.input_layernorm(x).flatten(1, 2)
        queries = attention.queries(normed, near).unflatten(2, (*bases.shape[1:], size))
        keys, values = attention.keys_values(normed, near)
        own = tuple(t.unflatten(2, (*bases.shape[1:], size)) for t in (keys, values))
        mixed = attend_drafts(
            attention, queries, attention.keys_values(context, far), (own[0], own[1]), sees
        )
        x = x + mixed
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return head.norm(x)


def corrected(
    head: DSpark, batch: ReplyBatch, bases: Int[Tensor, "B A"], hidden: Float[Tensor, "B A S H"]
) -> tuple[Float[Tensor, "B A S D"], Float[Tensor, "B A S"] | None]:
    """Return logits after the Markov correction, and the confidence's logits where there are any.

    Each slot is given the reply's token before it.
    """
    slots = torch.arange(hidden.shape[2], device=bases.device)
    previous = take(batch.token_ids, bases[..., None] + 1 + slots)
    assert head.lm_head is not None, "drafters in training have an LM head of their own"
    logits = head.lm_head(hidden)
    if head.markov_head is not None:
        state, biases = None, []
        for k in range(hidden.shape[2]):
            bias, state = head.markov_head(previous[..., k], hidden[..., k, :], state)
            biases.append(bias)
        logits = logits + torch.stack(biases, -2)
    return logits, head.confidence_logits(previous, hidden)
