"""Counters of a run and the rates made from them. Counts travel as sums; rates are made last.

Every rate is one entry of RATES: a numerator and a denominator, both fields of Counts, pooled as
sum / sum over requests, and as the mean of the requests' own ratios. The two differ, and both are
reported under their names. A failed request enters neither; it is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType

import numpy as np
from pydantic import Field

from lenity.errors import ProtocolError
from lenity.workbench.identities import check_identities
from lenity.workbench.records import (
    KIND_LETTERS,
    UNITS_PER_NAT,
    Frozen,
    RoundCounts,
    SampleRecord,
)

COUNTERS_VERSION = 1
"""Of the definitions in this module: arms counted by different ones are not compared."""


class Counts(Frozen):
    """Sums over the requests of an arm; two of them add up to the counts of both.

    The seconds of a round are shared by its batch, so each request carries 1 / batch size of
    them: sums over requests are seconds of the machine.
    """

    requests: int = Field(default=0, ge=0)
    """Requests that ended as they should; all counters below are theirs"""
    failed: int = Field(default=0, ge=0)
    """Requests that did not; nothing else of them is counted"""
    covered: int = Field(default=0, ge=0)
    """Requests with at least one relaxed token"""
    rounds: int = 0
    """Draft, score, verify, commit; a plain or a skipped round is one too"""
    target_passes: int = 0
    """Forwards of the target after the prompt's"""
    draft_passes: int = 0
    """Rounds in which at least one token was drafted (the papers' draft blocks)"""
    drafted: int = 0
    """Tokens proposed"""
    evaluated: int = 0
    """Draft tokens scored by the target"""
    accepted: int = 0
    """Draft tokens kept and emitted, relaxed ones included, the next token and skipped ones not"""
    emitted: int = 0
    """Tokens committed after stop handling"""
    relaxed: int = 0
    """Emitted tokens that strict would have rejected"""
    recovered: int = 0
    """Tokens of the target after a rejection"""
    bonus: int = 0
    """Tokens of the target after a fully accepted draft"""
    skipped: int = 0
    """Tokens emitted without a target pass"""
    plain: int = 0
    """Tokens of the target in rounds without a draft"""
    regret_units: int = 0
    """Charged to the ledgers, in 2^-20 nat"""
    draft_seconds: float = 0.0
    target_seconds: float = 0.0
    verify_seconds: float = 0.0
    commit_seconds: float = 0.0
    prefill_seconds: float = 0.0
    """Of the prompts' passes"""
    wall_seconds: float = 0.0
    """From admission to the last token, each request's divided by the batch it shared, which is
    its mean batch size weighted by time"""

    @property
    def regret(self) -> float:
        """Nats charged to the ledgers."""
        return self.regret_units / UNITS_PER_NAT

    @property
    def decode_seconds(self) -> float:
        """Seconds of the four stages; the prompt's pass and what lies between rounds are not in."""
        stages = (self.draft_seconds, self.target_seconds, self.verify_seconds)
        return sum(stages) + self.commit_seconds

    def __add__(self, other: Counts) -> Counts:
        """Return the counts of both."""
        return Counts(**{n: getattr(self, n) + getattr(other, n) for n in Counts.model_fields})

    @classmethod
    def of(cls, records: Iterable[SampleRecord]) -> Counts:
        """Return the sums over records. Raises ProtocolError where one does not add up."""
        rows = [_count(record) for record in records]
        return cls(**{n: sum(getattr(row, n) for row in rows) for n in cls.model_fields})


def _count(record: SampleRecord) -> Counts:
    """Return the counts of one request."""
    if record.status == "failed":
        return Counts(failed=1)
    check_identities(record)
    rounds = record.rounds
    summed = ("target_passes", "drafted", "evaluated", "accepted", "emitted", "relaxed", "skipped")
    stages = ("draft_seconds", "target_seconds", "verify_seconds", "commit_seconds")
    kinds = ("recovered", "bonus", "plain")
    return Counts(
        requests=1,
        covered=int(bool(record.relaxed)),
        rounds=len(rounds),
        draft_passes=sum(r.drafted > 0 for r in rounds),
        regret_units=sum(r.regret_units for r in rounds),
        prefill_seconds=record.prefill_seconds,
        wall_seconds=wall_share(record),
        **{name: sum(getattr(r, name) for r in rounds) for name in summed},
        **{name: sum(getattr(r, name) / r.batch_size for r in rounds) for name in stages},
        **{name: record.kinds.count(KIND_LETTERS[name]) for name in kinds},
    )


def wall_share(record: SampleRecord) -> float:
    """Return the request's part of the machine's wall seconds: all of them at batch size 1.

    wall * (prefill + sum_rounds(seconds / batch size)) / (prefill + sum_rounds(seconds)): a prompt
    is prefilled alone, a round is shared by its batch.
    """
    full = record.prefill_seconds + sum(r.seconds for r in record.rounds)
    if full <= 0:
        return record.wall_seconds
    own = record.prefill_seconds + sum(r.seconds / r.batch_size for r in record.rounds)
    return record.wall_seconds * own / full


@dataclass(frozen=True, slots=True)
class Ratio:
    """A rate's definition: two fields of Counts, and what is left out."""

    numerator: str
    denominator: str
    excluded: str = ""

    def of(self, counts: Counts) -> float | None:
        """Return numerator / denominator; none where the denominator is 0."""
        below = getattr(counts, self.denominator)
        return getattr(counts, self.numerator) / below if below else None


RATES: Mapping[str, Ratio] = MappingProxyType(
    {
        "acceptance_rate": Ratio("accepted", "evaluated", "draft tokens never scored"),
        "accepted_per_draft": Ratio("accepted", "draft_passes", "the next token; undrafted rounds"),
        "tokens_per_round": Ratio("emitted", "rounds"),
        "tokens_per_target_pass": Ratio("emitted", "target_passes", "the prompt's pass"),
        "target_passes_per_token": Ratio("target_passes", "emitted", "the prompt's pass"),
        "draft_passes_per_token": Ratio("draft_passes", "emitted", "rounds that drafted nothing"),
        "relaxed_share": Ratio("relaxed", "emitted"),
        "skipped_share": Ratio("skipped", "emitted"),
        "bonus_share": Ratio("bonus", "emitted"),
        "coverage": Ratio("covered", "requests", "failed requests"),
        "regret_per_request": Ratio("regret", "requests", "failed requests"),
        "regret_per_relaxed": Ratio("regret", "relaxed"),
        "decode_tokens_per_second": Ratio("emitted", "decode_seconds", "prefill, time off rounds"),
        "tokens_per_second": Ratio("emitted", "wall_seconds"),
        "draft_seconds_per_token": Ratio("draft_seconds", "emitted"),
        "target_seconds_per_token": Ratio("target_seconds", "emitted", "the prompt's pass"),
        "verify_seconds_per_token": Ratio("verify_seconds", "emitted"),
        "commit_seconds_per_token": Ratio("commit_seconds", "emitted"),
    }
)
"""Every rate that is reported, by name. tokens_per_second is end to end, prefill included."""


class Rate(Frozen):
    """One rate of an arm, both ways."""

    name: str
    """Of RATES"""
    numerator: str
    """Field of Counts"""
    denominator: str
    """Field of Counts"""
    pooled: float | None
    """Sum of numerators / sum of denominators; none where the latter is 0"""
    per_request: float | None
    """Mean of the requests' own ratios; none where no request has one"""
    num_requests: int
    """Requests in the per-request mean; those with a denominator of 0 are not"""
    num_failed: int
    """Failed requests, in neither"""


def rate(name: str, records: Iterable[SampleRecord]) -> Rate:
    """Return one rate of RATES over records, pooled and per request."""
    return _rate(name, [Counts.of([record]) for record in records])


def rates(records: Iterable[SampleRecord]) -> dict[str, Rate]:
    """Return every rate of RATES over records, pooled and per request."""
    rows = [Counts.of([record]) for record in records]
    return {name: _rate(name, rows) for name in RATES}


def _rate(name: str, rows: Sequence[Counts]) -> Rate:
    ratio = RATES[name]
    own = [value for row in rows if (value := ratio.of(row)) is not None]
    above = sum(getattr(row, ratio.numerator) for row in rows)
    below = sum(getattr(row, ratio.denominator) for row in rows)
    return Rate(
        name=name,
        numerator=ratio.numerator,
        denominator=ratio.denominator,
        pooled=above / below if below else None,
        per_request=sum(own) / len(own) if own else None,
        num_requests=len(own),
        num_failed=sum(row.failed for row in rows),
    )


def relative_calls(counts: Counts, strict: Counts) -> float | None:
    """Return (target passes / emitted) / (the same of strict); none where strict has none.

    Verifier skipping's relative calls (arXiv 2608.14787); the prompts' passes are excluded.
    """
    return _relative("target_passes_per_token", counts, strict)


def relative_blocks(counts: Counts, strict: Counts) -> float | None:
    """Return (draft passes / emitted) / (the same of strict); none where strict has none.

    Above 1, text is drafted in more pieces than strict needs ("fragmentation").
    """
    return _relative("draft_passes_per_token", counts, strict)


def _relative(name: str, counts: Counts, strict: Counts) -> float | None:
    ours, theirs = RATES[name].of(counts), RATES[name].of(strict)
    return ours / theirs if ours is not None and theirs else None


class PositionCounts(Frozen):
    """Counts of one draft position i, 0 the first, pooled over rounds.

    A round judged i when it evaluated more than i draft tokens and did not end, at a stop among
    the accepted ones, before i was decided.
    """

    judged: int
    """Rounds that judged the position"""
    reached: int
    """Of those, rounds that accepted every draft token before it"""
    accepted: int
    """Of those, rounds that accepted it"""

    @property
    def rate(self) -> float | None:
        """Acceptance rate at i: accepted at i / judged i; none where nothing judged it."""
        return self.accepted / self.judged if self.judged else None

    @property
    def conditional(self) -> float | None:
        """Conditional acceptance at i: accepted at i / reached i; none where nothing did."""
        return self.accepted / self.reached if self.reached else None


def acceptance_by_position(records: Iterable[SampleRecord]) -> tuple[PositionCounts, ...]:
    """Return counts of every position drafted. Failed requests are excluded."""
    rounds = [r for record in records if record.status == "ok" for r in record.rounds]
    # emitted <= accepted: a stop among the accepted tokens ended the request there
    judged = np.array([r.accepted if r.emitted <= r.accepted else r.evaluated for r in rounds])
    accepted = np.array([r.accepted for r in rounds])
    gamma = max((r.evaluated for r in rounds), default=0)
    return tuple(
        PositionCounts(
            judged=int((judged > i).sum()),
            reached=int(((judged > i) & (accepted >= i)).sum()),
            accepted=int(((judged > i) & (accepted > i)).sum()),
        )
        for i in range(gamma)
    )


class Agreement(Frozen):
    """How far committed drafts agree with strict, over rounds that commit a draft token.

    K is how many draft tokens a round committed, L how many strict would have.
    """

    rounds: int = 0
    """Rounds with K >= 1"""
    kept: int = 0
    """Sum of K"""
    agreed: int = 0
    """Sum of min(K, L)"""
    full: int = 0
    """Rounds with K <= L"""

    @property
    def strict_token(self) -> float | None:
        """Sum of min(K, L) / sum of K; none where nothing was committed."""
        return self.agreed / self.kept if self.kept else None

    @property
    def full_prefix(self) -> float | None:
        """Rounds with K <= L / rounds; rounds without a committed draft token are excluded."""
        return self.full / self.rounds if self.rounds else None

    @classmethod
    def of_lengths(cls, kept: Sequence[int], strict: Sequence[int]) -> Agreement:
        """Return the agreement of K and L, round by round. Raises ProtocolError."""
        if len(kept) != len(strict):
            raise ProtocolError(
                f"Expected one strict length for each kept one, got {len(strict)} and "
                f"{len(kept)}. Give both for every round, in the same order."
            )
        pairs = [(k, length) for k, length in zip(kept, strict, strict=True) if k > 0]
        return cls(
            rounds=len(pairs),
            kept=sum(k for k, _ in pairs),
            agreed=sum(min(pair) for pair in pairs),
            full=sum(k <= length for k, length in pairs),
        )


def agreement_lengths(record: SampleRecord) -> tuple[list[int], list[int]]:
    """Return K and L of every round of a request.

    Where the target looked, L is read off the same pass: draft tokens before the first relaxed one.
    Where tokens were skipped L is what the shadow verifier saw. Raises ProtocolError without one.
    """
    kept, strict, start = [], [], 0
    for counts in record.rounds:
        prefix = record.kinds[start : start + counts.accepted]
        relaxed = (prefix + KIND_LETTERS["relaxed"]).index(KIND_LETTERS["relaxed"])
        kept.append(counts.skipped or len(prefix))
        strict.append(_shadow_length(record, counts) if counts.skipped else relaxed)
        start += counts.emitted
    return kept, strict


def _shadow_length(record: SampleRecord, counts: RoundCounts) -> int:
    if counts.shadow_accepted is None:
        raise ProtocolError(
            f"{record.item_id}: expected what strict would have accepted in every round, got "
            f"skipped tokens that no shadow verifier looked at. Run it with the shadow verifier."
        )
    return counts.shadow_accepted


class RegretHistogram(Frozen):
    """Requests by the nats each gave away, over [0, budget]; failed ones are excluded."""

    edges: tuple[float, ...]
    """Of the bins, nats; the last bin holds its upper edge"""
    counts: tuple[int, ...]
    """Requests in each bin"""
    num_over: int
    """Requests that gave away more than the budget, in no bin"""


def regret_histogram(
    records: Iterable[SampleRecord], budget: float | None = None, bins: int = 10
) -> RegretHistogram:
    """Return requests by regret spent; without a finite budget bins end at the largest."""
    spent = np.array([record.regret_spent for record in records if record.status == "ok"])
    is_bounded = budget is not None and isfinite(budget)
    top = budget if budget is not None and is_bounded else float(spent.max(initial=0.0))
    is_over = spent > top
    counts, edges = np.histogram(spent[~is_over], bins=bins, range=(0.0, top or 1.0))
    return RegretHistogram(
        edges=tuple(edges.tolist()), counts=tuple(counts.tolist()), num_over=int(is_over.sum())
    )
