"""Diagnostics of verifier skipping on logged blocks (arXiv 2608.14787): no model, no torch.

N blocks of at most G positions; ``accepted`` is L, the draft tokens strict accepts; position j runs
from 1 and survives where L >= j. A *pair* is a position's (score, survival). What counts at
position j: every block that has it, and for conditional survival those with L >= j - 1 too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from lenity.errors import ProtocolError, RunDirError
from lenity.registry import explain_file
from lenity.workbench.calibration import Floats
from lenity.workbench.records import Frozen

Signal = Literal["raw", "marginal", "conditional"]

LEAST = 1e-7
"""Scores are kept this far from 0 and 1 in the cross-entropy, so that one position cannot be all of
it."""
MIN_OF_EACH = 10
"""Positives and negatives a position needs for an AUROC."""
NUM_FOLDS = 5

GATES: Mapping[str, tuple[float, float]] = {
    "raw": (0.90, 0.93),
    "marginal": (0.90, 0.90),
    "conditional": (0.90, 0.90),
}
"""The paper's (local, prefix) of each signal, at which gates are left out and blocks permuted."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedBlocks:
    """Scores of drafted blocks beside what became of them.

    ``scores`` (N, G), behind a block's length meaningless; ``survives`` (N, G) and ``counts``
    (N, G), where a pair is looked at; ``lengths``, ``accepted`` and ``folds`` (N,).
    """

    signal: Signal
    scores: Floats
    survives: Bools
    counts: Bools
    lengths: Ints
    accepted: Ints
    folds: Ints

    @classmethod
    def of(
        cls,
        signal: Signal,
        scores: Sequence[Sequence[float]] | Floats,
        accepted: Sequence[int] | Ints,
        *,
        folds: Sequence[int] | Ints | None = None,
    ) -> LoggedBlocks:
        """Return blocks of ragged rows of scores. Raises ProtocolError for rows that disagree."""
        lengths = np.array([len(row) for row in scores], dtype=np.int64)
        found = np.asarray(accepted, dtype=np.int64)
        if found.shape != lengths.shape or (found > lengths).any() or (found < 0).any():
            raise ProtocolError(
                f"Expected for each of {len(lengths)} blocks an accepted length from 0 to its "
                f"draft length, got {found.tolist()}. Give scores and lengths of the same blocks."
            )
        table = np.zeros((len(lengths), int(lengths.max(initial=0))))
        for row, values in enumerate(scores):
            table[row, : len(values)] = values
        j = np.arange(1, table.shape[1] + 1)
        counts = j <= lengths[:, None]
        if signal == "conditional":
            counts &= j <= found[:, None] + 1
        return cls(
            signal=signal,
            scores=table,
            survives=j <= found[:, None],
            counts=counts,
            lengths=lengths,
            accepted=found,
            folds=np.zeros_like(found) if folds is None else np.asarray(folds, dtype=np.int64),
        )


def write_blocks(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write logged blocks, one JSON object a line: signal, scores, accepted, fold, prompt."""
    path.write_text("".join(json.dumps(dict(line), separators=(",", ":")) + "\n" for line in lines))


class LoggedLine(Frozen):
    """One block as a file has it."""

    signal: Signal
    """Whose scores these are"""
    prompt: str = ""
    """Hash of the prompt it belongs to"""
    fold: int
    """In which it was held out"""
    accepted: int = Field(ge=0)
    """Draft tokens that strict accepts"""
    scores: tuple[Annotated[float, Field(ge=0, le=1)], ...]
    """Chance of survival, position by position"""


def read_blocks(path: Path) -> LoggedBlocks:
    """Return the blocks of a file of one signal. Raises RunDirError or ProtocolError."""
    where = str(path)
    try:
        lines = []
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            where = f"{path}, line {number}"
            lines.append(LoggedLine.model_validate_json(line))
        signals = sorted({line.signal for line in lines})
        got = "" if len(signals) == 1 else f"Got {' and '.join(signals) or 'an empty file'}."
    except OSError as error:
        signals, got = [], f"Got: {error}."
    except ValidationError as error:
        signals, got = [], explain_file(error, LoggedLine, where)
    if len(signals) != 1:
        raise RunDirError(
            f"Expected logged blocks of one signal in {path}. {got} Write them with "
            f"`lenity train survival`, or correct the path."
        )
    return LoggedBlocks.of(
        lines[0].signal,
        [line.scores for line in lines],
        [line.accepted for line in lines],
        folds=[line.fold for line in lines],
    )


class PositionMetrics(Frozen):
    """How good the scores of one position are, over the blocks that count there."""

    position: int = Field(ge=1)
    count: int = Field(ge=0)
    """Blocks that count"""
    positives: int = Field(ge=0)
    bce: float
    """Mean cross-entropy of scores and survival, nats"""
    baseline_bce: float
    """The same for the share of positives at this position in other folds"""
    auroc: float | None
    """P(a positive's score is above a negative's), ties half; none below 10 of either"""


def cross_entropy(scores: Floats, labels: Bools) -> float:
    """Return the mean cross-entropy in nats; 0 for nothing. The order of pairs does not matter."""
    clipped = np.clip(scores, LEAST, 1 - LEAST)
    losses = -np.log(np.where(labels, clipped, 1 - clipped))
    return float(np.sort(losses).mean()) if len(losses) else 0.0


def auroc(scores: Floats, labels: Bools) -> float | None:
    """Return P(score of a positive > score of a negative), ties half; None below 10 of either."""
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if min(positives, negatives) < MIN_OF_EACH:
        return None
    values, index, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    above = np.bincount(index, weights=labels, minlength=len(values))
    below = sizes - above
    beaten = np.cumsum(below) - below
    return float((above * (beaten + below / 2)).sum() / (positives * negatives))


def baseline(blocks: LoggedBlocks, num_folds: int = NUM_FOLDS) -> Floats:
    """Return position-only scores (N, G): the share of positives among a rotation's training folds.

    Those are all but the block's own fold r and (r+1) mod num_folds, which chose the checkpoint; a
    log of one fold is its own baseline.
    """
    out = np.zeros_like(blocks.scores)
    for fold in np.unique(blocks.folds):
        own = blocks.folds == fold
        rest = ~own & (blocks.folds != (fold + 1) % num_folds)
        rows = rest if rest.any() else own
        counted = blocks.counts[rows]
        hits = (blocks.survives[rows] & counted).sum(0)
        out[own] = hits / np.maximum(counted.sum(0), 1)
    return out


def position_metrics(
    blocks: LoggedBlocks, num_folds: int = NUM_FOLDS
) -> tuple[PositionMetrics, ...]:
    """Return the metrics of every position at which a block counts."""
    guess = baseline(blocks, num_folds)
    found = []
    for j in np.flatnonzero(blocks.counts.any(0)):
        rows = blocks.counts[:, j]
        scores, labels = blocks.scores[rows, j], blocks.survives[rows, j]
        found.append(
            PositionMetrics(
                position=int(j) + 1,
                count=len(labels),
                positives=int(labels.sum()),
                bce=cross_entropy(scores, labels),
                baseline_bce=cross_entropy(guess[rows, j], labels),
                auroc=auroc(scores, labels),
            )
        )
    return tuple(found)


def prefix_scores(signal: Signal, scores: Floats) -> Floats:
    """Return C_k: geometric mean (raw), minimum (marginal) or product (conditional) of q_1..q_k."""
    if signal == "marginal":
        return np.minimum.accumulate(scores, axis=1)
    with np.errstate(divide="ignore"):
        summed = np.log(scores).cumsum(1)
    return np.exp(summed / np.arange(1, scores.shape[1] + 1) if signal == "raw" else summed)


def feasible_lengths(blocks: LoggedBlocks, local: float, prefix: float) -> Ints:
    """Return K^ = max{k : B_k >= local and C_k >= prefix}, by the score gates alone; (N,)."""
    if not blocks.scores.size:
        return np.zeros_like(blocks.lengths)
    least = np.minimum.accumulate(blocks.scores, axis=1)
    passes = (least >= local) & (prefix_scores(blocks.signal, blocks.scores) >= prefix)
    j = np.arange(1, blocks.scores.shape[1] + 1)
    return np.max(np.where(passes & (j <= blocks.lengths[:, None]), j, 0), axis=1)


class Permutation(Frozen):
    """What the gates let through before and after position-wise shuffling."""

    before: float
    """Mean feasible prefix, draft tokens a block"""
    after: float
    """The same, mean of all repetitions"""
    repetitions: tuple[float, ...]
    """The mean of each"""
    passing_before: tuple[float, ...]
    """Share of blocks with K^ >= k, k = 1..G"""
    passing_after: tuple[float, ...]
    """The same, mean of all repetitions"""


def passing(lengths: Ints, gamma: int) -> Floats:
    """Return the share of blocks whose gates pass at least k tokens, k = 1..gamma."""
    return (lengths[:, None] > np.arange(gamma)).mean(0)


def permuted(blocks: LoggedBlocks, rng: np.random.Generator) -> LoggedBlocks:
    """Return blocks whose pairs are shuffled within each position, among blocks that count there.

    A block that does not count keeps its own. Every position holds the same pairs as before, so
    its cross-entropy and AUROC are the same numbers: asserted.
    """
    scores, survives = blocks.scores.copy(), blocks.survives.copy()
    for j in range(scores.shape[1]):
        rows = np.flatnonzero(blocks.counts[:, j])
        drawn = rng.permutation(rows)
        scores[rows, j], survives[rows, j] = scores[drawn, j], survives[drawn, j]
        before = blocks.scores[rows, j], blocks.survives[rows, j]
        after = scores[rows, j], survives[rows, j]
        assert cross_entropy(*before) == cross_entropy(*after), "the same pairs"
        assert auroc(*before) == auroc(*after), "the same pairs"
    return replace(blocks, scores=scores, survives=survives)


def permutation_test(
    blocks: LoggedBlocks, local: float, prefix: float, *, repetitions: int = 100, seed: int = 0
) -> Permutation:
    """Return mean feasible prefixes before and after shuffling: what lies in dependence alone.

    Position-wise quality stays by construction; what the gates let through does not.
    """
    rng, gamma = np.random.default_rng(seed), blocks.scores.shape[1]
    before = feasible_lengths(blocks, local, prefix)
    drawn = [feasible_lengths(permuted(blocks, rng), local, prefix) for _ in range(repetitions)]
    means = tuple(float(lengths.mean()) for lengths in drawn)
    return Permutation(
        before=float(before.mean()),
        after=float(np.mean(means)),
        repetitions=means,
        passing_before=tuple(passing(before, gamma).tolist()),
        passing_after=tuple(np.mean([passing(own, gamma) for own in drawn], 0).tolist()),
    )


class GateOutcome(Frozen):
    """What one set of gates would skip of logged blocks, each judged by itself."""

    gates: Literal["full", "local", "prefix"]
    blocks: int
    skipped_blocks: int
    """Blocks with K^ >= max(1, min_prefix)"""
    skipped: int
    """Sum of K^ over those"""
    agreed: int
    """Sum of min(K^, L) over those"""
    full: int
    """Those with K^ <= L"""

    @property
    def strict_token(self) -> float | None:
        """Skipped tokens that strict accepts / skipped tokens; none where nothing is skipped."""
        return self.agreed / self.skipped if self.skipped else None

    @property
    def full_prefix(self) -> float | None:
        """Skips that strict accepts whole / skips; none where nothing is skipped."""
        return self.full / self.skipped_blocks if self.skipped_blocks else None


def gate_ablation(
    blocks: LoggedBlocks, local: float, prefix: float, *, min_prefix: int = 0
) -> tuple[GateOutcome, ...]:
    """Return both gates, the local one alone and the prefix one alone; nothing is tuned again."""
    settings = (("full", local, prefix), ("local", local, 0.0), ("prefix", 0.0, prefix))
    found = []
    for name, low, whole in settings:
        lengths = feasible_lengths(blocks, low, whole)
        is_skip = lengths >= max(1, min_prefix)
        kept, strict = lengths[is_skip], blocks.accepted[is_skip]
        found.append(
            GateOutcome(
                gates=name,
                blocks=len(lengths),
                skipped_blocks=len(kept),
                skipped=int(kept.sum()),
                agreed=int(np.minimum(kept, strict).sum()),
                full=int((kept <= strict).sum()),
            )
        )
    return tuple(found)


def break_even(accepted: float, draft_cost: float, target_cost: float) -> float:
    """Return K* = A c_D / (c_D + c_V): a skip of more tokens beats a strict round that emits A.

    Costs are seconds a draft block and a target pass take, or any other one unit.
    """
    if draft_cost < 0 or target_cost < 0 or draft_cost + target_cost == 0:
        raise ProtocolError(
            f"Expected costs of at least 0, not both 0, got {draft_cost} and {target_cost}. "
            f"Measure a draft block and a target pass."
        )
    return accepted * draft_cost / (draft_cost + target_cost)
