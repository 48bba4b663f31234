"""Watching a run: what an observer sees of every verified round, and one that writes it down.

A trace holds what a policy reads of a round (reductions, never logits) and what became of it, on
the host, so that any greedy policy can be judged on it later without a model. Nothing of this runs
unless somebody watches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool
from torch import Tensor

from lenity.policies.divergence import DIVERGENCES
from lenity.scoring import rank_of
from lenity.sequences import Commit
from lenity.sequences import Sequence as Row
from lenity.types import Draft, Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """One round after its verdict and before its tokens are added; to be read only.

    ``commits`` holds the rows the target verified, by index; the others have no scores.
    ``is_guarded`` marks positions where a special or stop token would be relaxed or relaxed away,
    ``is_closed`` those behind the end of a relaxed phase.
    """

    rows: Sequence[Row]
    draft: Draft
    scores: Scores
    is_guarded: Bool[Tensor, "B G"]
    is_closed: Bool[Tensor, "B G"]
    commits: Mapping[int, Commit]


@runtime_checkable
class Observer(Protocol):
    """Whoever watches a call of ``generate``."""

    wants_divergence: bool
    """Whether the laws of target and drafter are compared for it, in every round."""

    def observe(self, view: RoundView) -> None:
        """Look at a round; what is raised here ends the call."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrace:
    """One request's round on the host. K draft tokens; logits and regrets are float32 values.

    ``start`` counts the committed tokens before the round, prompt included. ``guarded`` and
    ``closed`` are draft positions as in RoundView; ``ending`` those whose draft token ends the
    request, where it is kept (the position of a stop string's end is known for what was emitted
    only). ``accepted`` and ``emitted`` count after stop handling, as in RoundRecord. The optional
    fields are None where they could not be had; ``divergence`` has a row per name of DIVERGENCES.
    """

    start: int
    draft_ids: tuple[int, ...]
    top_ids: tuple[int, ...]
    top_logit: tuple[float, ...]
    draft_logit: tuple[float, ...]
    regret: tuple[float, ...]
    guarded: tuple[int, ...]
    closed: tuple[int, ...]
    ending: tuple[int, ...]
    accepted: int
    emitted: int
    second_logit: tuple[float, ...] | None = None
    draft_rank: tuple[int, ...] | None = None
    divergence: Mapping[str, tuple[float, ...]] | None = None


class Tracer:
    """An observer that keeps a RoundTrace of every verified round, by request.

    ``divergence`` compares the laws of target and drafter as well, which costs a few passes over
    the vocabulary a round.
    """

    def __init__(self, *, divergence: bool = False) -> None:
        """Start without rounds."""
        self.wants_divergence = divergence
        self._rounds: dict[int, list[RoundTrace]] = {}

    def observe(self, view: RoundView) -> None:
        """Keep the round of every verified row."""
        scores = _with_details(view.draft, view.scores)
        for index, commit in view.commits.items():
            trace = _trace(view, scores, index, commit)
            self._rounds.setdefault(view.rows[index].index, []).append(trace)

    def take(self) -> dict[int, tuple[RoundTrace, ...]]:
        """Return the rounds of every request, by its index in the call, and forget them."""
        taken = {index: tuple(rounds) for index, rounds in sorted(self._rounds.items())}
        self._rounds = {}
        return taken


def _with_details(draft: Draft, scores: Scores) -> dict[str, Tensor | None]:
    """Return second logit, rank and divergence; None where neither they nor logits were kept."""
    second, rank = scores.second_logit, scores.draft_rank
    if scores.logits is not None:
        if second is None:
            second = scores.logits.topk(2, dim=-1).values[..., 1].to(torch.float32)
        if rank is None:
            drafted = scores.logits[:, :-1].flatten(0, 1)
            rank = rank_of(drafted, draft.token_ids.flatten()).view_as(draft.token_ids)
    return {"second_logit": second, "draft_rank": rank, "divergence": scores.divergence}


def _trace(
    view: RoundView, details: Mapping[str, Tensor | None], index: int, commit: Commit
) -> RoundTrace:
    row, scores = view.rows[index], view.scores
    length = int(view.draft.lengths[index])
    draft_ids = view.draft.token_ids[index, :length].tolist()
    return RoundTrace(
        start=len(row.token_ids),
        draft_ids=tuple(draft_ids),
        top_ids=tuple(scores.top_id[index, : length + 1].tolist()),
        top_logit=tuple(scores.top_logit[index, : length + 1].tolist()),
        draft_logit=tuple(scores.draft_logit[index, :length].tolist()),
        regret=tuple(scores.regret[index, :length].tolist()),
        guarded=_positions(view.is_guarded[index, :length]),
        closed=_positions(view.is_closed[index, :length]),
        ending=_endings(row, draft_ids, commit),
        accepted=commit.record.accepted,
        emitted=commit.record.emitted,
        second_logit=_values(details["second_logit"], index, length + 1),
        draft_rank=_values(details["draft_rank"], index, length),
        divergence=_divergence(details["divergence"], index, length),
    )


def _positions(marks: Bool[Tensor, " K"]) -> tuple[int, ...]:
    return tuple(marks.nonzero().flatten().tolist())


def _endings(row: Row, draft_ids: Sequence[int], commit: Commit) -> tuple[int, ...]:
    """Return the draft positions that end the request if they are kept."""
    found = {i for i, token_id in enumerate(draft_ids) if token_id in row.ending_ids}
    if commit.record.emitted == commit.record.accepted:
        found.add(commit.record.accepted - 1)  # a stop string inside the draft, or an id again
    return tuple(sorted(found))


def _values(values: Tensor | None, index: int, count: int) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values[index, :count].tolist())


def _divergence(
    values: Tensor | None, index: int, length: int
) -> dict[str, tuple[float, ...]] | None:
    if values is None:
        return None
    found = values[index, :length].tolist()
    return {name: tuple(row[k] for row in found) for k, name in enumerate(DIVERGENCES)}
