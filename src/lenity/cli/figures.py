"""Counts behind the printed rates. Counts are added over texts; a rate is made last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lenity.types import UNITS_PER_NAT, Generation

REPEAT_LENGTH = 4
"""Tokens of an n-gram that counts as repeated."""


def repeated_ngrams(token_ids: Sequence[int], n: int = REPEAT_LENGTH) -> tuple[int, int]:
    """Return (n-grams that stood earlier in the same text, n-grams of the text).

    The first occurrence of an n-gram is not counted as repeated; the prompt is not looked at; a
    text shorter than n tokens has no n-grams. Overlapping occurrences count.
    """
    grams = [tuple(token_ids[i : i + n]) for i in range(len(token_ids) - n + 1)]
    return len(grams) - len(set(grams)), len(grams)


def ratio(numerator: float | int, denominator: float | int) -> float:
    """Return the quotient; 0 where there is nothing to divide by."""
    return numerator / denominator if denominator else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counters of several generations, added up.

    ``emitted`` new tokens, the one that ended a request included. ``seconds`` is wall time
    without prefill. ``spent_units`` is what the ledgers were charged (2^-20 nat).
    """

    requests: int = 0
    rounds: int = 0
    target_passes: int = 0
    drafted: int = 0
    evaluated: int = 0
    accepted: int = 0
    emitted: int = 0
    relaxed: int = 0
    skipped: int = 0
    spent_units: int = 0
    repeated: int = 0
    ngrams: int = 0
    seconds: float = 0.0
    draft_seconds: float = 0.0
    target_seconds: float = 0.0

    @classmethod
    def of(cls, generations: Iterable[Generation], seconds: float = 0.0) -> Totals:
        """Add up generations that took ``seconds`` in all."""
        found = list(generations)
        rounds = [record for generation in found for record in generation.rounds]
        grams = [repeated_ngrams(generation.token_ids) for generation in found]
        return cls(
            requests=len(found),
            rounds=len(rounds),
            target_passes=sum(r.target_passes for r in rounds),
            drafted=sum(r.drafted for r in rounds),
            evaluated=sum(r.evaluated for r in rounds),
            accepted=sum(r.accepted for r in rounds),
            emitted=sum(r.emitted for r in rounds),
            relaxed=sum(r.relaxed for r in rounds),
            skipped=sum(r.skipped for r in rounds),
            spent_units=sum(r.regret_units for r in rounds),
            repeated=sum(repeated for repeated, _ in grams),
            ngrams=sum(total for _, total in grams),
            seconds=seconds,
            draft_seconds=sum((r.seconds.draft for r in rounds), 0.0),
            target_seconds=sum((r.seconds.target for r in rounds), 0.0),
        )

    @property
    def tokens_per_target_pass(self) -> float:
        """Emitted tokens / target passes, those over prompts excluded."""
        return ratio(self.emitted, self.target_passes)

    @property
    def acceptance_rate(self) -> float:
        """Accepted draft tokens / evaluated draft tokens."""
        return ratio(self.accepted, self.evaluated)

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens / wall seconds, prefill excluded."""
        return ratio(self.emitted, self.seconds)

    @property
    def repeated_rate(self) -> float:
        """Repeated 4-grams / 4-grams, pooled over the texts."""
        return ratio(self.repeated, self.ngrams)

    @property
    def regret_spent(self) -> float:
        """Nats charged, all requests together."""
        return self.spent_units / UNITS_PER_NAT
