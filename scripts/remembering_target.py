"""A target that computes nothing twice, for studies in which many arms share their text.

What enters the LM head at a position is a function of the tokens up to there, so that one tree of
tokens holds all that was ever computed, keys and values included. The engine's decisions are the
same; its seconds are not, so no time is measured with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from lenity.models import CausalLM
from lenity.models.base import HiddenStates, KVCache
from lenity.models.cache import SlotCache

MOST = 24_000
"""Positions kept (about 50 kB each for the demo model); beyond, all are forgotten."""
MOST_LOGITS = 12_000
"""Rows of logits kept (about 200 kB each for the demo model); beyond, all are forgotten."""
PADDING, NOWHERE = 0, -1


class TextCache:
    """Which positions of the tree a batch's rows stand on; the tree holds the rest."""

    def __init__(self, batch_size: int = 0) -> None:
        """Start rows of length 0."""
        self.paths: list[list[int]] = [[] for _ in range(batch_size)]
        self.written: list[list[int]] = [[] for _ in range(batch_size)]

    @property
    def lengths(self) -> list[int]:
        """Committed tokens by row."""
        return [len(path) for path in self.paths]

    def commit(self, counts: Sequence[int]) -> None:
        """Make the first ``counts[b]`` tokens written count; padding never does."""
        for row, count in enumerate(counts):
            taken, self.written[row] = self.written[row][:count], self.written[row][count:]
            assert len(taken) == count, "more tokens are committed than were written"
            assert NOWHERE not in taken, "padding is committed"
            self.paths[row] += taken

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        self.paths = [self.paths[row] for row in rows]
        self.written = [self.written[row] for row in rows]

    def append(self, other: KVCache) -> None:
        """Take over the rows of another cache."""
        assert isinstance(other, TextCache), "made by the same target"
        self.paths += other.paths
        self.written += other.written


class RememberingTarget(CausalLM):
    """A CausalLM behind a tree of all positions it has seen."""

    def __init__(self, target: CausalLM) -> None:
        """Share the weights of a target."""
        super().__init__(target.module, target.tokenizer, target.name)
        self._forget()

    def _forget(self) -> None:
        self._children: dict[tuple[int, int], int] = {}
        self._hidden: list[Tensor] = []
        self._states: list[Tensor] = []
        self._logits: dict[bytes, Tensor] = {}

    def new_cache(self, batch_size: int = 0) -> Any:
        """Return a cache of positions. A batch begins with an empty one: time to forget."""
        if not batch_size and len(self._hidden) > MOST:
            self._forget()
        return TextCache(batch_size)

    @torch.no_grad()
    def hidden_states(self, token_ids: Tensor, cache: Any, **options: Any) -> HiddenStates:
        """Return the hidden states; zeros for what pads a row on the right, which counts nowhere.

        A drafted id 0 at the end of a row looks like padding: the cache refuses to commit it.
        """
        if isinstance(cache, SlotCache):
            return super().hidden_states(token_ids, cache, **options)
        assert not any(options.values()), "a drafter that reads the target is not remembered"
        rows = [_without_padding(row) for row in token_ids.tolist()]
        found = [self._walk(path, row) for path, row in zip(cache.paths, rows, strict=True)]
        todo = [index for index, row in enumerate(rows) if len(found[index]) < len(row)]
        if todo:
            self._compute(
                [cache.paths[index] + found[index] for index in todo],
                [rows[index][len(found[index]) :] for index in todo],
            )
            for index in todo:
                found[index] = self._walk(cache.paths[index], rows[index])
        width = token_ids.shape[1]
        cache.written = [nodes + [NOWHERE] * (width - len(nodes)) for nodes in found]
        out = torch.zeros(*token_ids.shape, self.hidden_size, dtype=self.dtype)
        for index, nodes in enumerate(found):
            if nodes:
                out[index, : len(nodes)] = torch.stack([self._hidden[node] for node in nodes])
        return HiddenStates(last=out)

    @torch.no_grad()
    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits, computed once for every hidden state."""
        if hidden.dtype != torch.float32:
            return super().logits(hidden)
        if len(self._logits) > MOST_LOGITS:
            self._logits.clear()
        flat = hidden.reshape(-1, hidden.shape[-1])
        keys = [row.tobytes() for row in flat.numpy()]
        todo = {key: row for row, key in enumerate(keys) if key not in self._logits}
        if todo:
            made = super().logits(flat[list(todo.values())])
            self._logits |= zip(todo, made.clone().unbind(), strict=True)
        out = torch.stack([self._logits[key] for key in keys])
        return out.reshape(*hidden.shape[:-1], out.shape[-1])

    def read(self, texts: Sequence[list[int]]) -> list[list[int]]:
        """Return the positions of texts, those not known computed together."""
        found = [self._walk([], text) for text in texts]
        todo = [row for row, text in enumerate(texts) if len(found[row]) < len(text)]
        if todo:
            self._compute(
                [found[row] for row in todo], [texts[row][len(found[row]) :] for row in todo]
            )
        return [self._walk([], text) for text in texts]

    def hidden_at(self, node: int) -> Tensor:
        """Return what enters the LM head at a position."""
        return self._hidden[node]

    def dynamic_cache(self, paths: Sequence[list[int]]) -> DynamicCache:
        """Return transformers' own cache of the positions, padded on the right."""
        width, cache = max(map(len, paths)), DynamicCache()
        for number, layer in enumerate(self._loaded(paths, 0).slot_layers):
            cache.update(layer.keys[:, :, :width], layer.values[:, :, :width], number)
        return cache

    def _walk(self, path: Sequence[int], tokens: Sequence[int]) -> list[int]:
        """Return the known positions of tokens behind a path, up to the first unknown one."""
        node, found = path[-1] if path else NOWHERE, []
        for token in tokens:
            known = self._children.get((node, token))
            if known is None:
                break
            found.append(known)
            node = known
        return found

    def _compute(self, paths: Sequence[list[int]], tokens: Sequence[list[int]]) -> None:
        """Run unknown tokens behind known positions, and add them to the tree."""
        width = max(map(len, tokens))
        padded = torch.tensor([row + [PADDING] * (width - len(row)) for row in tokens])
        cache = self._loaded(paths, width)
        last = super().hidden_states(padded, cache).last
        for row, (path, own) in enumerate(zip(paths, tokens, strict=True)):
            span = slice(len(path), len(path) + len(own))
            parts = [(a.keys[row, :, span], a.values[row, :, span]) for a in cache.slot_layers]
            states = torch.stack([torch.stack(pair) for pair in parts])  # layer, 2, head, t, dim
            node = path[-1] if path else NOWHERE
            for at, token in enumerate(own):
                if (node, token) not in self._children:  # by another row with the same beginning
                    self._children[node, token] = len(self._hidden)
                    self._hidden.append(last[row, at].clone())
                    self._states.append(states[:, :, :, at].clone())
                node = self._children[node, token]

    def _loaded(self, paths: Sequence[list[int]], width: int) -> SlotCache:
        """Return a cache with the keys and values of paths, ready for ``width`` tokens more."""
        cache = super().new_cache(len(paths))
        cache.lengths = [len(path) for path in paths]
        if not any(cache.lengths):
            return cache
        cache.slots.place(cache.lengths, width)
        like = next(self._states[path[0]] for path in paths if path)
        blank = like.new_zeros(len(paths), like.shape[2], 1, like.shape[3])
        for layer in cache.slot_layers:
            layer.lazy_initialization(blank, blank)
        for row, path in enumerate(paths):
            if path:
                states = torch.stack([self._states[node] for node in path], dim=3)
                for layer, (keys, values) in zip(cache.slot_layers, states, strict=True):
                    layer.keys[row, :, : len(path)] = keys
                    layer.values[row, :, : len(path)] = values
        return cache


def _without_padding(row: list[int]) -> list[int]:
    size = len(row)
    while size and row[size - 1] == PADDING:
        size -= 1
    return row[:size]
