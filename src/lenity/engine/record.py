"""From a verdict to commits: stop handling, receipts, counters. One read from the device."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from lenity.engine.batch import Batch
from lenity.engine.score import Scored, logprobs_of, top_logprobs
from lenity.engine.stopping import Cut, cut
from lenity.ledger import to_nats, to_units
from lenity.scoring import check_finite, rank_of
from lenity.sequences import Commit
from lenity.types import Draft, RoundRecord, Scores, TokenKind, TokenReceipt, Verdict


@dataclass(frozen=True, slots=True)
class _Read:
    """One row of a round on the host. Ids and units fit a float64 exactly (below 2^53)."""

    accepted_length: int
    length: int
    is_bonus: bool
    token_ids: list[int]
    is_relaxed: list[bool]
    regret_units: list[int]
    ranks: list[int] | None
    logprobs: list[float]
    top_ids: list[int]
    top_logits: list[float]


def commit_rows(batch: Batch, draft: Draft, scored: Scored, verdict: Verdict) -> list[Commit]:
    """Return what this round adds to each row.

    Nothing is changed before every row was found finite. Raises NonFiniteError. Rows behind a
    rejected draft token decide nothing and may be anything: a grammar may mask all of them.
    """
    reads = _read(draft, scored.scores, verdict)
    check_finite(
        [read.top_logits for read in reads],
        [read.accepted_length for read in reads],
        [row.name for row in batch.rows],
    )
    return [_commit_row(batch, index, read, scored) for index, read in enumerate(reads)]


def _read(draft: Draft, scores: Scores, verdict: Verdict) -> list[_Read]:
    """Move everything the host needs in one transfer."""
    gamma = draft.gamma
    assert scores.log_normalizer is not None
    next_logit = scores.top_logit.gather(1, verdict.accepted_length[:, None])
    if scores.logits is not None:
        rows = torch.arange(len(next_logit), device=next_logit.device)
        # a law of NaN draws an id outside the vocabulary; its row is refused before it is used
        chosen = verdict.next_token_id.clamp_max(scores.logits.shape[-1] - 1)
        next_logit = scores.logits[rows, verdict.accepted_length, chosen][:, None]
    normalizer = scores.log_normalizer
    next_logprob = next_logit - normalizer.gather(1, verdict.accepted_length[:, None])
    columns: list[Tensor] = [
        verdict.accepted_length[:, None],
        draft.lengths[:, None],
        verdict.is_bonus[:, None],
        verdict.next_token_id[:, None],
        next_logprob,
        draft.token_ids,
        verdict.is_relaxed,
        to_units(scores.regret),
        scores.draft_logit - normalizer[:, :-1],
        scores.draft_rank if scores.draft_rank is not None else scores.regret[:, :0],
        scores.top_id,
        scores.top_logit,
    ]
    has_rank = scores.draft_rank is not None
    packed = torch.cat([column.to(torch.float64) for column in columns], dim=1).tolist()
    return [_unpack(values, gamma, has_rank=has_rank) for values in packed]


def _unpack(values: list[float], gamma: int, *, has_rank: bool) -> _Read:
    ahead = iter(values[5:])
    token_ids, relaxed, units, logprobs = (list(islice(ahead, gamma)) for _ in range(4))
    ranks = list(islice(ahead, gamma if has_rank else 0))
    top_ids, top_logits = list(islice(ahead, gamma + 1)), list(ahead)
    accepted = int(values[0])
    return _Read(
        accepted_length=accepted,
        length=int(values[1]),
        is_bonus=bool(values[2]),
        token_ids=[*map(int, token_ids[:accepted]), int(values[3])],
        is_relaxed=[*map(bool, relaxed[:accepted]), False],
        regret_units=[*map(int, units[:accepted]), 0],
        ranks=[*map(int, ranks[:accepted])] if has_rank else None,
        logprobs=[*logprobs[:accepted], values[4]],
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
        "regret": to_nats(read.regret_units[position]),
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
            units
            for units, relaxed in zip(read.regret_units[:accepted], read.is_relaxed, strict=False)
            if relaxed
        ),
        batch_size=len(batch),
    )
