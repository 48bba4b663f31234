"""Training a masked-diffusion drafter: some of the target's own layers, made to see both ways.

The drafter begins as a choice of the target's layers between the target's embedding and LM head,
both frozen; only the mask gets an embedding of its own. It is trained on what it is asked for when
drafting: a clean prefix and a block of masks, some of them revealed, all attended in both
directions. Position t is read from row t - 1, as the layers learned it in the target, and the
cross entropy of block position k is weighted with ``position_decay`` ** k.

Published in Dream's layout (Ye et al. 2025, "Dream 7B", arXiv 2508.15487), whose layers are
Qwen2's: biases that the target lacks begin at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from lenity.drafters.block import TapIds
from lenity.errors import ConfigError, UnsupportedModelError
from lenity.models.base import LanguageModel
from lenity.models.masked_formats import MaskedConfig, MaskedFormat
from lenity.training.batches import ReplyBatch, take
from lenity.training.denoiser import Denoiser, first_weights, stock_words
from lenity.training.losses import hard_cross_entropy, is_best
from lenity.training.recipe import Outcome, Published, Recipe
from lenity.training.tables import TargetTables

CHUNK = 24
"""Blocks of a reply that are looked at together when every base is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Blocks of each row: where they begin, their true tokens (-1: none), what is still masked."""

    cuts: Int[Tensor, "B A"]
    tokens: Int[Tensor, "B A K"]
    is_masked: Bool[Tensor, "B A K"]

    @property
    def is_inside(self) -> Bool[Tensor, "B A K"]:
        """Which slots belong to a block: blocks have different sizes."""
        return self.tokens >= 0


class MaskedDiffusionRecipe(Recipe):
    """A masked-diffusion drafter made of the target's layers, in Dream's layout."""

    type: Literal["masked_diffusion"] = "masked_diffusion"
    draft_vocab_size: Literal[None] = None
    """Always none: the LM head is the target's"""
    layers: TapIds = None
    """Layers of the target to begin with, such as 0+1+2+28+29; none takes all"""
    block_size: int = Field(default=16, ge=1)
    """Most masks in a block; half of that is the least"""
    prefix: Literal["full", "causal"] = "full"
    """Whether a clean token sees the whole sequence, as published models have it, or only what is
    before it; causal costs less to train, for many blocks then share one prefix"""
    num_blocks: int = Field(default=1, ge=1)
    """Blocks of a reply in one training step; more than one needs prefix=causal"""
    revealed: float = Field(default=0.5, ge=0, le=1)
    """Share of blocks some of whose tokens are there already, as after a first reveal"""
    position_decay: float = Field(default=0.85, gt=0, le=1)
    """Factor of the loss from one block position to the next"""
    prefix_weight: float = Field(default=1.0, ge=0)
    """Weight of the loss of plain next tokens, with prefix=causal: it keeps what the layers know"""
    mask_token_id: int | None = Field(default=None, ge=0)
    """Id that becomes the mask; none takes one without a token, or the last special token, or, of a
    target without a tokenizer, the last id"""

    @model_validator(mode="after")
    def _check_blocks(self) -> Self:
        if self.num_blocks > 1 and self.prefix != "causal":
            raise ValueError(
                f"num_blocks={self.num_blocks} needs prefix=causal, for a prefix that sees its "
                f"block has no room for another; set that, or leave num_blocks out"
            )
        return self

    @property
    def depth(self) -> int:
        """Masks in a block."""
        return self.block_size

    def tapped(self, num_layers: int) -> tuple[int, ...]:
        """Return no layer: the drafter sees tokens only."""
        return ()

    def build(self, target: LanguageModel, tables: TargetTables, seed: int) -> Denoiser:
        """Return the target's layers, to see both ways; only the mask's embedding is drawn.

        Raises UnsupportedModelError, ConfigError.
        """
        if tables.rows is None:
            raise UnsupportedModelError(
                f"Expected a target whose LM head is one matrix, got {target.name}, whose logits "
                f"are scaled or capped. Train 'eagle3' for it."
            )
        chosen = self._chosen(target)
        words = stock_words(target, len(chosen))
        config = MaskedConfig(
            format=MaskedFormat.DREAM,
            words=words,
            mask_token_id=self._mask(target),
            special_ids=frozenset(),
            is_shifted=True,
            prefix=self.prefix,
        )
        head = Denoiser(config, target.eos_token_ids)
        return head.fill(first_weights(head, target, chosen, tables, seed), target.device)

    def outcome(
        self, head: Any, batch: ReplyBatch, tables: TargetTables, draw: torch.Generator
    ) -> Outcome:
        """Return the loss of blocks drawn from each reply, and of the prefix they share."""
        blocks = self._draw(head, batch, draw)
        hidden, width = self._states(head, batch, tables, blocks)
        states, slots = self._masked_states(hidden, blocks, width)
        logits, tokens, place = tables.logits(states), blocks.tokens[slots], slots[2]
        weights = self.position_decay**place
        losses = hard_cross_entropy(logits, tokens) * weights
        loss = losses.sum() / weights.sum().clamp_min(1e-6)
        if self.prefix == "causal" and self.prefix_weight:
            loss = loss + self.prefix_weight * _prefix_loss(batch, tables, hidden[:, :width])
        hits = torch.zeros_like(blocks.is_masked)
        hits[slots] = is_best(logits, tokens)
        return Outcome.of(loss, hits, blocks.is_masked)

    @torch.no_grad()
    def hits(self, head: Any, batch: ReplyBatch, tables: TargetTables) -> Bool[Tensor, "B M K"]:
        """Return which tokens of one-pass drafts are the reply's.

        Where a prefix sees its block, every base costs a pass of its own. Then only those are
        looked at that decoding comes by; nothing is right behind the others.
        """
        bases, is_real = batch.bases()
        if self.prefix == "causal":
            parts = [self._right(head, batch, tables, p + 2) for p in bases.split(CHUNK, dim=1)]
            return torch.cat(parts, 1) & is_real[..., None]
        found = torch.zeros(*bases.shape, self.depth, dtype=torch.bool, device=bases.device)
        places = [0] * len(bases)
        most = (batch.lengths - batch.starts - 1).tolist()
        while rows := [b for b, m in enumerate(places) if m < most[b]]:
            at = torch.tensor([places[b] for b in rows], device=bases.device)
            part = _rows(batch, rows)
            right = self._right(head, part, tables, (part.starts + 1 + at)[:, None])[:, 0]
            found[rows, at] = right
            counts = right.long().cumprod(1).sum(1).tolist()
            for b, count in zip(rows, counts, strict=True):
                places[b] += min(count, most[b] - places[b]) + 1
        return found

    def publish(self, head: Any, target: LanguageModel, tables: TargetTables) -> Published:
        """Return config and tensors in Dream's layout."""
        words, mask = dict(head.config.words), head.config.mask_token_id
        assert tables.rows is not None
        embedding = tables.embedding.clone()
        embedding[mask] = head.mask.detach()
        tensors = {"model.embed_tokens.weight": embedding}
        if not words["tie_word_embeddings"]:
            tensors["lm_head.weight"] = tables.rows
        for name, tensor in head.state_dict().items():
            if name != "mask":
                tensors[f"model.{name}"] = tensor.detach()
        config = words | {
            "model_type": "Dream",
            "architectures": ["DreamModel"],
            "rope_theta": words["rope_parameters"]["rope_theta"],
            "rope_scaling": None,
            "mask_token_id": mask,
            "eos_token_id": min(target.eos_token_ids, default=None),
            "prefix_attention": self.prefix,
            "use_cache": False,
        }
        for name in ("rope_parameters", "attn_implementation"):
            config.pop(name)
        return Published(config=config, tensors=tensors)

    def _chosen(self, target: LanguageModel) -> tuple[int, ...]:
        chosen = self.layers or tuple(range(target.num_layers))
        if not all(0 <= layer < target.num_layers for layer in chosen):
            raise ConfigError(
                f"Expected layers between 0 and {target.num_layers - 1} of {target.name}, got "
                f"{list(chosen)}. Correct layers=."
            )
        return chosen

    def _mask(self, target: LanguageModel) -> int:
        if self.mask_token_id is not None:
            return self.mask_token_id
        if len(target.unknown_ids):
            return int(target.unknown_ids[0])
        if target.tokenizer is None:
            return target.vocab_size - 1
        free = target.tokenizer.special_ids - target.eos_token_ids
        if not free:
            raise ConfigError(
                f"Expected an id of {target.name} that can become the mask, found none without a "
                f"token and no special token but ends of text. Name one with mask_token_id=."
            )
        return max(free)

    def _right(
        self, head: Denoiser, batch: ReplyBatch, tables: TargetTables, cuts: Int[Tensor, "B A"]
    ) -> Bool[Tensor, "B A K"]:
        """Return which tokens of blocks of masks at ``cuts`` are the reply's."""
        sizes = torch.full_like(cuts, self.depth)
        blocks = _blocks(batch, cuts, sizes, self.depth, head.end_ids)
        hidden, width = self._states(head, batch, tables, blocks)
        states, slots = self._masked_states(hidden, blocks, width)
        logits = tables.logits(states)
        right = torch.zeros_like(blocks.is_masked)
        right[slots] = logits.argmax(-1) == blocks.tokens[slots]
        return right

    def _draw(self, head: Denoiser, batch: ReplyBatch, draw: torch.Generator) -> Blocks:
        """Return blocks that begin evenly anywhere in the replies, some partly revealed."""
        device, size = batch.starts.device, self.depth
        shape = (len(batch.starts), self.num_blocks)
        shares = torch.rand(4, *shape, generator=draw).to(device)
        counts = (batch.lengths - batch.starts)[:, None]
        cuts = batch.starts[:, None] + (shares[0] * counts).long()
        least = -(-size // 2)
        sizes = least + (shares[1] * (size - least + 1)).long()
        blocks = _blocks(batch, cuts, sizes, size, head.end_ids)
        # Confident tokens are revealed first, and early positions are the confident ones.
        order = torch.rand(*shape, size, generator=draw).to(device)
        order = order + 0.5 * torch.arange(size, device=device) / size
        ranks = order.masked_fill(~blocks.is_inside, torch.inf).argsort(-1).argsort(-1)
        revealed = 1 + (shares[2] * (least - 1)).long()
        revealed = revealed * (shares[3] < self.revealed)
        is_masked = blocks.is_inside & (ranks >= revealed[..., None])
        return Blocks(cuts=cuts, tokens=blocks.tokens, is_masked=is_masked)

    def _states(
        self, head: Denoiser, batch: ReplyBatch, tables: TargetTables, blocks: Blocks
    ) -> tuple[Float[Tensor, "B T H"], int]:
        """Return the states of clean tokens and, behind so many of them, of all slots."""
        width = int(blocks.cuts.max())
        clean = batch.token_ids[:, :width]
        tokens = torch.cat([clean, blocks.tokens.clamp_min(0).flatten(1)], 1)
        is_mask = torch.cat([torch.zeros_like(clean, dtype=torch.bool), _flat(blocks.is_masked)], 1)
        x = F.embedding(tokens, tables.embedding)
        x = torch.where(is_mask[..., None], head.mask, x)
        columns = torch.arange(width, device=clean.device).expand(len(clean), -1)
        slots = blocks.cuts[..., None] + torch.arange(self.depth, device=clean.device)
        places = torch.cat([columns, slots.flatten(1)], 1)
        return head(x, places, self._sees(blocks, width)), width

    def _masked_states(
        self, hidden: Float[Tensor, "B T H"], blocks: Blocks, width: int
    ) -> tuple[Float[Tensor, "N H"], tuple[Tensor, Tensor, Tensor]]:
        """Return what all masked slots are read from, and which they are: row, block, place."""
        row, block, place = blocks.is_masked.nonzero(as_tuple=True)
        # Shifted: a slot is read at the one before it, the first at the last clean token.
        first = blocks.cuts[row, block] - 1
        at = torch.where(place > 0, width + block * self.depth + place - 1, first)
        return hidden[row, at], (row, block, place)

    def _sees(self, blocks: Blocks, width: int) -> Bool[Tensor, "B T T"]:
        """Return which tokens see which: blocks what is before them, and themselves."""
        device, rows = blocks.cuts.device, len(blocks.cuts)
        columns = torch.arange(width, device=device)
        number = torch.arange(blocks.cuts.shape[1], device=device)
        number = number.repeat_interleave(self.depth)
        before = columns < blocks.cuts[..., None]
        block_clean = before[:, number]
        same = number[:, None] == number
        block_block = same & _flat(blocks.is_inside)[:, None]
        if self.prefix == "causal":
            clean_clean = (columns <= columns[:, None]).expand(rows, -1, -1)
            clean_block = torch.zeros_like(block_clean).transpose(1, 2)
        else:
            clean_clean = before[:, :1].expand(-1, width, -1)
            clean_block = _flat(blocks.is_inside)[:, None].expand(-1, width, -1)
        upper = torch.cat([clean_clean, clean_block], 2)
        lower = torch.cat([block_clean, block_block.expand(rows, -1, -1)], 2)
        return torch.cat([upper, lower], 1)


def _prefix_loss(
    batch: ReplyBatch, tables: TargetTables, hidden: Float[Tensor, "B W H"]
) -> Float[Tensor, ""]:
    """Return the cross entropy of the reply's tokens, each read at the clean token before it.

    It is what the first slot of a block behind that token would be asked for.
    """
    places = torch.arange(1, hidden.shape[1], device=hidden.device)
    is_reply = (places >= batch.starts[:, None]) & (places < batch.lengths[:, None])
    tokens = batch.token_ids[:, 1 : hidden.shape[1]][is_reply]
    logits = tables.logits(hidden[:, :-1][is_reply])
    return hard_cross_entropy(logits, tokens).sum() / max(1, len(tokens))


def _flat(values: Tensor) -> Tensor:
    return values.flatten(1)


def _blocks(
    batch: ReplyBatch,
    cuts: Int[Tensor, "B A"],
    sizes: Int[Tensor, "B A"],
    width: int,
    end_ids: frozenset[int],
) -> Blocks:
    """Return fully masked blocks.

    Behind the end of text stands the end of text once more: a drafter that passes it drafts
    nothing else. Behind a reply that was cut stands nothing.
    """
    steps = torch.arange(width, device=cuts.device)
    last = (batch.lengths - 1)[:, None]
    is_ended = torch.isin(
        batch.token_ids.gather(1, last), torch.tensor(sorted(end_ids), device=cuts.device)
    )
    places = cuts[..., None] + steps
    is_known = (places <= last[..., None]) | is_ended[..., None]
    tokens = take(batch.token_ids, torch.minimum(places, last[..., None]))
    tokens = tokens.masked_fill(~(is_known & (steps < sizes[..., None])), -1)
    return Blocks(cuts=cuts, tokens=tokens, is_masked=tokens >= 0)


def _rows(batch: ReplyBatch, rows: list[int]) -> ReplyBatch:
    return ReplyBatch(
        token_ids=batch.token_ids[rows],
        taps=batch.taps[rows],
        last=batch.last[rows],
        starts=batch.starts[rows],
        lengths=batch.lengths[rows],
    )
