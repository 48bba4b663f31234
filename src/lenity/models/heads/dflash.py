"""DFlash: a small bidirectional model that fills a block of tokens in one pass.

    context = hidden_norm(fc(features))                   # once per committed token
    block   = [embed(anchor), embed(mask), embed(mask), …]
    layer:  queries from the block; keys and values from [context ; block], block inside the mask

Keys and values of the context depend on the target's features alone, so they are kept; those of a
block are written behind them and forgotten (Chen et al. 2026, "DFlash", arXiv 2602.06036).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lenity.errors import ModelMismatchError
from lenity.models.base import LanguageModel
from lenity.models.cache import SlotCache
from lenity.models.heads.blocks import Layer, RMSNorm, place
from lenity.models.heads.checkpoint import Checkpoint, fill
from lenity.models.heads.dflash_config import DFlashConfig
from lenity.models.heads.vocab_map import VOCAB_MAP_KEYS, read_kept_ids

EMBEDDINGS, LM_HEAD = "embed_tokens.weight", "lm_head.weight"
_Head = TypeVar("_Head", bound="DFlash")


class DFlash(nn.Module):
    """A block drafter's backbone; embeddings and LM head are the target's where it has none.

    ``num_embeddings`` and ``head_rows`` are the rows of its own tables, None without. A head of
    fewer rows than the target's vocabulary comes with ``kept_ids``, the target's id of each row.
    """

    def __init__(
        self,
        config: DFlashConfig,
        target_hidden_size: int,
        num_embeddings: int | None = None,
        head_rows: int | None = None,
    ) -> None:
        """Build the layers; parameters carry their published names."""
        super().__init__()
        shape = config.shape
        size = shape.hidden_size
        self.config, self.name = config, "dflash"
        self.kept_ids: Int[Tensor, " D"] | None = None
        self.fc = nn.Linear(len(config.taps) * target_hidden_size, size, bias=False)
        self.hidden_norm = RMSNorm(size, shape.norm_eps)
        self.layers = nn.ModuleList([Layer(shape) for _ in range(shape.num_layers)])
        self.norm = RMSNorm(size, shape.norm_eps)
        self.embed_tokens = nn.Embedding(num_embeddings, size) if num_embeddings else None
        self.lm_head = nn.Linear(size, head_rows, bias=False) if head_rows else None

    def new_cache(self, batch_size: int = 0) -> SlotCache:
        """Return an empty cache of context keys and values."""
        return SlotCache(len(self.layers), batch_size, label=f"{self.name} KV cache")

    def describe(self) -> dict[str, Any]:
        """Return what was understood of the checkpoint, as plain values."""
        config, head = self.config, self.lm_head
        return {
            "format": str(config.format),
            "taps": list(config.taps),
            "slots": config.slots,
            "block_size": config.block_size,
            "draft_length": config.max_draft_length,
            "mask_token_id": config.mask_token_id,
            "vocabulary_rows": None if head is None else head.out_features,
            "vocabulary_map": "identity" if self.kept_ids is None else "d2t / t2d",
            "embedding": "its own" if self.embed_tokens is not None else "the target's",
            "lm_head": "its own" if head is not None else "the target's",
            "causal_layers": sum(config.is_causal),
            **config.shape.describe(),
            "parameters": sum(weight.numel() for weight in self.parameters()),
        }

    def fuse(self, features: Float[Tensor, "B T F"]) -> Float[Tensor, "B T H"]:
        """Return the context states of the target's features."""
        return self.hidden_norm(self.fc(features))

    def remember(self, features: Float[Tensor, "B T F"], cache: SlotCache) -> None:
        """Write the context of T positions per row behind the cache's lengths.

        The caller commits those that count.
        """
        context = self.fuse(features)
        positions = place(cache, context.shape[1], context.device)
        turn = self.config.shape.rotary(positions, context.dtype)
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            cache.update(*layer.self_attn.keys_values(context, turn), index)

    def run_block(
        self,
        anchors: Int[Tensor, " B"],
        cache: SlotCache,
        embed: Callable[[Tensor], Tensor] | None = None,
    ) -> Float[Tensor, "B S H"]:
        """Return the normed states of all slots of the block that begins with each row's anchor.

        Behind the anchor stand masks. See run_slots.
        """
        size = self.config.block_size
        token_ids = anchors.new_full((len(anchors), size), self.config.mask_token_id)
        token_ids[:, 0] = anchors
        return self.run_slots(token_ids, cache, embed)

    def run_slots(
        self,
        token_ids: Int[Tensor, "B S"],
        cache: SlotCache,
        embed: Callable[[Tensor], Tensor] | None = None,
    ) -> Float[Tensor, "B S H"]:
        """Return the normed states of all slots of each row's block.

        The first slot stands at ``lengths[b]``. ``embed`` is the target's, for drafters without
        embeddings of their own. Nothing is committed.
        """
        size = self.config.block_size
        if self.embed_tokens is None:
            assert embed is not None, "a drafter without embeddings borrows the target's"
            x = embed(token_ids).to(self.fc.weight.dtype)
        else:  # a prompt may hold an id that only the target's padded table has a row for
            x = self.embed_tokens(token_ids.clamp_max(self.embed_tokens.num_embeddings - 1))
        positions = place(cache, size, x.device)
        masks = block_masks(self.config, positions, cache)
        turn = self.config.shape.rotary(positions, x.dtype)
        for index, layer in enumerate(self.layers):
            x = layer(x, turn, masks[index], cache, index)
        return self.norm(x)

    def logits(
        self, hidden: Float[Tensor, "*N H"], lm_head: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "*N D"]:
        """Return logits over the drafter's own rows; ``lm_head`` is the target's."""
        return lm_head(hidden) if self.lm_head is None else self.lm_head(hidden)


def block_masks(
    config: DFlashConfig, positions: Int[Tensor, "B S"], cache: SlotCache
) -> list[Bool[Tensor, "B 1 S width"] | None]:
    """Return what each layer's slots may attend to; None is everything.

    A slot at position p sees context column c < anchor, where a window w allows it: c > p - w, or
    c >= anchor - w where windows count from the anchor; and every slot of its block, or those up to
    its own where the layer is causal.
    """
    width, windows = cache.slots.width, config.shape.windows
    kinds = set(zip(windows, config.is_causal, strict=True))
    masks: dict[tuple[int | None, bool], Tensor | None] = {}
    columns = torch.arange(width, device=positions.device)
    slots, anchors = positions[:, None, :, None], positions[:, None, :1, None]
    for window, is_causal in kinds:
        if window is None and not is_causal and cache.slots.start is not None:
            masks[window, is_causal] = None
            continue
        last = slots if is_causal else positions[:, None, -1:, None]
        mask = (columns <= last).expand(-1, 1, slots.shape[2], -1)
        if window is not None and config.is_window_from_anchor:
            mask = mask & (columns >= anchors - window)
        elif window is not None:
            mask = mask & ((columns - slots).abs() < window)
        masks[window, is_causal] = mask
    return [masks[kind] for kind in zip(windows, config.is_causal, strict=True)]


def read_dflash(
    checkpoint: Checkpoint, config: DFlashConfig, target: LanguageModel, dtype: torch.dtype
) -> DFlash:
    """Return the block drafter of a checkpoint, frozen, on the target's device.

    Raises ModelMismatchError, ConfigError.
    """
    with torch.device("meta"):
        head = DFlash(config, target.hidden_size, *tables(checkpoint))
    return finish(head, checkpoint, target, dtype)


def tables(checkpoint: Checkpoint) -> tuple[int | None, int | None]:
    """Return the rows of a checkpoint's embeddings and of its LM head, None without."""
    rows = [checkpoint.shape(k)[0] if checkpoint.has(k) else None for k in (EMBEDDINGS, LM_HEAD)]
    return rows[0], rows[1]


def finish(head: _Head, checkpoint: Checkpoint, target: LanguageModel, dtype: torch.dtype) -> _Head:
    """Give a drafter on the meta device a checkpoint's weights and vocabulary; return it.

    Raises ModelMismatchError, ConfigError.
    """
    head.name = checkpoint.name
    fill(head, checkpoint, ignored=VOCAB_MAP_KEYS, dtype=dtype, device=target.device)
    if head.lm_head is not None:
        head.kept_ids = read_kept_ids(checkpoint, head.lm_head.out_features, target.vocab_size)
    if head.config.is_head_tied and head.lm_head is None and head.embed_tokens is not None:
        rows, size = head.embed_tokens.weight.shape
        head.lm_head = nn.Linear(size, rows, bias=False, device="meta")
        head.lm_head.weight = head.embed_tokens.weight
    return head


def check_fit(head: DFlash, target: LanguageModel) -> None:
    """See that a drafter can read the target and borrow from it. Raises ModelMismatchError."""
    config, borrows = head.config, head.embed_tokens is None or head.lm_head is None
    own = target.vocab_size if head.embed_tokens is None else head.embed_tokens.num_embeddings
    problems = {
        f"{len(config.taps)} states of {target.hidden_size} numbers": (
            head.fc.in_features == len(config.taps) * target.hidden_size,
            f"{head.fc.in_features} numbers",
        ),
        f"hidden size {target.hidden_size}, for it borrows embeddings or LM head": (
            not borrows or config.shape.hidden_size == target.hidden_size,
            config.shape.hidden_size,
        ),
        f"taps below {target.num_layers} layers": (
            max(config.taps) < target.num_layers,
            list(config.taps),
        ),
        f"a mask token below {own}": (config.mask_token_id < own, config.mask_token_id),
    }
    for expected, (holds, got) in problems.items():
        if not holds:
            raise ModelMismatchError(
                f"Expected the drafter {head.name} to fit {target.name}: {expected}; got {got}. "
                f"Use a drafter trained for {target.name}."
            )
