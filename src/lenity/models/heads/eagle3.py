"""EAGLE-3: one decoder layer over the target's features, fed with its own states while it drafts.

    g = fc(norms?(cat(taps)))                                 once per committed token
    pair t: hidden g of position t with the token of position t + 1, at rotary position t
    layer 0: x = cat(input_layernorm(embed(token)), hidden_norm(hidden))
             h = residual + attention(x); h = h + mlp(post_attention_layernorm(h))
             residual = hidden, or hidden_norm(hidden) with norm_before_residual
    further layers (speculators): ordinary ones on h
    logits of token t + 2 = lm_head(norm(h)); while drafting, h is the next pair's hidden

(Li et al. 2025, arXiv 2503.01840.) EAGLE-3.1 norms the taps and may feed back norm(h). P-EAGLE puts
slots (mask token, fc(mask_hidden)) behind the last pair and reads all draft tokens in one pass.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lenity.models.cache import SlotCache
from lenity.models.heads.blocks import (
    Attention,
    GatedMLP,
    Layer,
    RMSNorm,
    Turn,
    layer_masks,
    place,
)
from lenity.models.heads.checkpoint import Checkpoint, fill
from lenity.models.heads.eagle3_config import Eagle3Config, Keys
from lenity.models.heads.vocab_map import VOCAB_MAP_KEYS, read_kept_ids


class FirstLayer(nn.Module):
    """The layer that joins a token's embedding and the state before it."""

    def __init__(self, config: Eagle3Config) -> None:
        """Build a decoder layer whose attention reads twice the hidden size."""
        super().__init__()
        shape = config.shape
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.norm_eps)
        self.hidden_norm = RMSNorm(shape.hidden_size, shape.norm_eps)
        self.self_attn = Attention(shape, input_size=2 * shape.hidden_size)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.norm_eps)
        self.mlp = GatedMLP(shape)
        self._is_residual_normed = config.is_first_residual_normed

    def forward(
        self,
        embedded: Float[Tensor, "B T H"],
        hidden: Float[Tensor, "B T H"],
        turn: Turn,
        mask: Bool[Tensor, "#B 1 T S"] | None,
        cache: SlotCache | None = None,
    ) -> Float[Tensor, "B T H"]:
        """Return the residual stream after this layer; see Attention.forward."""
        normed = self.hidden_norm(hidden)
        residual = normed if self._is_residual_normed else hidden
        joined = torch.cat([self.input_layernorm(embedded), normed], dim=-1)
        x = residual + self.self_attn(joined, turn, mask, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Eagle3Head(nn.Module):
    """An EAGLE-3 or P-EAGLE head; parameters carry their published names.

    ``kept_ids`` maps rows of its LM head to the target's ids; None: row d is id d. A head without
    an embedding of its own embeds with the target's, see ``embed``.
    """

    def __init__(self, config: Eagle3Config) -> None:
        """Build what the config describes, without weights."""
        super().__init__()
        self.config = config
        shape, width = config.shape, len(config.taps) * config.tap_size
        self.layers = nn.ModuleList(
            [FirstLayer(config), *(Layer(shape) for _ in range(shape.num_layers - 1))]
        )
        self.fc = nn.Linear(width, shape.hidden_size, bias=False)
        self.norm = RMSNorm(shape.hidden_size, shape.norm_eps)
        self.lm_head = nn.Linear(shape.hidden_size, config.draft_vocab_size, bias=False)
        self.input_norm = RMSNorm(width, shape.norm_eps) if config.is_input_normed else None
        self.fc_norm: nn.ModuleList | None = None
        if config.is_tap_normed:
            self.fc_norm = nn.ModuleList(
                RMSNorm(config.tap_size, shape.norm_eps) for _ in config.taps
            )
        self.embed_tokens: nn.Embedding | None = None
        if config.has_embedding and config.vocab_size is not None:
            self.embed_tokens = nn.Embedding(config.vocab_size, shape.hidden_size)
        if config.is_parallel:
            self.mask_hidden = nn.Parameter(torch.empty(1, 1, width))
        self.name = f"{config.format} head"
        self.kept_ids: Int[Tensor, " D"] | None = None  # the target's ids of the head's rows

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        config: Eagle3Config,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> Eagle3Head:
        """Return the head with a checkpoint's weights. Raises ModelMismatchError, ConfigError."""
        with torch.device("meta"):
            head = cls(config)
        keys = Keys(checkpoint)
        head.name = checkpoint.name
        head.kept_ids = read_kept_ids(checkpoint, config.draft_vocab_size, config.vocab_size)
        return fill(
            head, checkpoint, names=keys, ignored=VOCAB_MAP_KEYS, dtype=dtype, device=device
        )

    def embed(
        self, token_ids: Int[Tensor, "B T"], borrowed: Float[Tensor, "V H"] | None = None
    ) -> Float[Tensor, "B T H"]:
        """Return embeddings of target tokens, from ``borrowed`` where the head has no own table.

        Ids beyond the table (padding of the target's head) take its last row.
        """
        weight = borrowed if self.embed_tokens is None else self.embed_tokens.weight
        assert weight is not None, "a head without a table of its own borrows the target's"
        return nn.functional.embedding(token_ids.clamp_max(weight.shape[0] - 1), weight)

    def fuse(self, features: Float[Tensor, "*N F"]) -> Float[Tensor, "*N H"]:
        """Return g, the fused states of tokens whose taps stand side by side in ``features``."""
        if self.input_norm is not None:
            features = self.input_norm(features)
        if self.fc_norm is not None:
            taps = features.split(self.config.tap_size, dim=-1)
            normed = [norm(tap) for norm, tap in zip(self.fc_norm, taps, strict=True)]
            features = torch.cat(normed, dim=-1)
        return self.fc(features)

    def forward(
        self,
        hidden: Float[Tensor, "B T H"],
        embedded: Float[Tensor, "B T H"],
        cache: SlotCache,
        *,
        offset: int = 0,
    ) -> Float[Tensor, "B T H"]:
        """Return the state behind each pair, as it is fed to the next one.

        Pair i of row b stands at position ``lengths[b] + offset + i``: hidden state of that
        position, embedded token of the next. Nothing is committed.
        """
        shape = self.config.shape
        positions = place(cache, hidden.shape[1], hidden.device, offset)
        turn = shape.rotary(positions, hidden.dtype)
        masks = layer_masks(shape.windows, positions, cache.slots.width)
        x = self.layers[0](embedded, hidden, turn, masks[0], cache)
        for i in range(1, shape.num_layers):
            x = self.layers[i](x, turn, masks[i], cache, i)
        return self.norm(x) if self.config.is_output_normed else x

    def describe(self) -> dict[str, Any]:
        """Return what was understood of the checkpoint, as plain values."""
        config = self.config
        return {
            "format": str(config.format),
            "taps": list(config.taps),
            "drafting": "all tokens in one pass" if config.is_parallel else "token by token",
            "draft_length": config.draft_length,
            "vocabulary_rows": config.draft_vocab_size,
            "vocabulary_map": "identity" if self.kept_ids is None else "d2t / t2d",
            "embedding": "its own" if self.embed_tokens is not None else "the target's",
            "norm_output": config.is_output_normed,
            "norm_before_residual": config.is_first_residual_normed,
            **config.shape.describe(),
            "parameters": sum(weight.numel() for weight in self.parameters()),
        }

    def slot_state(self) -> Float[Tensor, " H"]:
        """Return the hidden state of P-EAGLE's slots; their token is ``config.mask_token_id``."""
        return self.fuse(self.mask_hidden)[0, 0]

    def logits(self, hidden: Float[Tensor, "*N H"]) -> Float[Tensor, "*N D"]:
        """Return logits over the draft vocabulary of states that ``forward`` returned."""
        return self.lm_head(hidden if self.config.is_output_normed else self.norm(hidden))
