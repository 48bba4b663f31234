"""Gates a relaxed arm has to pass whatever its speed, and the overall verdict.

Quality alone misses the ways in which relaxed text goes wrong: it runs long, is cut off, goes in
circles (and is then easy to draft). A gate compares such a measure with strict's. It fails where
the change is beyond a stated bound and not chance; beyond the bound but perhaps chance is
undecided, and an arm with an undecided gate is not accepted either.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
from pydantic import Field

from lenity.workbench.intervals import (
    RESAMPLES,
    Interval,
    bootstrap_ratio,
    paired_difference_interval,
)
from lenity.workbench.pairing import Measure, Pairs
from lenity.workbench.records import Frozen
from lenity.workbench.repetition import is_truncated, longest_loop_share, repeated_ngram_rate
from lenity.workbench.verdicts import Quality, QualityVerdict, Speed, SpeedVerdict

GATE_CONFIDENCE = 0.998
"""Of a text gate's interval: four gates at 95 % would by themselves reject more harmless arms by
chance than the 5 % of the overall verdict (simulated in tests/workbench/test_statistics.py)."""


class Bounds(Frozen):
    """What relaxed text may differ by from strict's; stated before anything is measured."""

    min_length_ratio: float = Field(default=0.9, gt=0)
    """Mean new tokens, relaxed / strict, at least"""
    max_length_ratio: float = Field(default=1.1, gt=0)
    """Mean new tokens, relaxed / strict, at most"""
    max_truncation_rise: float = Field(default=0.02, ge=0)
    """Share of truncated requests, relaxed - strict, at most"""
    max_repetition_rise: float = Field(default=0.02, ge=0)
    """Mean repeated 4-gram rate, relaxed - strict, at most"""
    max_loop_rise: float = Field(default=0.02, ge=0)
    """Mean share of tokens in the longest loop, relaxed - strict, at most"""


Outcome = Literal["holds", "fails", "undecided"]


class Gate(Frozen):
    """One gate and what was found at it."""

    name: str
    outcome: Outcome
    words: str
    """What was found and what was allowed"""
    interval: Interval | None = None
    """Of the measure; none where a verdict has none"""


def text_gates(
    pairs: Pairs,
    rng: np.random.Generator,
    *,
    bounds: Bounds | None = None,
    resamples: int = RESAMPLES,
) -> tuple[Gate, ...]:
    """Return the gates on length, truncation and repetition of natural-EOS texts.

    Each measure is averaged over a prompt's repeats, then over prompts; pairs with a failed or
    interrupted side are excluded. A text too short to repeat itself has not. Raises ProtocolError
    below 2 prompts.
    """
    allowed = bounds or Bounds()
    measures: tuple[tuple[str, Measure, float], ...] = (
        ("truncation", lambda r: float(is_truncated(r)), allowed.max_truncation_rise),
        (
            "repetition",
            lambda r: repeated_ngram_rate(r.token_ids) or 0.0,
            allowed.max_repetition_rise,
        ),
        ("loop", lambda r: longest_loop_share(r.token_ids) or 0.0, allowed.max_loop_rise),
    )
    rises = [
        _rise_gate(name, pairs.values(measure, name).differences, bound)
        for name, measure, bound in measures
    ]
    return _length_gate(pairs, allowed, rng, resamples), *rises


def _length_gate(pairs: Pairs, bounds: Bounds, rng: np.random.Generator, resamples: int) -> Gate:
    values = pairs.values(lambda record: float(len(record.token_ids)), "length")
    interval = bootstrap_ratio(
        values.relaxed, values.strict, rng, confidence=GATE_CONFIDENCE, resamples=resamples
    )
    low, high = bounds.min_length_ratio, bounds.max_length_ratio
    return Gate(
        name="length",
        outcome=_outcome(low <= interval.estimate <= high, interval, unchanged=1.0),
        words=f"{interval.estimate:.3f} of strict's tokens, {low:g} to {high:g} allowed",
        interval=interval,
    )


def _rise_gate(name: str, differences: np.ndarray, bound: float) -> Gate:
    # measures from 0 to 1 that differ in few prompts: a bootstrap of those is too narrow
    interval = paired_difference_interval(differences, GATE_CONFIDENCE)
    return Gate(
        name=name,
        outcome=_outcome(interval.estimate <= bound, interval, unchanged=0.0),
        words=f"{interval.estimate:+.3f} against strict, {bound:+g} allowed",
        interval=interval,
    )


def _outcome(is_within: bool, interval: Interval, unchanged: float) -> Outcome:
    """Return holds within the bound; beyond it, fails unless the interval holds no change."""
    if is_within:
        return "holds"
    return "undecided" if interval.low <= unchanged <= interval.high else "fails"


class Decision(Frozen):
    """The overall verdict on a relaxed arm."""

    outcome: Literal["accepted", "rejected", "inconclusive"]
    """Accepted: every gate holds. Rejected: one fails"""
    gates: tuple[Gate, ...]
    """Quality first, the text's gates, then speed"""

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the gates that fail."""
        return tuple(gate.name for gate in self.gates if gate.outcome == "fails")

    @property
    def undecided(self) -> tuple[str, ...]:
        """Names of the gates that more prompts or repeats would have to decide."""
        return tuple(gate.name for gate in self.gates if gate.outcome == "undecided")

    @property
    def words(self) -> str:
        """The verdict in a sentence, with the gates that made it."""
        decisive = {"accepted": "holds", "rejected": "fails", "inconclusive": "undecided"}
        told = [g for g in self.gates if g.outcome == decisive[self.outcome]]
        if self.outcome == "accepted":
            return f"accepted: {', '.join(gate.name for gate in told)} hold."
        verb = decisive[self.outcome]
        return f"{self.outcome}: " + "; ".join(f"{g.name} {verb} ({g.words})" for g in told) + "."


def decide(
    quality: QualityVerdict,
    gates: Iterable[Gate],
    speed: SpeedVerdict | None = None,
) -> Decision:
    """Return the overall verdict: rejected if a gate fails, whatever the speed.

    Quality fails where inferior, speed where slower; inconclusive ones are undecided. Without
    ``speed`` (a served engine, judged by its answers) quality and text decide alone.
    """
    every = [quality_gate(quality), *gates]
    if speed is not None:
        every.append(speed_gate(speed))
    outcomes = {gate.outcome for gate in every}
    outcome: Literal["accepted", "rejected", "inconclusive"] = "accepted"
    if "fails" in outcomes:
        outcome = "rejected"
    elif "undecided" in outcomes:
        outcome = "inconclusive"
    return Decision(outcome=outcome, gates=tuple(every))


def quality_gate(verdict: QualityVerdict) -> Gate:
    """Return the gate that a quality verdict stands for."""
    outcomes: dict[Quality, Outcome] = {
        Quality.NON_INFERIOR: "holds",
        Quality.INFERIOR: "fails",
        Quality.INCONCLUSIVE: "undecided",
    }
    return Gate(
        name="quality",
        outcome=outcomes[verdict.outcome],
        words=verdict.words.removesuffix("."),
        interval=verdict.interval,
    )


def speed_gate(verdict: SpeedVerdict) -> Gate:
    """Return the gate that a speed verdict stands for."""
    outcomes: dict[Speed, Outcome] = {
        Speed.FASTER: "holds",
        Speed.SLOWER: "fails",
        Speed.INCONCLUSIVE: "undecided",
    }
    return Gate(
        name="speed",
        outcome=outcomes[verdict.outcome],
        words=verdict.words.removesuffix("."),
        interval=verdict.repeats,
    )
