"""Batches of captured replies, and the order in which training meets them.

The order is a function of seed and epoch, so a run that was killed goes on where it stopped.
Position m of a reply is its *base*: the last token whose state the target has given. The token
behind it is the anchor, and draft token k stands at base + 2 + k; so it is when decoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lenity.training.store import FeatureStore

BUCKET = 16
"""Batches whose replies are sorted by length together: less padding, still mixed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyBatch:
    """Replies padded on the right.

    ``starts[b]`` is where row b's reply begins, ``lengths[b]`` where it ends.
    """

    token_ids: Int[Tensor, "B T"]
    taps: Float[Tensor, "B T F"]
    last: Float[Tensor, "B T H"]
    starts: Int[Tensor, " B"]
    lengths: Int[Tensor, " B"]

    def bases(self) -> tuple[Int[Tensor, "B M"], Bool[Tensor, "B M"]]:
        """Return each row's bases, and which of them have an anchor and a token to draft.

        The first is the last token of the prompt. Others than those are some place in the row.
        """
        most = int((self.lengths - self.starts).max()) - 1
        bases = self.starts[:, None] - 1 + torch.arange(most, device=self.starts.device)
        is_real = bases + 2 < self.lengths[:, None]
        return torch.where(is_real, bases, 0), is_real

    def drafted(
        self, bases: Int[Tensor, "B M"], is_real: Bool[Tensor, "B M"], depth: int
    ) -> tuple[Int[Tensor, "B M K"], Bool[Tensor, "B M K"]]:
        """Return the tokens to draft behind each base, and which of them the reply has."""
        places = bases[..., None] + 2 + torch.arange(depth, device=bases.device)
        is_there = is_real[..., None] & (places < self.lengths[:, None, None])
        return take(self.token_ids, places), is_there


def take(values: Tensor, places: Tensor) -> Tensor:
    """Return ``values[b, places[b, …]]``; a place behind the row's end reads its last column."""
    rows = torch.arange(len(values), device=values.device)
    index = rows.reshape(-1, *[1] * (places.ndim - 1))
    return values[index, places.clamp_max(values.shape[1] - 1)]


def load_batch(
    store: FeatureStore,
    indices: Sequence[int],
    device: torch.device,
    taps: Sequence[int] | None = None,
) -> ReplyBatch:
    """Return captured replies as a batch, float32; ``taps`` are some of the captured layers."""
    items = [store.sequences[i] for i in indices]
    width = max(item.length for item in items)
    size = store.manifest.hidden_size
    token_ids = torch.zeros(len(items), width, dtype=torch.int64)
    features = torch.zeros(len(items), width, (len(store.manifest.taps) + 1) * size)
    for row, index in enumerate(indices):
        ids, states = store.read(index)
        token_ids[row, : len(ids)] = ids
        features[row, : len(ids)] = states
    features = features.to(device)
    return ReplyBatch(
        token_ids=token_ids.to(device),
        taps=features[..., :-size] if taps is None else _chosen(store, features, taps),
        last=features[..., -size:],
        starts=torch.tensor([item.start for item in items], device=device),
        lengths=torch.tensor([item.length for item in items], device=device),
    )


def _chosen(
    store: FeatureStore, features: Float[Tensor, "B T F"], taps: Sequence[int]
) -> Float[Tensor, "B T G"]:
    """Return the features of these layers, in this order."""
    parts = features.split(store.manifest.hidden_size, dim=-1)
    empty = features[..., :0]
    return torch.cat([empty, *(parts[store.manifest.taps.index(tap)] for tap in taps)], -1)


def batch_order(
    lengths: Sequence[int], batch_size: int, seed: int, epoch: int
) -> list[tuple[int, ...]]:
    """Return the batches of an epoch: each item once, neighbours of like length, batches mixed."""
    draw = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(len(lengths), generator=draw).tolist()
    batches: list[tuple[int, ...]] = []
    for first in range(0, len(order), batch_size * BUCKET):
        bucket = sorted(order[first : first + batch_size * BUCKET], key=lambda i: lengths[i])
        batches += [tuple(bucket[i : i + batch_size]) for i in range(0, len(bucket), batch_size)]
    mixed = torch.randperm(len(batches), generator=draw).tolist()
    return [batches[i] for i in mixed]


def endless(
    lengths: Sequence[int], batch_size: int, seed: int, skip: int = 0
) -> Iterator[tuple[int, ...]]:
    """Yield batches of item numbers, epoch after epoch; the first ``skip`` are left out."""
    per_epoch = -(-len(lengths) // batch_size)
    epoch, skip = divmod(skip, per_epoch)
    while True:
        yield from batch_order(lengths, batch_size, seed, epoch)[skip:]
        epoch, skip = epoch + 1, 0
