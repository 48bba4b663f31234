"""From a verdict to commits: stop handling, receipts, counters."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import islice
from math import isfinite, isnan
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lenity.engine.batch import Batch
from lenity.engine.score import Scored, logprobs_of, top_logprobs
from lenity.engine.stopping import Cut, cut
from lenity.ledger import nats_to_units, to_nats
from lenity.scoring import check_finite, log_normalizer, rank_of
from lenity.sequences import Commit
from lenity.types import Draft, RoundRecord, Scores, TokenKind, TokenReceipt, Verdict


@dataclass(frozen=True, slots=True)
class _Read:
    """One row of a round on the host; ``regret`` in nats, everything up to the next token."""

    accepted_length: int
    length: int
    is_bonus: bool
    token_ids: list[int]
    is_relaxed: list[bool]
    regret: list[float]
    ranks: list[int] | None
    logprobs: list[float]
    top_ids: list[int]
    top_logits: list[float]


def commit_rows(
    batch: Batch, draft: Draft, scored: Scored, verdict: Verdict, rows: SequenceOf[int]
) -> dict[int, Commit]:
    """Return what this round adds to each of ``rows``, by row.

    Nothing is changed before every row was found finite. Raises NonFiniteError. Rows behind a
    rejected draft token decide nothing and may be anything: a grammar may mask all of them.
    """
    is_greedy = all(row.sampling.is_greedy for row in batch.rows)
    reads = _read(draft, scored.scores, verdict, is_greedy=is_greedy)
    check_finite(
        [_weakest(reads[row]) for row in rows],
        [reads[row].accepted_length for row in rows],
        [batch.rows[row].name for row in rows],
    )
    return {row: _commit_row(batch, row, reads[row], scored) for row in rows}


def _weakest(read: _Read) -> list[float]:
    """Return each emitting row's largest logit, or NaN where one is anywhere in the row.

    A NaN may escape the maximum (``sampling.greedy``), never the sum that normalises the row.
    """
    pairs = zip(read.top_logits, read.logprobs, strict=False)
    return [own if isnan(own) and isfinite(top) else top for top, own in pairs]


def _read(draft: Draft, scores: Scores, verdict: Verdict, *, is_greedy: bool) -> list[_Read]:
    """Move what the host needs: accepted lengths, then everything else at once."""
    accepted = verdict.accepted_length.tolist()
    at = verdict.accepted_length[:, None]
    normalizer = _normalizer(scores, max(accepted) + 1)
    next_logit = scores.top_logit.gather(1, at)
    if not is_greedy:
        assert scores.logits is not None, "sampling keeps the logits"
        # a law of NaN draws an id outside the vocabulary; its row is refused before it is used
        chosen = verdict.next_token_id.clamp_max(scores.logits.shape[-1] - 1)
        rows = torch.arange(len(at), device=at.device)
        next_logit = scores.logits[rows, verdict.accepted_length, chosen][:, None]
    width = min(normalizer.shape[1], draft.gamma)
    columns = [
        (next_logit - normalizer.gather(1, at)).to(torch.float64),  # cat promotes the others
        draft.lengths[:, None],
        verdict.is_bonus[:, None],
        verdict.next_token_id[:, None],
        draft.token_ids[:, :width],
        verdict.is_relaxed[:, :width],
        scores.regret[:, :width],
        scores.draft_logit[:, :width] - normalizer[:, :width],
        scores.top_id[:, : width + 1],
        scores.top_logit[:, : width + 1],
    ]
    if scores.draft_rank is not None:
        columns.append(scores.draft_rank[:, :width])
    packed = torch.cat(columns, dim=1).tolist()
    return [_unpack(*pair, width) for pair in zip(accepted, packed, strict=True)]


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


def _unpack(accepted: int, values: list[float], width: int) -> _Read:
    """Return one row of a round; ids fit a float64 exactly (below 2^53)."""
    ahead = iter(values[4:])
    token_ids, relaxed, regret, logprobs = (list(islice(ahead, width)) for _ in range(4))
    top_ids, top_logits = list(islice(ahead, width + 1)), list(islice(ahead, width + 1))
    ranks = list(ahead)
    return _Read(
        accepted_length=accepted,
        length=int(values[1]),
        is_bonus=bool(values[2]),
        token_ids=[*map(int, token_ids[:accepted]), int(values[3])],
        is_relaxed=[*map(bool, relaxed[:accepted]), False],
        regret=[*regret[:accepted], 0.0],
        ranks=[*map(int, ranks[:accepted])] if ranks else None,
        logprobs=[*logprobs[:accepted], values[0]],
        top_ids=[int(i) for i in top_ids[: accepted + 1]],
        top_logits=top_logits,
    )


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
    return TokenKind.BONUS if read.is_bonus else TokenKind.RECOVERED


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
