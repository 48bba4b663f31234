"""Are probabilities what they say: reliability bins, their error, and temperatures that mend it.

Everything is numpy on recorded numbers; no model and no torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lenity.workbench.records import Frozen

NUM_BINS = 15
TEMPERATURES = tuple(float(t) for t in np.geomspace(0.2, 5.0, 81))
"""The grid; 1 is its middle."""
_NEAREST = 1e-6
"""How near to 0 and 1 a confidence may come: logs of blocks keep six digits."""

Floats = NDArray[np.float64]
Numbers = NDArray[Any]


class ReliabilityBin(Frozen):
    """Positions whose score lies in [low, high); the last bin holds 1 too."""

    low: float
    high: float
    count: int = Field(ge=1)
    mean_score: float
    rate: float
    """Share of positives"""


def reliability(
    scores: Numbers, labels: Numbers, num_bins: int = NUM_BINS
) -> tuple[ReliabilityBin, ...]:
    """Return the bins of a reliability plot: what was said against what came true.

    ``scores`` in [0, 1] and 0/1 ``labels`` have the same shape. Empty bins are left out.
    """
    scores, labels = np.ravel(scores).astype(np.float64), np.ravel(labels).astype(np.float64)
    index = np.minimum((scores * num_bins).astype(np.int64), num_bins - 1)
    counts = np.bincount(index, minlength=num_bins)
    said = np.bincount(index, weights=scores, minlength=num_bins)
    came = np.bincount(index, weights=labels, minlength=num_bins)
    return tuple(
        ReliabilityBin(
            low=i / num_bins,
            high=(i + 1) / num_bins,
            count=int(counts[i]),
            mean_score=float(said[i] / counts[i]),
            rate=float(came[i] / counts[i]),
        )
        for i in np.flatnonzero(counts)
    )


def expected_calibration_error(scores: Numbers, labels: Numbers, num_bins: int = NUM_BINS) -> float:
    """Return sum over bins of (count / all) |mean score - share of positives|; 0 for nothing."""
    bins = reliability(scores, labels, num_bins)
    total = sum(b.count for b in bins)
    return sum(b.count * abs(b.mean_score - b.rate) for b in bins) / total if total else 0.0


def sigmoid(logits: Floats) -> Floats:
    """Return 1 / (1 + exp(-x)), without overflow."""
    return np.exp(-np.logaddexp(0.0, -logits))


def fit_temperatures(
    logits: Numbers, lengths: Numbers, accepted: Numbers, grid: tuple[float, ...] = TEMPERATURES
) -> tuple[float, ...]:
    """Return a temperature per position that calibrates the cumulative product of survival.

    Position after position, earlier temperatures fixed, the t of ``grid`` is taken that minimises
    the expected calibration error of prod_{i<=k} sigmoid(logit_i / t_i) against 1{L >= k}, over the
    blocks that have a position k (the DSpark paper's sequential temperature scaling); of equals the
    one nearest to 1. ``logits`` is (N, G), ``lengths`` and ``accepted`` (L) are (N,).
    """
    logits = np.asarray(logits, dtype=np.float64)
    product = np.ones(len(logits))
    found: list[float] = []
    nearest_first = sorted(grid, key=lambda t: (abs(np.log(t)), t))
    for k in range(logits.shape[1]):
        is_there = lengths > k
        if not is_there.any():
            break
        labels = accepted[is_there] > k
        errors = [
            expected_calibration_error(product[is_there] * sigmoid(logits[is_there, k] / t), labels)
            for t in nearest_first
        ]
        best = nearest_first[int(np.argmin(errors))]
        product = product * sigmoid(logits[:, k] / best)
        found.append(best)
    return tuple(found)


class ConfidenceFit(Frozen):
    """Temperatures of a drafter's confidence, and what they mend on blocks they did not see."""

    temperatures: tuple[float, ...]
    """Fitted on every block"""
    blocks: int
    error_before: float
    """Expected calibration error of the product of confidences, over all drafted positions"""
    error_after: float
    """The same, each fold with temperatures fitted on the others"""


def fit_confidence(
    scores: Numbers, lengths: Numbers, accepted: Numbers, folds: Numbers
) -> ConfidenceFit | None:
    """Return the temperatures of confidences in [0, 1], (N, G); None where nothing is drafted.

    ``folds`` (N,) say which blocks are held out together; of one fold alone, it judges itself. None
    too for scores that are all 0: a drafter without a confidence.
    """
    lengths, accepted, folds = (np.asarray(part) for part in (lengths, accepted, folds))
    logits = _logits(scores)
    place = np.arange(logits.shape[1])
    is_drafted = place < lengths[:, None]
    if not is_drafted.any() or not np.any(scores):
        return None
    mended = np.zeros_like(logits)
    for fold in np.unique(folds):
        own = folds == fold
        rest = own if own.all() else ~own
        found = fit_temperatures(logits[rest], lengths[rest], accepted[rest])
        mended[own] = _product(logits[own], found)
    survives = place < accepted[:, None]
    errors = [
        expected_calibration_error(product[is_drafted], survives[is_drafted])
        for product in (_product(logits, (1.0,)), mended)
    ]
    return ConfidenceFit(
        temperatures=fit_temperatures(logits, lengths, accepted),
        blocks=len(lengths),
        error_before=errors[0],
        error_after=errors[1],
    )


def _logits(scores: Numbers) -> Floats:
    """Return the logits of probabilities, kept off 0 and 1, which no temperature would move."""
    clipped: Floats = np.clip(np.asarray(scores, dtype=np.float64), _NEAREST, 1 - _NEAREST)
    logits: Floats = np.log(clipped / (1 - clipped))
    return logits


def _product(logits: Floats, temperatures: tuple[float, ...]) -> Floats:
    """Return prod_{i<=k} sigmoid(logit_i / t_i); positions behind the last take the last.

    Without temperatures they are 1.
    """
    width = logits.shape[1]
    padded = [*temperatures, *[(1.0, *temperatures)[-1]] * width][:width]
    survival: Floats = sigmoid(logits / np.array(padded))
    return survival.cumprod(axis=1)
