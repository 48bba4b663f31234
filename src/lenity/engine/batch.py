"""The rows being decoded now: requests, target cache, draft session and ledger, kept in step."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from time import perf_counter

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lenity.drafters.base import Drafter, DraftSession
from lenity.engine.streaming import TextStream
from lenity.engine.tracing import Observer
from lenity.ledger import Ledger
from lenity.models.base import KVCache, LanguageModel
from lenity.sequences import Sequence
from lenity.skipping.base import SkipRule

PREFILL_CHUNK = 512
"""Prompt tokens per forward: bounds attention masks and activations for long prompts."""


class Batch:
    """Requests that share a round. Rows enter behind the others and leave when they end."""

    def __init__(
        self,
        target: LanguageModel,
        drafter: Drafter | None,
        *,
        skip: SkipRule | None = None,
        has_shadow: bool = False,
        observer: Observer | None = None,
    ) -> None:
        """Open an empty cache and a draft session on it."""
        self.target, self.skip, self.has_shadow = target, skip, has_shadow
        self.drafter, self.observer = drafter, observer
        self.unknown_ids = frozenset(target.unknown_ids.tolist())
        self.cache: KVCache = target.new_cache()
        self.session: DraftSession | None = drafter.open(target, self.cache) if drafter else None
        self.taps = self.session.taps if self.session else ()
        self.ledger = Ledger()
        self.rows: list[Sequence] = []
        self.texts: list[TextStream | None] = []
        self.guarded: Bool[Tensor, "B V"] = torch.zeros(
            0, target.vocab_size, dtype=torch.bool, device=target.device
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    @torch.inference_mode()
    def admit(self, sequence: Sequence, text: TextStream | None) -> None:
        """Prefill a request alone and add it as the last row."""
        started = perf_counter()
        prompt = sequence.token_ids
        row, features = self._prefill(prompt[:-1])
        self.cache.append(row)
        if self.session is not None:
            self.session.admit(tuple(prompt), features)
        mask = torch.zeros(1, self.target.vocab_size, dtype=torch.bool)
        mask[0, [i for i in sorted(sequence.guarded_ids) if i < self.target.vocab_size]] = True
        self.guarded = torch.cat([self.guarded, mask.to(self.target.device)])
        self.ledger.open_row()
        self.rows.append(sequence)
        self.texts.append(text)
        sequence.prefill_seconds = perf_counter() - started

    def _prefill(self, token_ids: SequenceOf[int]) -> tuple[KVCache, Float[Tensor, "T F"] | None]:
        cache = self.target.new_cache(1)
        features = []
        for start in range(0, len(token_ids), PREFILL_CHUNK):
            chunk = torch.tensor([token_ids[start : start + PREFILL_CHUNK]])
            hidden = self.target.hidden_states(chunk.to(self.target.device), cache, taps=self.taps)
            cache.commit([chunk.shape[1]])
            if hidden.features is not None:
                features.append(hidden.features[0])
        return cache, torch.cat(features) if features else None

    def drop_finished(self) -> None:
        """Free the rows of requests that have ended."""
        alive = [i for i, row in enumerate(self.rows) if not row.is_finished]
        if len(alive) == len(self.rows):
            return
        self.cache.keep(alive)
        if self.session is not None:
            self.session.keep(alive)
        self.ledger.keep(alive)
        self.guarded = self.guarded[alive]
        self.rows = [self.rows[i] for i in alive]
        self.texts = [self.texts[i] for i in alive]

    def check_invariants(self) -> None:
        """Assert what must hold between rounds."""
        sizes = {len(self.rows), len(self.ledger), len(self.cache.lengths), len(self.guarded)}
        assert len(sizes) == 1, f"rows out of step: {sizes}"
        for row, length in zip(self.rows, self.cache.lengths, strict=True):
            wanted = len(row.token_ids) - 1 - row.num_pending
            assert length == wanted, (row.name, length, wanted)
