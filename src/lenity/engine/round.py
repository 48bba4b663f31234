"""One round: draft, score, verify, commit, record. No rule and no model has a name here."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lenity.drafters.base import DraftContext, no_draft
from lenity.engine.batch import Batch
from lenity.engine.clock import Clock
from lenity.engine.divergence import compare_laws, wants_divergence
from lenity.engine.record import Decision, commit_rows
from lenity.engine.score import score
from lenity.engine.skipping import (
    block_rows,
    charge_pending,
    commit_skip,
    decide,
    only,
    price_pending,
    settle,
    shadow_lengths,
    with_pending,
)
from lenity.engine.tracing import RoundView
from lenity.errors import ShapeError
from lenity.models.base import HiddenStates
from lenity.policies.base import Policy
from lenity.policies.verify import greedy_length, verify_sampled
from lenity.sampling import Coins, Purpose, probabilities
from lenity.sequences import Commit
from lenity.types import Draft, DraftRecord, Scores

_Rows = TypeVar("_Rows", Draft, DraftRecord, Scores)


@torch.inference_mode()
def run_round(batch: Batch, *, chunk_bytes: int) -> None:
    """Run one round over every row; on an error nothing of it is committed."""
    clock = Clock()
    coins = Coins([row.seed for row in batch.rows], [len(row.token_ids) for row in batch.rows])
    with clock.stage("draft"):
        draft = propose(batch, coins)
    with clock.stage("verify"):
        skipped = decide(batch, draft)
    rows = [index for index, count in enumerate(skipped) if not count]
    shadow = shadow_lengths(batch, draft, skipped) if batch.has_shadow else [None] * len(batch)
    # skipping rows first: what settles one writes behind the cached tokens of all
    commits = _skip_rows(batch, draft, skipped, shadow, clock, chunk_bytes=chunk_bytes)
    hidden: HiddenStates | None = None
    if rows:
        hidden, verified = _verify_rows(batch, draft, rows, coins, clock, chunk_bytes=chunk_bytes)
        commits |= verified
    with clock.stage("commit"):
        _move_caches(batch, commits, hidden)
    seconds = clock.seconds()
    for index, row in enumerate(batch.rows):
        commit = commits[index]
        batch.ledger.charge(index, commit.record.regret_units)
        row.add(replace(commit, record=replace(commit.record, seconds=seconds)))


def _skip_rows(
    batch: Batch,
    draft: Draft,
    counts: SequenceOf[int],
    shadow: SequenceOf[int | None],
    clock: Clock,
    *,
    chunk_bytes: int,
) -> dict[int, Commit]:
    """Commit the rows that skip ``counts[b]`` tokens; one that ends is priced at once."""
    commits: dict[int, Commit] = {}
    for index, count in enumerate(counts):
        if not count:
            continue
        with clock.stage("commit"):
            commits[index] = commit_skip(batch, index, draft, count, shadow[index])
        if commits[index].finish_reason is not None:
            with clock.stage("target"):
                commits[index] = settle(batch, index, commits[index], chunk_bytes=chunk_bytes)
    return commits


def _verify_rows(
    batch: Batch, draft: Draft, rows: list[int], coins: Coins, clock: Clock, *, chunk_bytes: int
) -> tuple[HiddenStates, dict[int, Commit]]:
    """Score, verify and commit these rows of the batch; the others are padding to the pass."""
    draft = only(draft, rows, len(batch))
    with clock.stage("target"):
        inputs = with_pending(batch, block(batch, draft))
        hidden = batch.target.hidden_states(inputs, batch.cache, taps=batch.taps)
        own = block_rows(batch, hidden.last, draft.gamma + 1)
        scored = score(batch, draft, own, clock, chunk_bytes=chunk_bytes)
    with clock.stage("verify"):
        if wants_divergence(batch):
            scored = replace(scored, scores=compare_laws(batch, draft, scored.scores))
        decision = verify(batch, draft, scored.scores, coins)
    with clock.stage("commit"):
        priced = {
            row: price_pending(batch, row, hidden.last[row], chunk_bytes=chunk_bytes)
            for row in rows
            if batch.rows[row].num_pending
        }
        commits = commit_rows(batch, draft, scored, decision, rows)
        for row, receipts in priced.items():
            commits[row] = charge_pending(commits[row], receipts)
    if batch.observer is not None:
        batch.observer.observe(view(batch, draft, scored.scores, commits))
    return hidden, commits


def _move_caches(batch: Batch, commits: Mapping[int, Commit], hidden: HiddenStates | None) -> None:
    """Make what was committed count in the target's cache and in the drafter's.

    A skipping row leaves the target's cache alone; to its drafter the last skipped token is the
    next token, which it has not been fed.
    """
    ordered = [commits[row] for row in range(len(batch))]
    batch.cache.commit(
        [
            len(c.receipts) + row.num_pending if not c.record.skipped else 0
            for row, c in zip(batch.rows, ordered, strict=True)
        ]
    )
    if batch.session is not None:
        accepted = [c.record.accepted + max(c.record.skipped - 1, 0) for c in ordered]
        batch.session.observe(accepted, hidden.features if hidden is not None else None)


def propose(batch: Batch, coins: Coins) -> Draft:
    """Return the drafter's block, or none where nobody may draft."""
    limits = [row.draft_limit for row in batch.rows]
    if batch.session is None or not any(limits):
        return no_draft(len(batch), batch.target.device)
    context = DraftContext(
        token_ids=[row.token_ids for row in batch.rows],
        limits=limits,
        sampling=[row.sampling for row in batch.rows],
        coins=coins,
        wants_logprobs=wants_divergence(batch),
    )
    draft = batch.session.propose(context)
    if draft.gamma > context.gamma or len(draft.lengths) != len(batch):
        raise ShapeError(
            f"Expected a draft of {len(batch)} rows and at most {context.gamma} tokens, got "
            f"{len(draft.lengths)} rows of {draft.gamma}. A drafter must keep to context.limits."
        )
    check_lengths(batch, draft, limits)
    return draft


def check_lengths(batch: Batch, draft: Draft, limits: SequenceOf[int]) -> None:
    """Refuse a row whose draft is longer than its own limit. Raises ShapeError.

    B integers are read from the device; a comparison made there would wait for the same work.
    """
    for row, limit, length in zip(batch.rows, limits, draft.lengths.tolist(), strict=True):
        if not 0 <= length <= min(limit, draft.gamma):
            raise ShapeError(
                f"Expected 0 to {limit} draft tokens for request {row.name}, in a block of "
                f"{draft.gamma}, got {length}. A drafter must keep to context.limits, row by row."
            )


def block(batch: Batch, draft: Draft) -> Int[Tensor, "B R"]:
    """Return the target's input: each row's anchor and its draft tokens."""
    anchors = torch.tensor([[row.token_ids[-1]] for row in batch.rows], device=batch.target.device)
    return torch.cat([anchors, draft.token_ids], dim=1)


def verify(batch: Batch, draft: Draft, scores: Scores, coins: Coins) -> Decision:
    """Return what is accepted of rows that may follow different policies and temperatures."""
    is_strict = all(row.policy.is_strict for row in batch.rows)
    relaxable = None if is_strict else may_relax(batch, draft, scores)
    spent = batch.ledger.spent_units(batch.target.device)
    groups: dict[tuple[Policy, bool], list[int]] = {}
    for index, row in enumerate(batch.rows):
        groups.setdefault((row.policy, row.sampling.is_greedy), []).append(index)
    parts: list[tuple[list[int], Decision]] = []
    for (policy, is_greedy), rows in groups.items():
        is_whole = len(groups) == 1
        own = (draft, scores) if is_whole else (_take(draft, rows), _take(scores, rows))
        if not is_greedy:
            is_open = None if policy.is_strict else ~is_closed(batch, draft)[rows]
            parts.append((rows, _draw_rows(batch, *own, coins, rows, is_open)))
            continue
        chosen = slice(None) if is_whole else rows
        allowed = None if relaxable is None else relaxable[chosen]
        length = greedy_length(policy, *own, spent_units=spent[chosen], may_relax=allowed)
        parts.append((rows, Decision(accepted_length=length)))
    return parts[0][1] if len(parts) == 1 else _merge(parts, draft)


def _draw_rows(
    batch: Batch,
    draft: Draft,
    scores: Scores,
    coins: Coins,
    rows: list[int],
    is_open: Bool[Tensor, "N G"] | None,
) -> Decision:
    """Return what is accepted of rows at a temperature, and the token drawn behind it."""
    assert scores.logits is not None, "sampling needs the logits themselves"
    laws = torch.stack(
        [probabilities(scores.logits[i], batch.rows[row].sampling) for i, row in enumerate(rows)]
    )
    coins = coins.select(rows)
    verdict = verify_sampled(
        batch.rows[rows[0]].policy,
        draft,
        laws,
        accept_coins=coins.uniform(Purpose.ACCEPT, draft.gamma),
        next_coins=coins.uniform(Purpose.NEXT, 1)[:, 0],
        may_relax=is_open,
    )
    return Decision(
        accepted_length=verdict.accepted_length,
        next_token_id=verdict.next_token_id,
        is_drawn=(True,) * len(rows),
    )


def may_relax(batch: Batch, draft: Draft, scores: Scores) -> Bool[Tensor, "B G"]:
    """Return where a mismatch may be considered at all.

    Never where a special or stop token would be relaxed or relaxed away (unless the policy says
    so), and never once an ending id of the relaxed phase is in the text or in the draft before.
    """
    allowed = ~is_guarded(batch, draft, scores)
    for index, row in enumerate(batch.rows):
        if getattr(row.policy, "relax_special", False):
            allowed[index] = True
    can_close = any(row.is_phase_over or row.settings.strict_after for row in batch.rows)
    return allowed & ~is_closed(batch, draft) if can_close else allowed


def is_guarded(batch: Batch, draft: Draft, scores: Scores) -> Bool[Tensor, "B G"]:
    """Return where a special or stop token is drafted, or is the target's choice."""
    top_id = scores.top_id[:, :-1]
    return batch.guarded.gather(1, draft.token_ids) | batch.guarded.gather(1, top_id)


def is_closed(batch: Batch, draft: Draft) -> Bool[Tensor, "B G"]:
    """Return where an ending id of the relaxed phase stands before, in the text or the draft."""
    closed = torch.zeros_like(draft.token_ids, dtype=torch.bool)
    for index, row in enumerate(batch.rows):
        if row.is_phase_over:
            closed[index] = True
        elif row.settings.strict_after:
            ends = torch.tensor(row.settings.strict_after, device=closed.device)
            is_end = torch.isin(draft.token_ids[index], ends).to(torch.int64)
            closed[index] = is_end.cumsum(0) - is_end > 0
    return closed


def view(batch: Batch, draft: Draft, scores: Scores, commits: Mapping[int, Commit]) -> RoundView:
    """Return what an observer may look at."""
    return RoundView(
        rows=batch.rows,
        draft=draft,
        scores=scores,
        is_guarded=is_guarded(batch, draft, scores),
        is_closed=is_closed(batch, draft),
        commits=commits,
    )


def _take(value: _Rows, rows: list[int]) -> _Rows:
    """Return the given rows of every tensor of a Draft, its record or Scores."""
    fields: dict[str, Any] = {f.name: getattr(value, f.name) for f in dataclass_fields(value)}
    taken: dict[str, Any] = {
        name: _take(own, rows) if isinstance(own, DraftRecord) else own[rows]
        for name, own in fields.items()
        if own is not None
    }
    return type(value)(**taken)


def _merge(parts: SequenceOf[tuple[list[int], Decision]], draft: Draft) -> Decision:
    """Return the decisions of groups of rows as one."""
    lengths, next_ids = torch.zeros_like(draft.lengths), torch.zeros_like(draft.lengths)
    drawn: set[int] = set()
    for rows, part in parts:
        lengths[rows] = part.accepted_length
        if part.next_token_id is not None:
            next_ids[rows] = part.next_token_id
            drawn.update(rows)
    return Decision(
        accepted_length=lengths,
        next_token_id=next_ids if drawn else None,
        is_drawn=tuple(row in drawn for row in range(len(lengths))),
    )
