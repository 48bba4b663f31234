"""One slot cache for every attention family: row r writes at its own length, rollback is free.

Column c of a row holds the token at position c, always, sliding windows included: a window lives in
the mask, never in the buffer. What lies behind a row's length is stale or zero, finite, and masked.

The buffers are ordinary tensors even where they are made in inference mode, as the engine's are:
torch lets nobody write into an inference tensor outside of it, so a cache that a decoder filled
could not be read on by its owner. Nothing is copied for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from lenity.errors import (
    CacheError,
    OutOfMemoryError,
    UnsupportedModelError,
    is_out_of_memory,
)
from lenity.models.base import KVCache

CAPACITY_STEP = 256
"""Columns are allocated in multiples of this, so that short requests allocate once."""


class Slots:
    """Where the forward that is running writes: shared by all layers of one cache.

    ``starts[b]`` is the column of row b's first token; ``width`` the columns attention sees.
    ``start`` is the common start of all rows, None when rows are ragged.
    """

    def __init__(self) -> None:
        """Start with nothing placed."""
        self.starts: list[int] = []
        self.count, self.width, self.capacity = 0, 0, 0
        self.start: int | None = 0
        self._indices: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def place(self, starts: list[int], count: int) -> None:
        """Let the next forward write ``count`` tokens per row, row b's at ``starts[b]``."""
        self.starts, self.count = starts, count
        last = max(starts, default=0)
        self.start = last if min(starts, default=0) == last else None
        self.width = last + count
        self._indices.clear()
        if self.width > self.capacity:
            steps = -(-self.width // CAPACITY_STEP) * CAPACITY_STEP
            self.capacity = max(steps, 2 * self.capacity)

    def indices(self, device: torch.device) -> tuple[Int[Tensor, "B 1"], Int[Tensor, "B T"]]:
        """Return row and column indices of what is written, made once per forward and device."""
        if device not in self._indices:
            rows = torch.arange(len(self.starts), device=device)[:, None]
            starts = torch.tensor(self.starts, device=device)[:, None]
            self._indices[device] = (rows, starts + torch.arange(self.count, device=device))
        return self._indices[device]


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer, ``[B, heads, capacity, dim]``, allocated on first use."""

    is_sliding = False
    supports_early_init = False
    keys: Tensor
    values: Tensor

    def __init__(self, slots: Slots, label: str) -> None:
        """Share the cache's slots; ``label`` names the layer's buffers in errors."""
        super().__init__()
        self.slots, self.label = slots, label

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate zeroed buffers shaped after the first keys and values."""
        self.keys = self._allocate("keys", key_states, key_states.shape[0])
        self.values = self._allocate("values", value_states, value_states.shape[0])
        self.is_initialized = True

    def update(
        self,
        key_states: Float[Tensor, "B heads T dim"],
        value_states: Float[Tensor, "B heads T value_dim"],
        *args: Any,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor]:
        """Write T tokens per row at its slot; return keys and values up to the widest row."""
        slots = self.slots
        if key_states.shape[0] != len(slots.starts) or key_states.shape[2] != slots.count:
            self._refuse(key_states)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        elif self.keys.shape[2] < slots.capacity:
            self._grow()
        width, keys, values = slots.width, self.keys, self.values
        if slots.start is not None:
            keys[:, :, slots.start : width].copy_(key_states)
            values[:, :, slots.start : width].copy_(value_states)
        else:
            rows, columns = slots.indices(keys.device)
            keys[rows, :, columns] = key_states.transpose(1, 2)
            values[rows, :, columns] = value_states.transpose(1, 2)
        return keys[:, :, :width], values[:, :, :width]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the width attention sees, and the position of its first column."""
        return max(self.slots.starts, default=0) + query_length, 0

    def get_seq_length(self) -> int:
        """Return how many columns lie before the running forward's tokens, in the longest row."""
        return max(self.slots.starts, default=0)

    def get_max_length(self) -> int:
        """Return -1: the buffers grow."""
        return -1

    def select(self, rows: Int[Tensor, " B"]) -> None:
        """Keep these rows, in this order."""
        if self.is_initialized:
            kept = self._rows_of("keys", rows), self._rows_of("values", rows)
            self.keys, self.values = kept

    def stack(self, other: SlotLayer, own_rows: int, other_rows: int) -> None:
        """Put another layer's rows behind one's own; a layer never used counts as zeros."""
        if not other.is_initialized and not self.is_initialized:
            return
        if own_rows == 0 and other.is_initialized:
            self.keys, self.values, self.is_initialized = other.keys, other.values, True
            return
        rows = own_rows + other_rows
        for name in ("keys", "values"):
            mine: Tensor | None = getattr(self, name)
            theirs: Tensor | None = getattr(other, name)
            like = mine if mine is not None else theirs
            assert like is not None  # one of the two layers is initialised
            merged = self._allocate(name, like, rows)
            _copy_rows(merged, mine, 0)
            _copy_rows(merged, theirs, own_rows)
            setattr(self, name, merged)
        self.is_initialized = True

    def _grow(self) -> None:
        for name in ("keys", "values"):
            old = getattr(self, name)
            grown = self._allocate(name, old, old.shape[0])
            _copy_rows(grown, old, 0)
            setattr(self, name, grown)

    def _allocate(self, part: str, like: Tensor, rows: int) -> Tensor:
        # Zeroed, not empty: a masked column has weight 0, and 0 x NaN is NaN.
        shape = (rows, like.shape[1], self.slots.capacity, like.shape[3])
        try:
            with torch.inference_mode(False):
                return torch.zeros(shape, dtype=like.dtype, device=like.device)
        except (RuntimeError, MemoryError):
            raise self._no_room(part, shape, like) from None

    def _rows_of(self, part: str, rows: Int[Tensor, " B"]) -> Tensor:
        old: Tensor = getattr(self, part)
        try:
            with torch.inference_mode(False), torch.no_grad():
                return old.index_select(0, rows.to(old.device))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise self._no_room(part, (len(rows), *old.shape[1:]), old) from None

    def _no_room(self, part: str, shape: tuple[int, ...], like: Tensor) -> OutOfMemoryError:
        size = math.prod(shape) * like.element_size() / 2**30
        return OutOfMemoryError(
            f"The {self.label} {part} needs {size:.3g} GiB on {like.device} for {shape[0]} rows "
            f"of {shape[2]} positions, and that could not be allocated. Use fewer requests "
            f"at a time, shorter prompts, or a smaller dtype."
        )

    def _refuse(self, key_states: Tensor) -> None:
        raise CacheError(
            f"The {self.label} cache expects {len(self.slots.starts)} rows of {self.slots.count} "
            f"tokens, got {key_states.shape[0]} rows of {key_states.shape[2]}. Run forwards "
            f"through CausalLM.hidden_states, which places them first."
        )


class SlotCache(Cache):
    """A transformers cache whose rows have their own lengths.

    ``lengths[b]`` counts the committed tokens of row b. A forward is placed with ``place``, writes
    behind the lengths and does not move them; ``commit`` does, and forgets the rest.
    """

    def __init__(self, num_layers: int, batch_size: int = 0, label: str = "KV cache") -> None:
        """Start ``batch_size`` empty rows; no memory is taken before the first forward."""
        self.slots = Slots()
        self.slot_layers = [SlotLayer(self.slots, f"{label}, layer {i}") for i in range(num_layers)]
        super().__init__(layers=[*self.slot_layers])
        self.label = label
        self.lengths: list[int] = [0] * batch_size
        self._written: list[int] = [0] * batch_size

    def place(self, count: int, offset: int = 0) -> list[int]:
        """Let the next forward write ``count`` tokens at ``lengths[b] + offset``; return these.

        Raises CacheError where tokens before the offset were never written.
        """
        if not 0 <= offset <= min(self._written, default=offset):
            raise CacheError(
                f"The {self.label} expects an offset between 0 and the "
                f"{min(self._written)} tokens written behind the committed ones, got {offset}. "
                f"Run the tokens before it first."
            )
        starts = [length + offset for length in self.lengths]
        self.slots.place(starts, count)
        self._written = [offset + count] * len(starts)
        return starts

    def commit(self, counts: Sequence[int]) -> None:
        """Make the first ``counts[b]`` written tokens of row b count. Raises CacheError."""
        fits = len(counts) == len(self.lengths) and all(
            0 <= count <= written for count, written in zip(counts, self._written, strict=True)
        )
        if not fits:
            raise CacheError(
                f"The {self.label} expects one count per row, at most {self._written} tokens, "
                f"got {list(counts)}. Only tokens of the last forward can be committed."
            )
        for row, count in enumerate(counts):
            self.lengths[row] += count
            self._written[row] -= count

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order, and free the others."""
        rows = list(rows)
        if rows == list(range(len(self.lengths))):
            return
        index = torch.tensor(rows, dtype=torch.int64)
        for layer in self.slot_layers:
            layer.select(index)
        self.lengths = [self.lengths[row] for row in rows]
        self._written = [self._written[row] for row in rows]

    def append(self, other: KVCache) -> None:
        """Take over the rows of another cache of the same model, behind one's own.

        The other cache is used up: its buffers may become this one's.
        """
        if not isinstance(other, SlotCache) or len(other.layers) != len(self.layers):
            raise CacheError(
                f"The {self.label} takes rows of a SlotCache with {len(self.layers)} layers, got "
                f"{other!r}. Make both caches with the same model's new_cache()."
            )
        self.slots.capacity = max(self.slots.capacity, other.slots.capacity)
        own_rows, other_rows = len(self.lengths), len(other.lengths)
        if other_rows:
            for mine, theirs in zip(self.slot_layers, other.slot_layers, strict=True):
                mine.stack(theirs, own_rows, other_rows)
        self.lengths = self.lengths + other.lengths
        self._written = self._written + other._written

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write one layer's keys and values; return what its attention sees."""
        return self.slot_layers[layer_idx].update(key_states, value_states)

    def update_conv_state(self, *args: Any, **kwargs: Any) -> Tensor:
        """Refuse: a convolution state cannot be rolled back."""
        return self._refuse_state("convolution")

    def update_recurrent_state(self, *args: Any, **kwargs: Any) -> Tensor:
        """Refuse: a recurrent state cannot be rolled back."""
        return self._refuse_state("recurrent")

    get_conv_state = update_conv_state
    get_recurrent_state = update_recurrent_state

    def _refuse_state(self, kind: str) -> Tensor:
        raise UnsupportedModelError(
            f"Expected attention layers only, got a layer that keeps a {kind} state, which cannot "
            f"forget rejected tokens. Choose a target without such layers."
        )


def _copy_rows(into: Tensor, source: Tensor | None, row: int) -> None:
    if source is not None:
        into[row : row + source.shape[0], :, : source.shape[2]].copy_(source)
