"""The target asked again about recorded ids: evidence for divergences, and teacher-forced text.

Nothing here drafts. Prefixes enter the target as whole blocks, so that what it says owes nothing
to a drafter, a policy or an earlier round.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenity.errors import ConfigError
from lenity.models.base import KVCache, LanguageModel
from lenity.scoring import DEFAULT_CHUNK_BYTES
from lenity.workbench.divergence import Evidence, first_difference
from lenity.workbench.pairing import Pairs
from lenity.workbench.records import SampleRecord

CHUNK = 512
"""Tokens per row in one forward: bounds attention masks and activations."""


def in_float32(target: LanguageModel) -> LanguageModel:
    """Return the target computing in float32: itself, or a copy with its weights upcast.

    The copy costs four bytes a weight. Raises ConfigError for a target that has no weights to
    upcast, such as a quantised one: give the float32 model it was made from.
    """
    from lenity.models import CausalLM  # transformers, only where there is a model of its

    if target.dtype == torch.float32:
        return target
    config = getattr(getattr(target, "module", None), "config", None)
    if not isinstance(target, CausalLM) or getattr(config, "quantization_config", None):
        raise ConfigError(
            f"Expected weights that can be upcast to float32 for a re-score, got {target.name} in "
            f"{target.dtype}. Give the float32 model as `exact`."
        )
    module = copy.deepcopy(target.module).float()
    return CausalLM(module, target.tokenizer, name=f"{target.name} in float32")


class Rescorer:
    """A target, and the same target in float32."""

    def __init__(self, target: LanguageModel, exact: LanguageModel | None = None) -> None:
        """Take ``exact`` for the float32 target, or make it; see in_float32."""
        self.target = target
        self.exact = in_float32(target) if exact is None else exact

    def evidence(self, reference: SampleRecord, arm: SampleRecord) -> Evidence | None:
        """Return what the target says of the first token in which two outputs differ, or None.

        ``top_ids`` and ``gap`` are the float32 target's after the common prefix. ``control_ids``
        are the target's own choices at the new positions up to there, the arm's prompt and text
        scored as one batch; where that does not repeat the arm's token, as the block of the arm's
        round. None where outputs are equal, or one ends where the other goes on.
        """
        position = first_difference(reference.token_ids, arm.token_ids)
        if position is None or position >= min(len(reference.token_ids), len(arm.token_ids)):
            return None
        top_ids, gap = self.top_two([*arm.prompt_ids, *arm.token_ids[:position]])
        control = self.control(arm, position)
        if control[position] != arm.token_ids[position]:
            control = self.control_in_round(arm, position)
        return Evidence(top_ids=top_ids, gap=gap, control_ids=control)

    def all_evidence(self, pairs: Pairs) -> dict[tuple[str, str, int], Evidence]:
        """Return the evidence of every pair whose outputs differ, by task, item and repeat."""
        found = {}
        for reference, arm in pairs.pairs:
            evidence = self.evidence(reference, arm)
            if evidence is not None:
                found[arm.task, arm.item_id, arm.repeat] = evidence
        return found

    def top_two(self, prefix: Sequence[int]) -> tuple[tuple[int, int], float]:
        """Return the float32 target's two best ids after a prefix, and the nats between them."""
        logits = _logits_behind(self.exact, prefix, len(prefix) - 1)
        best = logits[0].to(torch.float64).topk(2)
        first, second = best.values.tolist()
        return (int(best.indices[0]), int(best.indices[1])), first - second

    def control(self, arm: SampleRecord, position: int) -> tuple[int, ...]:
        """Return the target's choice at each new position up to ``position``, without a drafter.

        Prompt and text before that position enter in one forward, however long they are.
        """
        ids = [*arm.prompt_ids, *arm.token_ids[:position]]
        logits = _logits_behind(self.target, ids, len(arm.prompt_ids) - 1, block=len(ids))
        return tuple(logits.argmax(-1).tolist())

    def control_in_round(self, arm: SampleRecord, position: int) -> tuple[int, ...]:
        """Return the same, the round that emitted ``position`` scored as the block it was.

        The positions before that round stand as they were emitted. Draft tokens that were
        rejected are not known; others in their place give the block its width.
        """
        start, width = _round_of(arm, position)
        anchor = len(arm.prompt_ids) - 1 + start
        ids = [*arm.prompt_ids, *arm.token_ids][: anchor + 1 + width]
        ids += ids[-1:] * (anchor + 1 + width - len(ids))
        logits = _logits_behind(self.target, ids, anchor, block=1 + width)
        return (*arm.token_ids[:start], *logits.argmax(-1).tolist()[: position - start + 1])


def _round_of(arm: SampleRecord, position: int) -> tuple[int, int]:
    """Return where the round that emitted a new token began, and how many it scored."""
    start = 0
    for counts in arm.rounds:
        if start + counts.emitted > position:
            return start, max(counts.evaluated, position - start)
        start += counts.emitted
    return position, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """New tokens behind a prompt."""

    prompt_ids: Sequence[int]
    token_ids: Sequence[int]


@torch.inference_mode()
def teacher_forced_logprobs(
    target: LanguageModel,
    texts: Sequence[Continuation],
    *,
    batch_size: int = 8,
    max_logits_bytes: int = DEFAULT_CHUNK_BYTES,
) -> list[list[float]]:
    """Return the log-probability of each new token under the target, nats, given those before.

    log p(x_t | x_<t) from one teacher-forced pass; processors and temperature play no part. The
    memory is that of ``batch_size`` caches and ``max_logits_bytes`` of float32 logits.
    """
    out: list[list[float]] = []
    rows = max(1, max_logits_bytes // (4 * target.vocab_size))
    for start in range(0, len(texts), batch_size):
        out += _logprobs(target, texts[start : start + batch_size], rows)
    return out


def mean_logprobs(
    target: LanguageModel, texts: Sequence[Continuation], *, batch_size: int = 8
) -> list[float | None]:
    """Return each text's mean log-probability per new token, nats; None without new tokens."""
    rows = teacher_forced_logprobs(target, texts, batch_size=batch_size)
    return [sum(row) / len(row) if row else None for row in rows]


def _logprobs(
    target: LanguageModel, texts: Sequence[Continuation], max_rows: int
) -> list[list[float]]:
    """Return the log-probabilities of one batch; only rows that judge a new token meet the head."""
    ids = [[*text.prompt_ids, *text.token_ids] for text in texts]
    wanted = [len(text.prompt_ids) - 1 for text in texts]
    out: list[list[float]] = [[] for _ in texts]
    for offset, hidden in _hidden_blocks(target, [row[:-1] for row in ids]):
        for index, row in enumerate(ids):
            first = max(wanted[index], offset)
            last = min(len(row) - 1, offset + hidden.shape[1])
            for begin in range(first, last, max_rows):
                end = min(begin + max_rows, last)
                logits = _logits(target, hidden[index, begin - offset : end - offset])
                labels = torch.tensor(row[begin + 1 : end + 1], device=logits.device)
                law = logits.log_softmax(-1, dtype=torch.float32)
                out[index] += law.gather(-1, labels[:, None]).squeeze(-1).tolist()
    return out


@torch.inference_mode()
def _logits_behind(
    target: LanguageModel, ids: Sequence[int], first: int, *, block: int | None = None
) -> Float[Tensor, "N V"]:
    """Return the logits behind each id from index ``first`` on.

    The last ``block`` ids are one forward's, whatever that costs; what stands before them enters
    in chunks.
    """
    cache, kept = target.new_cache(1), []
    for start, stop in _cuts(len(ids), block):
        piece = torch.tensor([list(ids[start:stop])], device=target.device)
        hidden = target.hidden_states(piece, cache).last
        cache.commit([stop - start])
        kept.append(hidden[0, max(0, first - start) :])
    return _logits(target, torch.cat(kept))


def _cuts(length: int, block: int | None) -> Iterator[tuple[int, int]]:
    """Yield where to cut: chunks, and at the end a block if one is asked for."""
    rest = length if block is None else length - block
    for start in range(0, rest, CHUNK):
        yield start, min(start + CHUNK, rest)
    if block is not None:
        yield rest, length


def _hidden_blocks(
    target: LanguageModel, ids: Sequence[Sequence[int]]
) -> Iterator[tuple[int, Float[Tensor, "B T H"]]]:
    """Yield (index of the first column, hidden states) of rows padded on the right, in chunks."""
    cache: KVCache = target.new_cache(len(ids))
    for start in range(0, max(map(len, ids)), CHUNK):
        pieces = [list(row[start : start + CHUNK]) for row in ids]
        width = max(map(len, pieces))
        block: Int[Tensor, "B T"] = torch.tensor(
            [piece + [0] * (width - len(piece)) for piece in pieces], device=target.device
        )
        hidden = target.hidden_states(block, cache).last
        cache.commit([len(piece) for piece in pieces])
        yield start, hidden


def _logits(target: LanguageModel, hidden: Float[Tensor, "N H"]) -> Float[Tensor, "N V"]:
    """Return logits with the ids no token stands for masked, as the decoder has them."""
    logits = target.logits(hidden)
    if target.unknown_ids.numel():
        logits = logits.index_fill(-1, target.unknown_ids, -float("inf"))
    return logits
