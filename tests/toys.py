"""Models and drafters small enough to reason about, behind lenity's own faces.

A TableModel is Markov: the logits after a token are a row of a table. It keeps a cache that only
counts, so that cache bookkeeping is tested by every engine test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from lenity.drafters.base import DraftContext, Drafter
from lenity.models.base import HiddenStates, KVCache, LanguageModel
from lenity.types import Draft


class CountingCache:
    """A KV cache that remembers which tokens it was given, and nothing else."""

    def __init__(self, batch_size: int = 0) -> None:
        self.lengths = [0] * batch_size
        self.committed: list[list[int]] = [[] for _ in range(batch_size)]
        self._written: list[list[int]] = [[] for _ in range(batch_size)]

    def write(self, token_ids: Sequence[Sequence[int]], offset: int) -> None:
        for row, ids in enumerate(token_ids):
            self._written[row] = self._written[row][:offset] + list(ids)

    def commit(self, counts: Sequence[int]) -> None:
        for row, count in enumerate(counts):
            assert count <= len(self._written[row]), "commit of tokens never written"
            self.committed[row] += self._written[row][:count]
            self._written[row] = self._written[row][count:]
            self.lengths[row] += count

    def keep(self, rows: Sequence[int]) -> None:
        self.lengths = [self.lengths[r] for r in rows]
        self.committed = [self.committed[r] for r in rows]
        self._written = [self._written[r] for r in rows]

    def append(self, other: KVCache) -> None:
        assert isinstance(other, CountingCache)
        self.lengths += other.lengths
        self.committed += other.committed
        self._written += other._written


class TableModel:
    """Logits after token t are ``table[t]``; everything before t is ignored."""

    def __init__(
        self,
        table: Tensor,
        *,
        eos: Sequence[int] = (),
        tokenizer: object = None,
        max_positions: int | None = None,
        unknown_ids: Sequence[int] = (),
        name: str = "toy:table",
    ) -> None:
        self.table = table.to(torch.float32)
        self.name = name
        self.vocab_size = table.shape[-1]
        self.unknown_ids = torch.tensor(list(unknown_ids), dtype=torch.int64)
        self.eos_token_ids = frozenset(eos)
        self.tokenizer = tokenizer
        self.max_positions = max_positions
        self.num_layers, self.hidden_size = 1, 1
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.num_forwards = 0

    def new_cache(self, batch_size: int = 0) -> CountingCache:
        return CountingCache(batch_size)

    def hidden_states(
        self,
        token_ids: Tensor,
        cache: KVCache,
        *,
        offset: int = 0,
        taps: tuple[int, ...] = (),
        layers: tuple[int, ...] | None = None,
    ) -> HiddenStates:
        assert isinstance(cache, CountingCache)
        assert token_ids.shape[0] == len(cache.lengths)
        self.num_forwards += 1
        cache.write(token_ids.tolist(), offset)
        last = token_ids.unsqueeze(-1).to(torch.float32)
        return HiddenStates(last=last, features=last if taps else None)

    def embed(self, token_ids: Tensor) -> Tensor:
        return token_ids.unsqueeze(-1).to(torch.float32)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.table[hidden.squeeze(-1).long()]


def cycle_model(vocab_size: int = 16, **kwargs: object) -> TableModel:
    """Return a model whose next token is (t + 1) mod V, by a margin of 10 nats."""
    table = torch.zeros(vocab_size, vocab_size)
    for token in range(vocab_size):
        table[token, (token + 1) % vocab_size] = 10.0
        table[token, (token + 2) % vocab_size] = 9.5  # the runner-up costs half a nat
    return TableModel(table, **kwargs)  # type: ignore[arg-type]


Script = Callable[[Sequence[int], int], list[int]]
"""Committed tokens and a limit -> the draft tokens of a row."""


@dataclass
class ScriptedSession:
    """Drafts what the script says; remembers what it was told."""

    script: Script
    taps: tuple[int, ...] = ()
    observed: list[list[int]] = field(default_factory=list)

    def admit(self, token_ids: Sequence[int], features: Tensor | None) -> None:
        pass

    def propose(self, context: DraftContext) -> Draft:
        rows = [
            self.script(ids, limit)[:limit] if limit else []
            for ids, limit in zip(context.token_ids, context.limits, strict=True)
        ]
        width = max(map(len, rows), default=0)
        padded = [row + [0] * (width - len(row)) for row in rows]
        return Draft(
            token_ids=torch.tensor(padded, dtype=torch.int64).reshape(len(rows), width),
            lengths=torch.tensor([len(row) for row in rows], dtype=torch.int64),
        )

    def observe(self, accepted_lengths: Sequence[int], features: Tensor | None) -> None:
        self.observed.append(list(accepted_lengths))

    def keep(self, rows: Sequence[int]) -> None:
        pass


class ScriptedDrafter(Drafter):
    """A drafter whose tokens the test writes down."""

    idea: ClassVar[str] = "scripted"
    paper: ClassVar[str] = "none"
    is_certain: ClassVar[bool] = True

    type: Literal["scripted"] = "scripted"
    script: Script

    def open(self, target: LanguageModel, cache: KVCache) -> ScriptedSession:
        return ScriptedSession(self.script)


def oracle(model: TableModel) -> Script:
    """Return the script that replays the model's own greedy tokens."""

    def script(ids: Sequence[int], limit: int) -> list[int]:
        out, last = [], ids[-1]
        for _ in range(limit):
            last = int(model.table[last].argmax())
            out.append(last)
        return out

    return script


def anti_oracle(model: TableModel) -> Script:
    """Return the script that always drafts the model's least likely token."""

    def script(ids: Sequence[int], limit: int) -> list[int]:
        out, last = [], ids[-1]
        for _ in range(limit):
            last = int(model.table[last].argmin())
            out.append(last)
        return out

    return script


def pattern(model: TableModel, *correct: int) -> Script:
    """Return the script that is right for ``correct[round]`` tokens, then wrong; it cycles.

    One row only: the round counter is the script's own.
    """
    rounds = iter(range(10**9))

    def script(ids: Sequence[int], limit: int) -> list[int]:
        right = correct[next(rounds) % len(correct)]
        good = oracle(model)(ids, limit)
        for i in range(right, limit):
            good[i] = (good[i] + 3) % model.vocab_size
        return good

    return script
