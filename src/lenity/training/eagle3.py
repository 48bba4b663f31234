"""Training EAGLE-3: the head is unrolled on its own states, as it will run.

Step 0 of base t joins the target's state of position t with the anchor. Step s joins the state that
step s - 1 made there with draft token s; it attends to the pairs of the target's states up to t and
to the pairs of its own steps before, which is what a cache holds while drafting. The loss of step
s is weighted with ``step_decay`` ** s (Li et al. 2025, arXiv 2503.01840, "training-time test").
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from lenity.drafters.block import TapIds
from lenity.errors import ConfigError
from lenity.models.base import LanguageModel
from lenity.models.heads.eagle3 import Eagle3Head, FirstLayer
from lenity.models.heads.eagle3_config import Eagle3Config
from lenity.models.heads.formats import Format
from lenity.training.attention import attend_drafts
from lenity.training.batches import ReplyBatch, take
from lenity.training.losses import hard_cross_entropy, is_best, soft_cross_entropy, weighted_mean
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


class Eagle3Recipe(Recipe):
    """A one-layer EAGLE-3 head, published in SafeAILab's layout."""

    type: Literal["eagle3"] = "eagle3"
    taps: TapIds = None
    """Target layers to read, such as 9+19+28 (0 = first layer); none takes early, middle, late"""
    unroll: int = Field(default=5, ge=1)
    """Steps on own states, which is how many draft tokens it learns to make"""
    step_decay: float = Field(default=0.8, gt=0, le=1)
    """Factor of the loss from one step to the next"""
    labels: Literal["soft", "hard"] = "soft"
    """What is learnt: the target's law, or its reply's tokens"""
    is_tap_normed: bool = True
    """Whether every tap is normed before they are joined (fc_norm, as SpecForge writes it)"""
    intermediate_size: int | None = Field(default=None, ge=1)
    """Width of the MLP; none takes the target's"""

    @property
    def depth(self) -> int:
        """Steps."""
        return self.unroll

    def tapped(self, num_layers: int) -> tuple[int, ...]:
        """Return the layers behind hidden states 2, n / 2 and n - 3, unless others are named.

        A shallow target has its embeddings, middle and last layer read. Raises ConfigError.
        """
        shallow = (-1, num_layers // 2, num_layers - 1) if num_layers > 1 else (-1, 0)
        if self.taps is None:
            return (1, num_layers // 2 - 1, num_layers - 4) if num_layers >= 8 else shallow
        if self.taps[0] == 0:
            raise ConfigError(
                f"Expected taps that the published layout can say, got {list(self.taps)}: an id "
                f"list that begins with the first layer is read in another counting. Begin with "
                f"-1 (the embeddings), 1 or more."
            )
        return self.taps

    def build(self, target: LanguageModel, tables: TargetTables, seed: int) -> Eagle3Head:
        """Return an untrained head whose LM head begins as the target's."""
        words = layer_words(target, 1, self.intermediate_size)
        config = Eagle3Config(
            format=Format.EAGLE3_SAFEAI,
            shape=shape_of(words),
            taps=self.tapped(target.num_layers),
            tap_size=target.hidden_size,
            draft_vocab_size=len(tables.kept_ids),
            vocab_size=target.vocab_size,
            is_tap_normed=self.is_tap_normed,
        )
        head = Eagle3Head(config)
        initialise(head, seed)
        head = head.to(target.device)
        head.kept_ids = tables.kept_ids
        if tables.rows is not None:
            head.lm_head.weight.data.copy_(tables.rows)
        return head

    def outcome(
        self, head: Any, batch: ReplyBatch, tables: TargetTables, draw: torch.Generator
    ) -> Outcome:
        """Return the loss, summed over steps with their weights."""
        bases, is_real = batch.bases()
        tokens, is_there = batch.drafted(bases, is_real, self.unroll)
        rows = tables.row_of(tokens)
        laws = self._laws(batch, tables, bases.shape[1]) if self.labels == "soft" else None
        losses, hits = [], []
        for step, logits in enumerate(unroll(head, batch, tables, bases, self.unroll)):
            if laws is None:
                losses.append(hard_cross_entropy(logits, rows[..., step]))
            else:
                losses.append(soft_cross_entropy(logits, laws[:, step : step + bases.shape[1]]))
            hits.append(is_best(logits, rows[..., step]))
        weights = self.step_decay ** torch.arange(self.unroll, device=rows.device)
        loss = weighted_mean(torch.stack(losses, -1), is_there & (rows >= 0), weights)
        return Outcome.of(loss, torch.stack(hits, -1), is_there)

    @torch.no_grad()
    def hits(self, head: Any, batch: ReplyBatch, tables: TargetTables) -> Bool[Tensor, "B M K"]:
        """Return which draft tokens are the reply's.

        Unrolled on the reply's own tokens: up to the first wrong token, which is where a draft
        ends, they are the draft's.
        """
        bases, is_real = batch.bases()
        tokens, is_there = batch.drafted(bases, is_real, self.unroll)
        rows = tables.row_of(tokens)
        steps = unroll(head, batch, tables, bases, self.unroll)
        best = torch.stack([logits.argmax(-1) for logits in steps], -1)
        return (best == rows) & is_there

    def publish(self, head: Any, target: LanguageModel, tables: TargetTables) -> Published:
        """Return config and tensors as SafeAILab writes them; taps count the embeddings as 0."""
        words = layer_words(target, 1, self.intermediate_size) | {
            "architectures": ["LlamaForCausalLMEagle3"],
            "draft_vocab_size": len(tables.kept_ids),
            "target_hidden_size": target.hidden_size,
            "fc_norm": self.is_tap_normed,
            "norm_output": False,
            "ttt_length": self.unroll,
            "eagle_config": {
                "use_aux_hidden_state": True,
                "eagle_aux_hidden_state_layer_ids": [tap + 1 for tap in head.config.taps],
            },
        }
        tensors = {
            name.replace("layers.0.", "midlayer.", 1): tensor.detach()
            for name, tensor in head.state_dict().items()
        }
        return Published(
            config=words, tensors=tensors | vocabulary_map(tables.kept_ids, target.vocab_size)
        )

    def _laws(
        self, batch: ReplyBatch, tables: TargetTables, num_bases: int
    ) -> Float[Tensor, "B M2 D"]:
        """Return the target's laws of the tokens from the first draft token on."""
        count = num_bases + self.unroll - 1
        places = batch.starts[:, None] + torch.arange(count, device=batch.starts.device)
        with torch.no_grad():
            return tables.logits(take(batch.last, places)).to(torch.float32).softmax(-1)


def unroll(
    head: Eagle3Head,
    batch: ReplyBatch,
    tables: TargetTables,
    bases: Int[Tensor, "B M"],
    depth: int,
) -> list[Float[Tensor, "B M D"]]:
    """Return the logits of every draft token of every base, given the reply's tokens before it."""
    layer = head.layers[0]
    assert isinstance(layer, FirstLayer)
    attention, rotary = layer.self_attn, head.config.shape.rotary
    states = head.fuse(batch.taps[:, :-1])
    joined = _join(layer, head.embed(batch.token_ids[:, 1:], tables.embedding), states)
    positions = torch.arange(states.shape[1], device=bases.device).expand(len(bases), -1)
    context = attention.keys_values(joined, rotary(positions, joined.dtype))
    sees = positions[:, None] <= bases[..., None]
    hidden, own, found = take(states, bases), [], []
    for step in range(depth):
        token_ids = take(batch.token_ids, bases + 1 + step)
        joined = _join(layer, head.embed(token_ids, tables.embedding), hidden)
        turn = rotary(bases + step, joined.dtype)
        if step:
            own.append(attention.keys_values(joined, turn))
        stacked = (
            (torch.stack([k for k, _ in own], 3), torch.stack([v for _, v in own], 3))
            if own
            else None
        )
        queries = attention.queries(joined, turn)[..., None, :]
        mixed = attend_drafts(attention, queries, context, stacked, sees)[:, :, 0]
        residual = layer.hidden_norm(hidden) if head.config.is_first_residual_normed else hidden
        x = residual + mixed
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        hidden = head.norm(x) if head.config.is_output_normed else x
        found.append(head.logits(hidden))
    return found


def _join(
    layer: FirstLayer, embedded: Float[Tensor, "B T H"], hidden: Float[Tensor, "B T H"]
) -> Float[Tensor, "B T H2"]:
    return torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(hidden)], -1)
