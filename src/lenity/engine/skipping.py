"""Verifier skipping in the loop: who skips, what is committed unverified, and what it cost.

Skipped tokens are *pending*: committed, and not in the target's cache. The next target pass feeds
them in front of the new block; the rows before the block's give their regret for free, and it is
charged to the same ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenity.engine.batch import Batch
from lenity.engine.stopping import cut
from lenity.ledger import nats_to_units, to_nats
from lenity.policies.asd import longest_prefix
from lenity.scoring import check_finite, log_normalizer, rank_of, rows_per_chunk
from lenity.sequences import Commit, Sequence
from lenity.skipping.base import SkipContext, SkipRule
from lenity.skipping.guards import objection
from lenity.types import UNITS_PER_NAT, Draft, RoundRecord, TokenKind, TokenReceipt

_UNPRICED = float("nan")


def decide(batch: Batch, draft: Draft) -> list[int]:
    """Return how many draft tokens each row commits without a target pass; 0 verifies."""
    rule = batch.skip
    if rule is None or not draft.gamma:
        return [0] * len(batch)
    context = SkipContext(
        draft=draft,
        num_emitted=[row.num_emitted for row in batch.rows],
        rounds=[len(row.commits) for row in batch.rows],
    )
    wanted = rule.prefix_length(context).tolist()
    token_ids = draft.token_ids.tolist()
    return [
        count if count and _may_skip(batch, index, rule, token_ids[index][:count]) else 0
        for index, count in enumerate(wanted)
    ]


def _may_skip(batch: Batch, index: int, rule: SkipRule, prefix: SequenceOf[int]) -> bool:
    row = batch.rows[index]
    if rule.max_unverified is not None and row.num_pending >= rule.max_unverified:
        return False
    if rule.debt is not None and batch.ledger.spent(index) >= rule.debt * UNITS_PER_NAT:
        return False
    if row.draft_limit < row.settings.gamma or row.is_phase_over:
        return False  # a shortened final block is verified, and all of an ended phase
    forbidden = row.guarded_ids.union(batch.unknown_ids, row.settings.strict_after)
    return not objection(row.token_ids, prefix, forbidden, repetition=rule.repetition_guard)


def commit_skip(batch: Batch, index: int, draft: Draft, count: int, shadow: int | None) -> Commit:
    """Return what a skipping row commits: the prefix, unpriced, and no token of the target."""
    token_ids = draft.token_ids[index, :count].tolist()
    end = cut(batch.rows[index], token_ids, batch.texts[index])
    receipts = tuple(
        TokenReceipt(token_id=token_id, kind=TokenKind.SKIPPED, regret=_UNPRICED, logprob=_UNPRICED)
        for token_id in token_ids[: end.num_emitted]
    )
    record = RoundRecord(
        drafted=int(draft.lengths[index]),
        evaluated=0,
        accepted=0,
        emitted=end.num_emitted,
        relaxed=0,
        regret_units=0,
        target_passes=0,
        skipped=end.num_emitted,
        shadow_accepted=shadow,
        batch_size=len(batch),
    )
    return Commit(
        receipts=receipts,
        record=record,
        finish_reason=end.finish_reason,
        stop_match=end.stop_match,
    )


def only(draft: Draft, rows: SequenceOf[int], batch_size: int) -> Draft:
    """Return the draft with nothing in it for the other rows."""
    if len(rows) == batch_size:
        return draft
    lengths = torch.zeros_like(draft.lengths)
    lengths[list(rows)] = draft.lengths[list(rows)]
    return replace(draft, lengths=lengths)


def shadow_lengths(batch: Batch, draft: Draft, skipped: SequenceOf[int]) -> list[int | None]:
    """Return what strict would accept of each skipping row's draft; None for the others.

    One pass that is never committed: text, counters, ledger and cache lengths do not see it.
    """
    if not any(skipped):
        return [None] * len(batch)
    inputs = with_pending(batch, torch.cat([_anchors(batch), draft.token_ids], dim=1))
    hidden = batch.target.hidden_states(inputs, batch.cache, taps=batch.taps).last
    rows = block_rows(batch, hidden, draft.gamma + 1)[:, :-1]
    logits = batch.target.logits(rows.flatten(0, 1))
    if batch.target.unknown_ids.numel():
        logits = logits.index_fill(-1, batch.target.unknown_ids, -float("inf"))
    is_match = draft.token_ids == logits.max(-1).indices.view_as(draft.token_ids)
    lengths = longest_prefix(is_match, draft.lengths).tolist()
    return [own if count else None for own, count in zip(lengths, skipped, strict=True)]


def _anchors(batch: Batch) -> Int[Tensor, "B 1"]:
    last = [[row.token_ids[-1]] for row in batch.rows]
    return torch.tensor(last, device=batch.target.device)


def with_pending(batch: Batch, block: Int[Tensor, "B R"]) -> Int[Tensor, "B T"]:
    """Return the target's input: each row's pending tokens, then its block, padded on the right."""
    pending = [row.num_pending for row in batch.rows]
    if not any(pending):
        return block
    out = block.new_zeros(len(pending), max(pending) + block.shape[1])
    for index, (row, count) in enumerate(zip(batch.rows, pending, strict=True)):
        ahead = row.token_ids[len(row.token_ids) - 1 - count : -1]
        out[index, :count] = torch.tensor(ahead, device=block.device)
        out[index, count : count + block.shape[1]] = block[index]
    return out


def block_rows(batch: Batch, hidden: Float[Tensor, "B T H"], width: int) -> Float[Tensor, "B R H"]:
    """Return the rows of each block, behind the row's pending tokens."""
    pending = [row.num_pending for row in batch.rows]
    if not any(pending):
        return hidden
    starts = torch.tensor(pending, device=hidden.device)[:, None]
    columns = starts + torch.arange(width, device=hidden.device)
    return hidden.take_along_dim(columns[..., None], dim=1)


def price_pending(
    batch: Batch, index: int, hidden: Float[Tensor, "T H"], *, chunk_bytes: int
) -> tuple[tuple[int, TokenReceipt], ...]:
    """Return the receipts of a row's pending tokens, from the pass that replayed them.

    Row j of the pass scores pending token j. Raises NonFiniteError.
    """
    row = batch.rows[index]
    token_ids = row.token_ids[len(row.token_ids) - row.num_pending :]
    receipts = _price_all(batch, row, hidden, token_ids, chunk_bytes)
    return tuple(enumerate(receipts, start=row.num_emitted - row.num_pending))


def settle(batch: Batch, index: int, commit: Commit, *, chunk_bytes: int) -> Commit:
    """Return the commit of a request that ended on a skipped token, with every price in it.

    No later pass will replay its tokens, so that this one is made for them, and counted.
    """
    row = batch.rows[index]
    pending = row.token_ids[len(row.token_ids) - 1 - row.num_pending :]
    fed = torch.tensor([*pending, *commit.token_ids[:-1]], device=batch.target.device)
    inputs = torch.zeros(len(batch), len(fed), dtype=torch.int64, device=fed.device)
    inputs[index] = fed
    hidden = batch.target.hidden_states(inputs, batch.cache, taps=batch.taps).last[index]
    wanted = [*pending[1:], *commit.token_ids]
    receipts = _price_all(batch, row, hidden, wanted, chunk_bytes)
    earlier = tuple(enumerate(receipts[: row.num_pending], start=row.num_emitted - row.num_pending))
    priced = charge_pending(commit, tuple(enumerate(receipts)))
    return replace(
        priced,
        receipts=tuple(receipts[row.num_pending :]),
        priced=earlier,
        record=replace(priced.record, target_passes=1),
    )


def _price_all(
    batch: Batch,
    row: Sequence,
    hidden: Float[Tensor, "T H"],
    token_ids: list[int],
    chunk_bytes: int,
) -> list[TokenReceipt]:
    chunk_rows = rows_per_chunk(chunk_bytes, batch.target.vocab_size)
    receipts: list[TokenReceipt] = []
    for start in range(0, len(token_ids), chunk_rows):
        stop = min(start + chunk_rows, len(token_ids))
        receipts += _price(batch, row, hidden[start:stop], token_ids[start:stop])
    return receipts


def _price(
    batch: Batch, row: Sequence, hidden: Float[Tensor, "N H"], token_ids: list[int]
) -> Iterator[TokenReceipt]:
    logits = batch.target.logits(hidden)
    if batch.target.unknown_ids.numel():
        logits = logits.index_fill(-1, batch.target.unknown_ids, -float("inf"))
    ids = torch.tensor(token_ids, device=logits.device)
    top, top_id = logits.max(-1)
    top = top.to(torch.float32)
    own = logits.gather(-1, ids[:, None]).squeeze(-1).to(torch.float32)
    logprob = own - log_normalizer(logits, top_id, top)
    check_finite([top.tolist()], [len(token_ids) - 1], [row.name])
    columns = (token_ids, (top - own).tolist(), logprob.tolist(), rank_of(logits, ids).tolist())
    for token_id, regret, own_logprob, rank, choice in zip(*columns, top_id.tolist(), strict=True):
        yield TokenReceipt(
            token_id=token_id,
            kind=TokenKind.SKIPPED,
            regret=to_nats(nats_to_units(regret)),
            logprob=own_logprob,
            rank=rank,
            choice_id=choice,
        )


def charge_pending(commit: Commit, priced: tuple[tuple[int, TokenReceipt], ...]) -> Commit:
    """Return a commit that also carries the price of the tokens its pass replayed."""
    units = sum(nats_to_units(receipt.regret) for _, receipt in priced)
    record = replace(commit.record, regret_units=commit.record.regret_units + units)
    return replace(commit, record=record, priced=priced)
