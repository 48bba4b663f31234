"""Capture what a drafter reads of its target: the taps and the last state over recorded replies.

The target runs once over every prompt with its reply. What it computed is kept in bf16, so that
training epochs cost no target pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lenity.models.base import LanguageModel
from lenity.training.store import FeatureStore, Manifest, key_of, open_store, write_shard

MIN_REPLY = 3
"""Tokens a reply needs: the first is the anchor of the first draft, and a chain needs a link."""

Reply = Mapping[str, Any]
"""A recorded reply: prompt_ids, token_ids, family (see replies.py)."""


def capture(  # noqa: PLR0913 (what bounds it is named one by one)
    target: LanguageModel,
    replies: Iterable[Reply],
    folder: Path,
    *,
    taps: Sequence[int],
    max_length: int = 320,
    max_bytes: int = 8 << 30,
    batch_size: int = 16,
    shard_size: int = 64,
    progress: Callable[[int], None] = lambda tokens: None,
) -> FeatureStore:
    """Capture replies that are not there yet; return the store.

    Sequences are cut at ``max_length`` tokens. ``shard_size`` replies make a shard; capturing ends
    before ``max_bytes`` are passed. ``progress`` is told the tokens of every shard. Raises
    RunDirError for a folder of another target.
    """
    manifest = Manifest.of(target, taps, max_length, torch.bfloat16)
    store = open_store(folder, manifest)
    known = store.keys()
    todo = [item for item in map(_cut(max_length), replies) if item and item["key"] not in known]
    width = (len(taps) + 1) * target.hidden_size * 2
    for first in range(0, len(todo), shard_size):
        items = todo[first : first + shard_size]
        size = sum(len(item["ids"]) for item in items) * (width + 4)
        if store.num_bytes + size > max_bytes:
            break
        write_shard(store, _shard(target, items, tuple(taps), batch_size), _families(items))
        progress(sum(len(item["ids"]) for item in items))
    return store


def _cut(max_length: int) -> Callable[[Reply], dict[str, Any] | None]:
    """Return what makes a sequence of a reply; None where too little of the reply is left."""

    def cut(reply: Reply) -> dict[str, Any] | None:
        prompt, new = list(reply["prompt_ids"]), list(reply["token_ids"])
        ids = (prompt + new)[:max_length]
        if len(ids) - len(prompt) < MIN_REPLY or not prompt:
            return None
        family = str(reply.get("family", ""))
        return {"ids": ids, "start": len(prompt), "key": key_of(prompt), "family": family}

    return cut


def _families(items: Sequence[Mapping[str, Any]]) -> list[str]:
    return [item["family"] for item in items]


@torch.no_grad()
def _shard(
    target: LanguageModel, items: Sequence[Mapping[str, Any]], taps: tuple[int, ...], rows: int
) -> dict[str, Tensor]:
    """Return the tensors of a shard; sequences of like length share a forward."""
    features: list[Tensor] = [torch.empty(0)] * len(items)
    order = sorted(range(len(items)), key=lambda i: len(items[i]["ids"]))
    for first in range(0, len(order), rows):
        chosen = order[first : first + rows]
        found = _states(target, [items[i]["ids"] for i in chosen], taps)
        for i, states in zip(chosen, found, strict=True):
            features[i] = states
    ids = [token for item in items for token in item["ids"]]
    return {
        "token_ids": torch.tensor(ids, dtype=torch.int32),
        "features": torch.cat(features),
        "lengths": torch.tensor([len(item["ids"]) for item in items], dtype=torch.int32),
        "starts": torch.tensor([item["start"] for item in items], dtype=torch.int32),
        "keys": torch.tensor([list(item["key"]) for item in items], dtype=torch.uint8),
    }


def _states(
    target: LanguageModel, sequences: Sequence[Sequence[int]], taps: tuple[int, ...]
) -> list[Tensor]:
    """Return (T, F) of every sequence, from one forward padded on the right."""
    width = max(map(len, sequences))
    padded = [[*ids, *[0] * (width - len(ids))] for ids in sequences]
    token_ids = torch.tensor(padded, device=target.device)
    cache = target.new_cache(len(sequences))
    found = target.hidden_states(token_ids, cache, taps=(*taps, target.num_layers)).features
    assert found is not None, "taps were asked for"
    kept = found.to(dtype=torch.bfloat16, device="cpu")
    return [kept[row, : len(ids)].clone() for row, ids in enumerate(sequences)]
