"""Everything that logged blocks say of one signal, as one document.

How good its scores are position by position, whether they are what they say, what its gates let
through, and how much of that hangs on the order of blocks (arXiv 2608.14787).
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from lenity.workbench.calibration import (
    ReliabilityBin,
    expected_calibration_error,
    reliability,
)
from lenity.workbench.diagnostics import (
    GATES,
    GateOutcome,
    LoggedBlocks,
    Permutation,
    PositionMetrics,
    Signal,
    gate_ablation,
    permutation_test,
    position_metrics,
    prefix_scores,
)
from lenity.workbench.records import Frozen

REPETITIONS = 100


class SignalGates(Frozen):
    """The gates at which a signal is looked at."""

    signal: Signal
    local: float = Field(ge=0)
    """Least score of a position"""
    prefix: float = Field(ge=0)
    """Least score of a prefix"""

    @classmethod
    def of_paper(cls, signal: Signal) -> SignalGates:
        """Return the published ones."""
        local, prefix = GATES[signal]
        return cls(signal=signal, local=local, prefix=prefix)


class Diagnosis(Frozen):
    """One signal on logged blocks."""

    gates: SignalGates
    blocks: int = Field(ge=1)
    mean_accepted: float
    """Draft tokens a block that strict accepts"""
    positions: tuple[PositionMetrics, ...]
    reliability: tuple[ReliabilityBin, ...]
    """Scores of positions against survival"""
    prefix_reliability: tuple[ReliabilityBin, ...]
    """Scores C_k of drafted prefixes against 1{L >= k}"""
    prefix_calibration_error: float
    """Of the same"""
    permutation: Permutation
    ablation: tuple[GateOutcome, ...]

    @property
    def signal(self) -> Signal:
        """Whose scores they are."""
        return self.gates.signal

    @property
    def bce(self) -> float:
        """Mean of the positions' cross-entropies, nats."""
        return float(np.mean([position.bce for position in self.positions]))

    @property
    def baseline_bce(self) -> float:
        """The same of the position alone."""
        return float(np.mean([position.baseline_bce for position in self.positions]))

    @property
    def auroc(self) -> float | None:
        """Mean of the positions' AUROCs, those without one left out; none where all are."""
        known = [position.auroc for position in self.positions if position.auroc is not None]
        return float(np.mean(known)) if known else None

    @property
    def p_value(self) -> float:
        """(1 + permutations that pass at least as much as drafted blocks) / (1 + permutations)."""
        means = self.permutation.repetitions
        return (1 + sum(mean >= self.permutation.before for mean in means)) / (1 + len(means))


def diagnose(
    blocks: LoggedBlocks,
    gates: SignalGates | None = None,
    *,
    repetitions: int = REPETITIONS,
    seed: int = 0,
) -> Diagnosis:
    """Return what blocks say of their signal; without gates, at the published ones."""
    gates = gates or SignalGates.of_paper(blocks.signal)
    is_drafted = np.arange(blocks.scores.shape[1]) < blocks.lengths[:, None]
    prefixes = prefix_scores(blocks.signal, blocks.scores)[is_drafted]
    reached = blocks.survives[is_drafted]
    return Diagnosis(
        gates=gates,
        blocks=len(blocks.lengths),
        mean_accepted=float(blocks.accepted.mean()),
        positions=position_metrics(blocks),
        reliability=reliability(blocks.scores[blocks.counts], blocks.survives[blocks.counts]),
        prefix_reliability=reliability(prefixes, reached),
        prefix_calibration_error=expected_calibration_error(prefixes, reached),
        permutation=permutation_test(
            blocks, gates.local, gates.prefix, repetitions=repetitions, seed=seed
        ),
        ablation=gate_ablation(blocks, gates.local, gates.prefix),
    )
