"""From a verdict to commits: stop handling, receipts, counters."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from math import isfinite, isnan
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenity.engine.batch import Batch
from lenity.engine.score import Scored, logprobs_of, top_logprobs
from lenity.engine.stopping import Cut, cut
from lenity.ledger import nats_to_units, to_nats
from lenity.scoring import check_finite, log_normalizer, rank_of
from lenity.sequences import Commit, Sequence
from lenity.types import Draft, RoundRecord, Scores, TokenKind, TokenReceipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is accepted of each row of a round; nothing is committed yet.

    ``next_token_id`` is there when a row drew its next token; the others take the target's argmax
    behind the accepted prefix. ``is_drawn`` names the rows that did, and is empty if none did.
    """

    accepted_length: Int[Tensor, " B"]
    next_token_id: Int[Tensor, " B"] | None = None
    is_drawn: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class _Read:
    """One row of a round on the host; ``regret`` in nats, everything up to the next token."""

    accepted_length: int
    length: int
    token_ids: list[int]
    is_relaxed: list[bool]
    regret: list[float]
    ranks: list[int] | None
    logprobs: list[float]
    top_ids: list[int]
    top_logits: list[float]


def commit_rows(
    batch: Batch, draft: Draft, scored: Scored, decision: Decision, rows: SequenceOf[int]
) -> dict[int, Commit]:
    """Return what this round adds to each of ``rows``, by row.

    Nothing is changed before every row was found finite. Raises NonFiniteError. Rows behind a
    rejected draft token, or behind one that ends the request, decide nothing and may be anything: a
    grammar may mask all of them.
    """
    reads = _read(draft, scored.scores, decision)
    check_finite(
        [_weakest(reads[row]) for row in rows],
        [_last_emitting(batch.rows[row], reads[row]) for row in rows],
        [batch.rows[row].name for row in rows],
    )
    return {row: _commit_row(batch, row, reads[row], scored) for row in rows}


def _last_emitting(row: Sequence, read: _Read) -> int:
    """Return the position of the last token that may be emitted, stop strings aside."""
    ends = (at for at, token_id in enumerate(read.token_ids) if token_id in row.ending_ids)
    return min(next(ends, read.accepted_length), row.room - 1)


def _weakest(read: _Read) -> list[float]:
    """Return each emitting row's largest logit, or NaN where one is anywhere in the row.

    A NaN may escape the maximum (``sampling.greedy``), never the sum that normalises the row.
    """
    pairs = zip(read.top_logits, read.logprobs, strict=True)
    return [own if isnan(own) and isfinite(top) else top for top, own in pairs]


def _read(draft: Draft, scores: Scores, decision: Decision) -> list[_Read]:
    """Move what the host needs: accepted lengths, then everything else at once."""
    accepted = decision.accepted_length.tolist()
    width = max(accepted) + 1
    fields = {
        "length": draft.lengths[:, None],
        "token_ids": draft.token_ids[:, :width],
        "regret": scores.regret[:, :width],
        "draft_logits": scores.draft_logit[:, :width],
        "top_ids": scores.top_id[:, :width],
        "top_logits": scores.top_logit[:, :width],
        "normalizers": _normalizer(scores, width),
    }
    if scores.draft_rank is not None:
        fields["ranks"] = scores.draft_rank[:, :width]
    if decision.next_token_id is not None:
        assert scores.logits is not None, "sampling keeps the logits"
        # a law of NaN draws an id outside the vocabulary; its row is refused before it is used
        chosen = decision.next_token_id.clamp_max(scores.logits.shape[-1] - 1)
        rows = torch.arange(len(accepted), device=chosen.device)
        fields["drawn_id"] = decision.next_token_id[:, None]
        fields["drawn_logit"] = scores.logits[rows, decision.accepted_length, chosen][:, None]
    host = _to_host(fields)
    return [
        _read_row(
            count,
            {name: values[row] for name, values in host.items()},
            is_drawn=bool(decision.is_drawn) and decision.is_drawn[row],
        )
        for row, count in enumerate(accepted)
    ]


def _to_host(fields: dict[str, Tensor]) -> dict[str, list[list[Any]]]:
    """Return (B, N) tensors as lists: from a device as one copy."""
    if all(value.device.type == "cpu" for value in fields.values()):
        return {name: value.tolist() for name, value in fields.items()}
    return copy_packed(fields)


def copy_packed(fields: dict[str, Tensor]) -> dict[str, list[list[Any]]]:
    """Return (B, N) tensors as lists, moved as one float64 tensor: ids fit exactly below 2^53."""
    widths = [value.shape[1] for value in fields.values()]
    packed = torch.cat([value.to(torch.float64) for value in fields.values()], dim=1).cpu()
    parts = zip(fields.items(), packed.split(widths, dim=1), strict=True)
    return {
        name: (part if value.is_floating_point() else part.to(torch.int64)).tolist()
        for (name, value), part in parts
    }


def _read_row(count: int, own: dict[str, list[Any]], *, is_drawn: bool) -> _Read:
    """Return one row of a round: ``count`` accepted tokens and the next one."""
    drafted, top_ids = own["token_ids"][:count], own["top_ids"][: count + 1]
    next_id = own["drawn_id"][0] if is_drawn else top_ids[count]
    next_logit = own["drawn_logit"][0] if is_drawn else own["top_logits"][count]
    logits = [*own["draft_logits"][:count], next_logit]
    return _Read(
        accepted_length=count,
        length=own["length"][0],
        token_ids=[*drafted, next_id],
        is_relaxed=[
            not is_drawn and token != top for token, top in zip(drafted, top_ids, strict=False)
        ]
        + [False],
        regret=[*own["regret"][:count], 0.0],
        ranks=own["ranks"][:count] if "ranks" in own else None,
        logprobs=[z - log_z for z, log_z in zip(logits, own["normalizers"], strict=False)],
        top_ids=top_ids,
        top_logits=own["top_logits"][: count + 1],
    )


def _normalizer(scores: Scores, num_rows: int) -> Float[Tensor, "B A"]:
    """Return the log-normaliser of each block's first rows: those that may emit a token.

    It costs an exponential per logit, the dearest reduction of all.
    """
    if scores.log_normalizer is not None:
        return scores.log_normalizer[:, :num_rows]
    assert scores.logits is not None, "without a normaliser the logits are kept"
    ids, top = scores.top_id[:, :num_rows], scores.top_logit[:, :num_rows]
    logits = scores.logits[:, :num_rows].flatten(0, 1)
    return log_normalizer(logits, ids.flatten(), top.flatten()).view_as(ids)


def _commit_row(batch: Batch, index: int, read: _Read, scored: Scored) -> Commit:
    row = batch.rows[index]
    end = cut(row, read.token_ids, batch.texts[index])
    logprobs = read.logprobs
    if index in scored.raw_logits:
        logprobs = logprobs_of(scored.raw_logits[index], read.token_ids[: end.num_emitted])
    receipts = tuple(
        TokenReceipt(
            token_id=read.token_ids[position],
            kind=_kind(read, position),
            logprob=logprobs[position],
            top_logprobs=_alternatives(batch, index, position, scored),
            **_price(read, index, position, scored.scores),
        )
        for position in range(end.num_emitted)
    )
    return Commit(
        receipts=receipts,
        record=_record(batch, read, end),
        finish_reason=end.finish_reason,
        stop_match=end.stop_match,
    )


def _price(read: _Read, index: int, position: int, scores: Scores) -> dict[str, Any]:
    """Return what a relaxed token cost and what strict would have said; 0 for any other."""
    if not read.is_relaxed[position]:
        return {"regret": 0.0}
    if read.ranks is not None:
        rank = read.ranks[position]
    else:
        assert scores.logits is not None
        token_id = torch.tensor([read.token_ids[position]], device=scores.logits.device)
        rank = int(rank_of(scores.logits[index, position][None], token_id))
    return {
        "regret": to_nats(nats_to_units(read.regret[position])),
        "rank": rank,
        "choice_id": read.top_ids[position],
    }


def _kind(read: _Read, position: int) -> TokenKind:
    if position < read.accepted_length:
        return TokenKind.RELAXED if read.is_relaxed[position] else TokenKind.ACCEPTED
    if read.length == 0:
        return TokenKind.PLAIN
    return TokenKind.BONUS if read.accepted_length == read.length else TokenKind.RECOVERED


def _alternatives(
    batch: Batch, index: int, position: int, scored: Scored
) -> tuple[tuple[int, float], ...]:
    count = batch.rows[index].settings.top_logprobs
    if not count:
        return ()
    if index in scored.raw_logits:
        return top_logprobs(scored.raw_logits[index][position], count)
    assert scored.scores.logits is not None
    return top_logprobs(scored.scores.logits[index, position], count)


def _record(batch: Batch, read: _Read, end: Cut) -> RoundRecord:
    accepted = min(read.accepted_length, end.num_emitted)
    return RoundRecord(
        drafted=read.length,
        evaluated=read.length,
        accepted=accepted,
        emitted=end.num_emitted,
        relaxed=sum(read.is_relaxed[:accepted]),
        regret_units=sum(
            nats_to_units(regret)
            for regret, relaxed in zip(read.regret[:accepted], read.is_relaxed, strict=False)
            if relaxed
        ),
        batch_size=len(batch),
    )
