"""Acceptance by position, from the counters of rounds; what its shape says about a drafter.

Position i of a draft, 0 the first. Of the rounds that are looked at:

    judged i        evaluated > i, and the request did not end (at a stop) before i was decided
    reached i       judged i, and every draft token before i was accepted
    acceptance rate at i          accepted at i / judged i
    conditional acceptance at i   accepted at i / reached i

The first mixes a position's own quality with that of all before it; only the second compares
positions, drafters and draft lengths. A drafter that is wired up wrongly shows in its shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from statistics import NormalDist

from lenity.types import Generation, RoundRecord

CONFIDENCE = 0.95
"""Of the intervals that are printed."""
ALARM = 0.01
"""At most this chance that a drafter without a fault is given one of the findings; see diagnose."""
CLIFF_RATIO = 0.5
"""A fall of conditional acceptance to less than this share of the position before is a cliff.

Healthy heads fall slowly (a Medusa head keeps about 0.8 of the one before, a chain more); a wrong
window, slot or fed-back state leaves next to nothing.
"""
LOW_FIRST = 0.2
"""Conditional acceptance at position 0 of a drafter that does not see what it was trained on.

A wrong tap was reported to leave 0.10 of 0.45; guessing gives 1 / vocabulary.
"""
LOW = 0.4
"""Conditional acceptance over all positions below which a draft is hardly worth its cost."""
FEW_ROUNDS = 20
"""Rounds that reached position 0 below which nothing is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Counts of one draft position; see the module for their definitions."""

    judged: int
    reached: int
    accepted: int

    @property
    def rate(self) -> float:
        """Accepted / judged; 0 where nothing was judged."""
        return self.accepted / self.judged if self.judged else 0.0

    @property
    def conditional(self) -> float:
        """Accepted / reached; 0 where nothing reached it."""
        return self.accepted / self.reached if self.reached else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the conditional acceptance."""
        return wilson_interval(self.accepted, self.reached)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Counts of all positions that a drafter proposed, pooled over rounds.

    ``rounds`` counts every round, ``drafting_rounds`` those with a draft token; the others cost a
    plain target pass.
    """

    positions: tuple[Position, ...]
    rounds: int
    drafting_rounds: int

    @classmethod
    def of(cls, records: Iterable[RoundRecord]) -> Acceptance:
        """Count positions over rounds."""
        rounds = list(records)
        gamma = max((r.evaluated for r in rounds), default=0)
        return cls(
            positions=tuple(_position(rounds, i) for i in range(gamma)),
            rounds=len(rounds),
            drafting_rounds=sum(r.evaluated > 0 for r in rounds),
        )

    @classmethod
    def of_generations(cls, generations: Iterable[Generation]) -> Acceptance:
        """Count positions over the rounds of requests, pooled."""
        return cls.of(record for made in generations for record in made.rounds)

    @property
    def conditional(self) -> tuple[float, ...]:
        """Conditional acceptance of every position."""
        return tuple(position.conditional for position in self.positions)

    @property
    def drafting_share(self) -> float:
        """Rounds with a draft token / rounds; 0 when nothing ran."""
        return self.drafting_rounds / self.rounds if self.rounds else 0.0


def _position(rounds: Sequence[RoundRecord], i: int) -> Position:
    judged = [r for r in rounds if r.evaluated > i and i < _num_judged(r)]
    return Position(
        judged=len(judged),
        reached=sum(r.accepted >= i for r in judged),
        accepted=sum(r.accepted > i for r in judged),
    )


def _num_judged(record: RoundRecord) -> int:
    """Return how many draft positions of a round were decided.

    A round that emitted nothing behind its accepted tokens was ended by a stop among them: what
    the rule would have said of the next position is not known.
    """
    is_cut = record.emitted <= record.accepted
    return record.accepted if is_cut else record.evaluated


def wilson_interval(
    successes: int, trials: int, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the two-sided Wilson score interval of a proportion; (0, 1) without trials.

    z = quantile of (1 + confidence) / 2; center (p + z²/2n) / (1 + z²/n) (Wilson 1927).
    """
    if not trials:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, weight = successes / trials, z * z / trials
    center = (share + weight / 2) / (1 + weight)
    half = z * sqrt(share * (1 - share) / trials + weight / (4 * trials)) / (1 + weight)
    return max(0.0, center - half), min(1.0, center + half)


class Shape(StrEnum):
    """What the acceptance of a drafter looks like."""

    FINE = "fine"
    NO_DRAFT = "no draft"
    TOO_FEW = "too few rounds"
    FIRST_LOW = "low from the first position"
    CLIFF = "cliff"
    FLAT_LOW = "low throughout"

    @property
    def is_wrong(self) -> bool:
        """Whether something is likely to be wrong with the drafter."""
        return self not in (Shape.FINE, Shape.TOO_FEW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The shape found, in words, with the causes that usually make it, likely ones first.

    ``position`` is where a cliff is, None for every other shape.
    """

    shape: Shape
    words: str
    causes: tuple[str, ...] = ()
    position: int | None = None


def find_cliff(acceptance: Acceptance) -> int | None:
    """Return the first position whose conditional acceptance falls off a cliff, or None.

    Position i >= 1 is one where, at a confidence shared among the positions compared,

        upper bound of conditional i  <  CLIFF_RATIO * lower bound of conditional i - 1.

    False alarms: where the true conditional acceptance never falls below CLIFF_RATIO of the
    position before, one of the two bounds has to be wrong for an alarm. Each is, with probability
    ALARM / (2 * pairs), so that a curve of any length raises one with probability at most ALARM
    (as far as Wilson's bounds hold their level), and a curve that falls less far almost never.
    """
    positions = acceptance.positions
    pairs = len(positions) - 1
    if pairs < 1:
        return None
    for i in range(1, len(positions)):
        _, upper = _bounds(positions[i], tests=2 * pairs)
        lower, _ = _bounds(positions[i - 1], tests=2 * pairs)
        if upper < CLIFF_RATIO * lower:
            return i
    return None


def _bounds(position: Position, tests: int) -> tuple[float, float]:
    """Return one-sided bounds, each wrong with probability ALARM / tests."""
    confidence = 1 - 2 * ALARM / tests
    return wilson_interval(position.accepted, position.reached, confidence)


def diagnose(acceptance: Acceptance) -> Diagnosis:
    """Return what the shape of an acceptance curve says, and the likely causes.

    The first that applies: nothing drafted; fewer than FEW_ROUNDS rounds with a draft; position 0
    surely below LOW_FIRST; a cliff (see find_cliff); all positions together surely below LOW.
    "Surely" is by a bound that is wrong with probability ALARM, rounds taken as independent, so
    noise alone seldom makes a finding; what lies between two levels is called fine.
    """
    if not acceptance.drafting_rounds:
        return Diagnosis(
            shape=Shape.NO_DRAFT,
            words=f"Nothing was drafted in {acceptance.rounds} rounds.",
            causes=_NO_DRAFT,
        )
    first = acceptance.positions[0]
    if first.reached < FEW_ROUNDS:
        return Diagnosis(
            shape=Shape.TOO_FEW,
            words=f"Only {first.reached} rounds had a draft to judge, too few to say anything; "
            f"take more prompts or tokens.",
        )
    cliff = find_cliff(acceptance)
    reached = sum(position.reached for position in acceptance.positions)
    accepted = sum(position.accepted for position in acceptance.positions)
    if _bounds(first, tests=1)[1] < LOW_FIRST:
        return Diagnosis(
            shape=Shape.FIRST_LOW,
            words=f"Of the first draft tokens {first.conditional:.0%} are accepted: the drafter "
            f"does not see what it was trained on.",
            causes=_FIRST_LOW,
        )
    if cliff is not None:
        before, here = acceptance.positions[cliff - 1], acceptance.positions[cliff]
        return Diagnosis(
            shape=Shape.CLIFF,
            words=f"Conditional acceptance falls from {before.conditional:.0%} at position "
            f"{cliff - 1} to {here.conditional:.0%} at position {cliff}: a cliff, which training "
            f"does not make.",
            causes=_CLIFF_AT_1 if cliff == 1 else _CLIFF,
            position=cliff,
        )
    if wilson_interval(accepted, reached, 1 - 2 * ALARM)[1] < LOW:
        return Diagnosis(
            shape=Shape.FLAT_LOW,
            words=f"Of the draft tokens that could count {accepted / reached:.0%} are accepted, "
            f"without a break at any position.",
            causes=_FLAT_LOW,
        )
    return Diagnosis(
        shape=Shape.FINE,
        words=f"Acceptance looks right: {first.conditional:.0%} of the first draft tokens, no "
        f"cliff behind them.",
    )


_NO_DRAFT = (
    "the drafter had nothing to say: an n-gram drafter without repetition, a confidence threshold "
    "that cuts everything",
    "its positions end before the prompt does (max_positions)",
)
_FIRST_LOW = (
    "other layers of the target are read than in training (taps, often off by one)",
    "the drafter was trained for another target, or for another fine-tune of it",
    "another chat template or system prompt than in training, thinking turned on or off",
    "slots taken for another convention: fill_in for anchor_first or the reverse",
    "a vocabulary map that belongs to another checkpoint",
)
_CLIFF_AT_1 = (
    "what is fed back from one token to the next is wrong: normed or not (norm_output)",
    "slots taken for another convention: fill_in for anchor_first or the reverse",
    "a sliding window or a causal mask inside the block that training did not have",
)
_CLIFF = (
    "a sliding window of the drafter's that is read wrongly, or run as full attention",
    "more tokens per round than the drafter was trained for (block_size, unrolled steps, heads)",
    "the end of the drafter's positions (max_positions)",
)
_FLAT_LOW = (
    "the drafter is undertrained, or too small",
    "the prompts are of a language or kind that training did not have",
    "another chat template or system prompt than in training, thinking turned on or off",
    "a target in another precision or quantisation than in training",
    "taps or slots read wrongly, where the text is easy enough to draft without them",
)
