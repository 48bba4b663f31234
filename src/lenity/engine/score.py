"""From the block's hidden states to Scores, row chunk by row chunk."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenity.engine.batch import Batch
from lenity.engine.clock import Clock
from lenity.errors import OutOfMemoryError, is_out_of_memory
from lenity.policies.base import RelaxedPolicy
from lenity.processors import apply_all, walk
from lenity.scoring import reduce_logits, rows_per_chunk
from lenity.types import Draft, Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Scores of a block and, where processors ran, the logits from before them.

    ``raw_logits`` maps a batch row to its (R, V) logits before processors.
    """

    scores: Scores
    raw_logits: dict[int, Float[Tensor, "R V"]]


def score(
    batch: Batch,
    draft: Draft,
    hidden: Float[Tensor, "B R H"],
    clock: Clock,
    *,
    chunk_bytes: int,
) -> Scored:
    """Return the scores of every row of the block; the head runs in the target's stage."""
    flat = hidden.reshape(-1, hidden.shape[-1])
    processing = _Processing(batch, draft)
    chunk_rows = rows_per_chunk(chunk_bytes, batch.target.vocab_size)

    def logits_of(start: int, stop: int) -> Float[Tensor, "N V"]:
        with clock.stage("target"):
            logits = batch.target.logits(flat[start:stop])
        if batch.target.unknown_ids.numel():
            logits = logits.index_fill(-1, batch.target.unknown_ids, -float("inf"))
        return processing.run(logits, start) if processing.is_needed else logits

    needs, keep_logits = _wants(batch, is_one_chunk=flat.shape[0] <= chunk_rows)
    try:
        with clock.stage("verify"):
            scores = reduce_logits(
                logits_of, draft, needs=needs, keep_logits=keep_logits, chunk_rows=chunk_rows
            )
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        gib = min(chunk_rows, flat.shape[0]) * batch.target.vocab_size * 4 / 2**30
        raise OutOfMemoryError(
            f"Could not allocate the verify logits: {gib:.2f} GiB in float32 for "
            f"{min(chunk_rows, flat.shape[0])} rows of {batch.target.vocab_size} tokens. Lower "
            f"max_logits_bytes, gamma or max_batch_size."
        ) from error
    return Scored(scores=scores, raw_logits=processing.raw_logits)


def _wants(batch: Batch, *, is_one_chunk: bool) -> tuple[frozenset[str], bool]:
    """Return the optional reductions to make, and whether to keep the logits.

    Logits that fit one chunk are in memory anyway: they are kept, and what only emitted tokens need
    (log-probabilities, the rank of a relaxed one) is read from their rows later. Otherwise it is
    reduced for every row, chunk by chunk.
    """
    needs = frozenset().union(*(row.policy.needs for row in batch.rows))
    if is_one_chunk:
        return needs, True
    needs |= {"log_normalizer"}
    if any(isinstance(row.policy, RelaxedPolicy) for row in batch.rows):
        needs |= {"draft_rank"}
    keep = any(not row.sampling.is_greedy or row.settings.top_logprobs for row in batch.rows)
    return needs, keep


class _Processing:
    """Applies each row's logits processors along its draft, position by position."""

    def __init__(self, batch: Batch, draft: Draft) -> None:
        self.raw_logits: dict[int, Tensor] = {}
        self.is_needed = any(row.processors for row in batch.rows)
        self._batch, self._width = batch, draft.gamma + 1
        self._states: dict[int, list[tuple[Any, ...]]] = {}
        if self.is_needed:
            self._walk(draft.token_ids.tolist(), draft.lengths.tolist())

    def _walk(self, token_ids: list[list[int]], lengths: list[int]) -> None:
        for index, row in enumerate(self._batch.rows):
            if row.processors:
                drafted = token_ids[index][: lengths[index]]
                self._states[index] = walk(row.processors, row.processor_states, drafted)

    def run(self, logits: Float[Tensor, "N V"], start: int) -> Float[Tensor, "N V"]:
        logits = logits.to(torch.float32)
        out = []
        for offset, own in enumerate(logits):
            index, position = divmod(start + offset, self._width)
            row, states = self._batch.rows[index], self._states.get(index)
            if states is not None:
                self._keep_raw(index, position, own)
                # rows behind the draft are padding; no decision reads them
                state = states[min(position, len(states) - 1)]
                own = apply_all(row.processors, state, own)
            out.append(own)
        return torch.stack(out)

    def _keep_raw(self, index: int, position: int, own: Float[Tensor, " V"]) -> None:
        row = self._batch.rows[index]
        if row.settings.logprobs == "raw":
            if index not in self.raw_logits:
                self.raw_logits[index] = own.new_zeros(self._width, own.shape[-1])
            self.raw_logits[index][position] = own


def top_logprobs(logits: Float[Tensor, " V"], count: int) -> tuple[tuple[int, float], ...]:
    """Return the ``count`` most likely ids and their log-probabilities, best first."""
    best = logits.to(torch.float64).log_softmax(-1).topk(min(count, logits.shape[-1]))
    return tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def logprobs_of(logits: Float[Tensor, "N V"], token_ids: SequenceOf[int]) -> list[float]:
    """Return each row's log-probability of its token, nats."""
    ids: Int[Tensor, "N 1"] = torch.tensor(token_ids, device=logits.device)[:, None]
    own = logits[: len(token_ids)].to(torch.float64).log_softmax(-1).gather(-1, ids)
    return own.squeeze(-1).tolist()
