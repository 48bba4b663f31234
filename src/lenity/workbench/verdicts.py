"""What may be said of a relaxed arm: is it as good, is it faster, does its text still behave.

A quality verdict is about a margin stated beforehand:

    non-inferior    the interval of relaxed - strict lies above -margin
    inferior        it lies below -margin
    inconclusive    it holds -margin; then the verdict says how many prompts it would have taken
"""

from __future__ import annotations

from enum import StrEnum
from math import sqrt
from typing import Literal

import numpy as np
from pydantic import Field

from lenity.workbench.intervals import (
    RESAMPLES,
    Interval,
    bootstrap_mean,
    effective_counts,
    mcnemar_exact,
    noninferiority_p_value,
    paired_difference_interval,
    wilson_interval,
)
from lenity.workbench.pairing import PairedValues, Pairs, mean_logprob, score
from lenity.workbench.power import PromptsNeeded, prompts_needed, prompts_needed_for_mean
from lenity.workbench.records import Frozen
from lenity.workbench.triplets import Triplets

MARGIN = 0.01
"""Of a score from 0 to 1: one percentage point."""
LOGPROB_MARGIN = 0.02
"""Nats a token: the target then finds the text 2 % less likely, token by token."""
MIN_PROMPTS = 20
"""Prompts below which a bootstrap decides nothing: from here on it covers as it says."""
MIN_TRIPLETS = 3
"""Kept triplets below which nothing is called faster: of four that are run, one may drop out."""
SIGNAL_MARGINS = 10
"""Margins that strict must surely have above chance: the margin is then a tenth of it at most.

A target that solves 1 % cannot lose more than 1 point, whatever the policy does to it.
"""


class Quality(StrEnum):
    """A quality verdict."""

    NON_INFERIOR = "non-inferior"
    INFERIOR = "inferior"
    INCONCLUSIVE = "inconclusive"


class Speed(StrEnum):
    """A speed verdict."""

    FASTER = "faster"
    SLOWER = "slower"
    INCONCLUSIVE = "inconclusive"


class QualityVerdict(Frozen):
    """Whether relaxed is as good as strict, on the prompts both answered."""

    measure: Literal["score", "logprob"]
    """The task's score, or the target's mean log-probability of a token, nats"""
    outcome: Quality
    """About the margin"""
    is_worse: bool
    """Whether the interval lies below 0: worse than strict, though perhaps within the margin"""
    margin: float = Field(gt=0)
    """Stated beforehand"""
    interval: Interval
    """Of relaxed - strict, mean over prompts; the verdict rests on it"""
    bootstrap: Interval
    """The same by resampling prompts"""
    strict_mean: float
    """Mean over prompts"""
    relaxed_mean: float
    """Mean over prompts"""
    gained: int | None = None
    """Prompts only relaxed solved; none where scores are partial or averaged over repeats"""
    lost: int | None = None
    """Prompts only strict solved; none likewise"""
    mcnemar_p: float | None = None
    """Exact, two-sided, that gains and losses are equally likely; none likewise"""
    noninferiority_p: float | None = None
    """One-sided, that the difference is -margin or worse; none for log-probabilities"""
    num_prompts: int
    """Prompts in the means"""
    num_pairs: int
    """Requests of either arm behind them"""
    excluded: tuple[str, ...] = ()
    """Pairs left out, each with its reason"""
    needed: PromptsNeeded | None = None
    """Prompts that would have been needed, at no true difference; where inconclusive"""

    @property
    def words(self) -> str:
        """The verdict in a sentence or two."""
        unit = 100 if self.measure == "score" else 1
        name = "pp" if self.measure == "score" else "nats per token"
        low, high = self.interval.low * unit, self.interval.high * unit
        text = (
            f"{self.outcome} at a margin of {self.margin * unit:g} {name}: "
            f"{self.interval.estimate * unit:+.2f} {name} ({low:+.2f} to {high:+.2f}) on "
            f"{self.num_prompts} prompts"
        )
        if self.is_worse:
            text += ", surely worse than strict"
        return f"{text}. {self.needed.words}" if self.needed else f"{text}."


def judge_quality(
    pairs: Pairs,
    rng: np.random.Generator,
    *,
    margin: float = MARGIN,
    resamples: int = RESAMPLES,
) -> QualityVerdict:
    """Return the verdict on the task's scores. Raises ProtocolError below 2 scored prompts.

    Difference: relaxed - strict score, repeats of a prompt averaged, mean over prompts; pairs
    with a failed, interrupted or unscored side are excluded and listed.
    """
    values = pairs.values(score, "score")
    differences = values.differences
    interval = paired_difference_interval(differences)
    flips: dict[str, int | float] = {}
    if np.isin(differences, (-1.0, 0.0, 1.0)).all():
        gained, lost = int((differences > 0).sum()), int((differences < 0).sum())
        flips = {"gained": gained, "lost": lost, "mcnemar_p": mcnemar_exact(gained, lost)}
    return _verdict(
        "score",
        values,
        margin,
        interval,
        bootstrap_mean(differences, rng, resamples=resamples),
        noninferiority_p=noninferiority_p_value(differences, margin),
        **flips,
    )


def judge_logprobs(
    pairs: Pairs,
    rng: np.random.Generator,
    *,
    margin: float = LOGPROB_MARGIN,
    resamples: int = RESAMPLES,
) -> QualityVerdict:
    """Return the verdict on the target's mean log-probability of its texts' tokens, nats.

    For targets too weak for a task, and tasks without a scorer. Repetition raises it, so it counts
    only beside the repetition gates. Difference: relaxed - strict mean log-probability, repeats
    averaged, mean over prompts. Inconclusive below MIN_PROMPTS; raises ProtocolError below 2.
    """
    values = pairs.values(mean_logprob, "log-probability")
    interval = bootstrap_mean(values.differences, rng, resamples=resamples)
    return _verdict("logprob", values, margin, interval, interval)


def _verdict(
    measure: Literal["score", "logprob"],
    values: PairedValues,
    margin: float,
    interval: Interval,
    bootstrap: Interval,
    **tests: float | int,
) -> QualityVerdict:
    outcome = Quality.INCONCLUSIVE
    if measure == "logprob" and len(values.prompts) < MIN_PROMPTS:
        pass  # few equal differences make a bootstrap narrow, not sure
    elif interval.low > -margin:
        outcome = Quality.NON_INFERIOR
    elif interval.high < -margin:
        outcome = Quality.INFERIOR
    is_open = outcome is Quality.INCONCLUSIVE
    return QualityVerdict(
        measure=measure,
        outcome=outcome,
        is_worse=interval.high < 0,
        margin=margin,
        interval=interval,
        bootstrap=bootstrap,
        strict_mean=float(values.strict.mean()),
        relaxed_mean=float(values.relaxed.mean()),
        num_prompts=len(values.prompts),
        num_pairs=values.num_pairs,
        excluded=values.excluded,
        needed=_needed(values.differences, margin, measure) if is_open else None,
        **tests,
    )


def _needed(differences: np.ndarray, margin: float, measure: str) -> PromptsNeeded:
    """Return the prompts needed at the discordance seen, if there is no true difference."""
    if measure == "logprob":
        needed = prompts_needed_for_mean(margin, float(differences.std(ddof=1)))
        return needed.model_copy(update={"prompts": max(needed.prompts or 0, MIN_PROMPTS)})
    # half a flip in one more prompt, so that none seen is not taken for none there
    discordance = float(((differences**2).sum() + 0.5) / (len(differences) + 1))
    if effective_counts(differences)[2] == 1:
        return prompts_needed(margin, discordance)
    return prompts_needed_for_mean(margin, sqrt(discordance))


class SignalCheck(Frozen):
    """Whether strict solves enough of a task for a margin to mean something."""

    has_signal: bool
    strict: Interval
    """Share of prompts strict solves; partial scores are added up and rounded down"""
    chance: float
    """Score of a guess"""
    words: str


def check_signal(pairs: Pairs, *, margin: float = MARGIN, chance: float = 0.0) -> SignalCheck:
    """Return whether the task carries signal: strict surely has 10 margins above chance.

    Where it does not, "non-inferior" would be cheap: judge by judge_logprobs, and say so.
    """
    values = pairs.values(score, "score")
    strict = wilson_interval(int(values.strict.sum() + 1e-9), len(values.strict))
    has_signal = strict.low - chance >= SIGNAL_MARGINS * margin
    words = f"Strict scores {strict.estimate:.1%} ({strict.low:.1%} to {strict.high:.1%}); chance "
    words += f"is {chance:.1%}. "
    if has_signal:
        words += f"A margin of {margin:.1%} means something here."
    else:
        words += (
            f"The target is too weak for this task, or the prompts too few, for a margin of "
            f"{margin:.1%}: there is little to lose. Log-probability is judged instead."
        )
    return SignalCheck(has_signal=has_signal, strict=strict, chance=chance, words=words)


class SpeedVerdict(Frozen):
    """Whether relaxed is faster than strict at fixed work."""

    outcome: Speed
    repeats: Interval | None
    """Of the gain, Student-t over kept triplets; none for fewer than 2"""
    prompts: Interval | None
    """Of the gain, bootstrap over prompts; none where it was not made"""
    triplets: Triplets
    """Kept and dropped"""
    min_triplets: int
    """Kept triplets below which nothing is called faster or slower"""

    @property
    def words(self) -> str:
        """The verdict in a sentence."""
        kept, dropped = len(self.triplets.kept), len(self.triplets.dropped)
        counted = f"{kept} triplets kept, {dropped} dropped"
        if self.repeats is None:
            return f"{self.outcome}: {counted}, at least 2 are needed for an interval."
        gain, half = self.repeats.estimate, self.repeats.half_width
        text = f"{self.outcome}: gain {gain:+.1%} ± {half:.1%} over repeats"
        if self.prompts is not None:
            text += f", {self.prompts.low:+.1%} to {self.prompts.high:+.1%} over prompts"
        short = f" of {self.min_triplets} asked for" if kept < self.min_triplets else ""
        return f"{text} ({counted}{short})."


def judge_speed(
    triplets: Triplets,
    prompts: Interval | None = None,
    *,
    min_triplets: int = MIN_TRIPLETS,
) -> SpeedVerdict:
    """Return the verdict on speed; ``prompts`` is the interval of prompt_gain.

    Faster where the interval over repeats lies above 0, and the one over prompts, if given, too;
    slower where both lie below. Fewer kept triplets than ``min_triplets`` decide nothing.
    """
    repeats = triplets.interval
    known = [interval for interval in (repeats, prompts) if interval is not None]
    outcome = Speed.INCONCLUSIVE
    if repeats is not None and len(triplets.kept) >= min_triplets:
        if all(interval.low > 0 for interval in known):
            outcome = Speed.FASTER
        elif all(interval.high < 0 for interval in known):
            outcome = Speed.SLOWER
    return SpeedVerdict(
        outcome=outcome,
        repeats=repeats,
        prompts=prompts,
        triplets=triplets,
        min_triplets=min_triplets,
    )
