"""How many prompts a verdict needs, and how often it comes out with so many.

Power is that of the very test verdicts use (score_z): the law of gains and losses over n prompts is
enumerated, not approximated, until its window is too wide for that; there the normal law serves.
"""

from __future__ import annotations

from functools import partial
from math import ceil, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field

from lenity.errors import ProtocolError
from lenity.workbench.intervals import CONFIDENCE, normal_quantile, score_z
from lenity.workbench.records import Frozen

POWER = 0.8
"""Chance of a verdict that prompts are counted for."""
MAX_CELLS = 1 << 17
"""Pairs (gained, lost) enumerated at most; beyond, hundreds of each are likely: the normal law."""
WINDOW = 7.0
"""Standard deviations enumerated on either side of the mean: what lies outside is below 1e-9."""


class PromptsNeeded(Frozen):
    """Prompts that a non-inferiority verdict needs, with all that the number rests on."""

    prompts: int | None = Field(default=None, ge=1)
    """Independent prompts; none where no number is enough"""
    margin: float
    """Stated beforehand, in the score's unit"""
    discordance: float
    """Share of prompts assumed to be scored differently; see ``basis``"""
    basis: Literal["discordance", "variance"] = "discordance"
    """What ``discordance`` is: for other than whole flips, the variance of a prompt's difference"""
    difference: float
    """Relaxed - strict assumed to be true"""
    power: float
    """Chance of the verdict non-inferior with so many prompts, if the assumptions are true"""
    confidence: float = CONFIDENCE
    """Of the two-sided interval behind the verdict"""

    @property
    def words(self) -> str:
        """The number and its assumptions, in one sentence."""
        given = (
            f"a margin of {self.margin:.4g} at a difference of {self.difference:.4g} and "
            f"{self.basis} of {self.discordance:.4g}"
        )
        if self.prompts is None:
            return f"No number of prompts shows {given}."
        return f"{self.prompts} prompts show {given} with a power of {self.power:.0%}."


def noninferiority_power(
    prompts: int,
    margin: float,
    discordance: float,
    *,
    difference: float = 0.0,
    confidence: float = CONFIDENCE,
) -> float:
    """Return the chance that n prompts give the verdict non-inferior.

    P(score_z(b, c, n, -margin) > z), (b, c) trinomial with gain and loss rates
    (discordance +- difference) / 2. Raises ProtocolError for rates that are none.
    """
    gain, loss = _flip_rates(margin, discordance, difference)
    z = normal_quantile(confidence)
    if _width(prompts, gain) * _width(prompts, loss) > MAX_CELLS:
        spread = sqrt((discordance - difference**2) / prompts)
        return NormalDist().cdf((difference + margin) / spread - z)
    return _chance_beyond(prompts, margin, gain, loss, z)


def exact_noninferiority_p_value(gained: int, lost: int, prompts: int, margin: float) -> float:
    """Return the exact p-value that gain rate - loss rate is -margin or worse.

    The largest chance of a score statistic at least as high as the one seen, over loss rates on a
    grid from margin to (1 + margin) / 2 with gain rate = loss rate - margin (unconditional test,
    Suissa and Shuster 1991). One of whole flips only: gains, losses and prompts.
    """
    _flip_rates(margin, margin, 0.0)
    seen = float(score_z(gained, lost, prompts, -margin)) - 1e-9  # a tie counts as high
    losses = margin + (1 - margin) / 2 * np.linspace(0.0, 1.0, 33) ** 2
    return max(_chance_beyond(prompts, margin, loss - margin, loss, seen) for loss in losses)


def _flip_rates(margin: float, discordance: float, difference: float) -> tuple[float, float]:
    if not (0 < margin < 1 and abs(difference) <= discordance <= 1):
        raise ProtocolError(
            f"Expected 0 < margin < 1 and |difference| <= discordance <= 1, got margin {margin:g}, "
            f"difference {difference:g}, discordance {discordance:g}. Discordance is the share of "
            f"prompts scored differently, so no difference can be larger."
        )
    return (discordance + difference) / 2, (discordance - difference) / 2


def _window(prompts: int, share: float) -> tuple[int, int]:
    """Return the counts that a binomial with so many prompts takes, all but never left."""
    mean, spread = prompts * share, WINDOW * sqrt(prompts * share * (1 - share)) + WINDOW**2 / 2
    return max(0, int(mean - spread)), min(prompts, ceil(mean + spread)) if share > 0 else 0


def _width(prompts: int, share: float) -> int:
    low, high = _window(prompts, share)
    return high - low + 1


def _chance_beyond(prompts: int, margin: float, gain: float, loss: float, z: float) -> float:
    """Return P(score_z(b, c, prompts, -margin) > z) under gain and loss rates."""
    b, c = (
        np.arange(low, high + 1) for low, high in (_window(prompts, gain), _window(prompts, loss))
    )
    law = _trinomial(prompts, b[:, None], c[None, :], gain, loss)
    return float(law[score_z(b[:, None], c[None, :], prompts, -margin) > z].sum())


def _trinomial(
    prompts: int,
    gained: np.ndarray,
    lost: np.ndarray,
    gain: float,
    loss: float,
) -> Float[np.ndarray, "G L"]:
    """Return the probability of each pair of counts, 0 where they are more than the prompts."""
    log_factorial = np.concatenate([[0.0], np.log(np.arange(1, prompts + 1)).cumsum()])
    rest = prompts - gained - lost
    logs = log_factorial[prompts] - log_factorial[gained] - log_factorial[lost]
    logs = logs - log_factorial[rest.clip(min=0)]
    logs += _xlogy(gained, gain) + _xlogy(lost, loss) + _xlogy(rest, 1 - gain - loss)
    return np.where(rest >= 0, np.exp(np.where(rest >= 0, logs, 0.0)), 0.0)


def _xlogy(count: np.ndarray, share: float) -> np.ndarray:
    """Return count * log(share), 0 where count is 0."""
    if share > 0:
        return np.asarray(count * np.log(share))
    return np.where(count == 0, 0.0, -np.inf)


def prompts_needed(
    margin: float,
    discordance: float,
    *,
    difference: float = 0.0,
    power: float = POWER,
    confidence: float = CONFIDENCE,
) -> PromptsNeeded:
    """Return the prompts that give the verdict non-inferior with at least ``power``.

    Starts from n = (z_confidence + z_power)^2 (discordance - difference^2) / (margin +
    difference)^2 and bisects on noninferiority_power, which rises in n but for small teeth: a
    smaller n may do by luck of rounding, the one returned does. None where difference <= -margin.
    """
    _flip_rates(margin, discordance, difference)
    assumed = PromptsNeeded(
        margin=margin,
        discordance=discordance,
        difference=difference,
        power=0.0,
        confidence=confidence,
    )
    if difference <= -margin:
        return assumed
    reached = partial(
        noninferiority_power,
        margin=margin,
        discordance=discordance,
        difference=difference,
        confidence=confidence,
    )
    z = normal_quantile(confidence) + NormalDist().inv_cdf(power)
    variance = discordance - difference**2
    guess = ceil(z**2 * variance / (margin + difference) ** 2)
    low, high = 0, max(1, guess)
    while reached(high) < power:
        low, high = high, high + ceil(high / 4)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reached(middle) < power else (low, middle)
    return assumed.model_copy(update={"prompts": high, "power": reached(high)})


def prompts_needed_for_mean(
    margin: float,
    spread: float,
    *,
    difference: float = 0.0,
    power: float = POWER,
    confidence: float = CONFIDENCE,
) -> PromptsNeeded:
    """Return the prompts for a score without bounds, such as log-probability, nats a token.

    ``spread`` is the standard deviation of a prompt's difference. n = (z_confidence + z_power)^2
    spread^2 / (margin + difference)^2 + z_confidence^2 / 2, the last for the unknown spread.
    """
    if not (margin > 0 and spread >= 0):
        raise ProtocolError(
            f"Expected margin > 0 and spread >= 0, got {margin:g} and {spread:g}. State a margin "
            f"in the score's unit."
        )
    assumed = PromptsNeeded(
        margin=margin,
        discordance=spread**2,
        basis="variance",
        difference=difference,
        power=0.0,
        confidence=confidence,
    )
    if difference <= -margin:
        return assumed
    z = normal_quantile(confidence)
    effect = (margin + difference) ** 2
    prompts = ceil((z + NormalDist().inv_cdf(power)) ** 2 * spread**2 / effect + z**2 / 2)
    return assumed.model_copy(update={"prompts": prompts, "power": power})
