"""What drafting and the target cost, and what a skip must commit to pay (arXiv 2608.14787).

With c_D seconds a draft block and c_V a target pass, T ~ c_D N_blocks + c_V N_passes + T_policy,
and a skip beats a strict round that emits A tokens from K* = A c_D / (c_D + c_V) tokens on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from lenity.workbench.diagnostics import break_even
from lenity.workbench.intervals import Interval
from lenity.workbench.metrics import Counts
from lenity.workbench.records import Frozen, SampleRecord
from lenity.workbench.report.plot_data import Mark, PredictedPoint, PredictedVsMeasured
from lenity.workbench.tables import (
    MILLISECONDS,
    PLAIN,
    TOKENS_PER_SECOND,
    Column,
    Table,
    Unit,
    Value,
)

FEW = Unit(digits=3)


class StageCosts(Frozen):
    """Costs as an arm's rounds had them, in seconds of the machine."""

    block_seconds: float = Field(gt=0)
    """c_D: of the draft stage, per round that drafted"""
    pass_seconds: float = Field(gt=0)
    """c_V: of the target stage, per target pass; the prompts' are excluded"""
    policy_seconds: float = Field(ge=0)
    """Of verifying and committing, per round"""
    emitted: float = Field(gt=0)
    """A: tokens a round emits"""

    @classmethod
    def of(cls, counts: Counts) -> StageCosts | None:
        """Return the costs of a strict arm; None where it took no time or drafted nothing."""
        if not counts.draft_passes or not counts.target_passes or counts.draft_seconds <= 0:
            return None
        return cls(
            block_seconds=counts.draft_seconds / counts.draft_passes,
            pass_seconds=counts.target_seconds / counts.target_passes,
            policy_seconds=(counts.verify_seconds + counts.commit_seconds) / counts.rounds,
            emitted=counts.emitted / counts.rounds,
        )

    @property
    def break_even(self) -> float:
        """K*, draft tokens."""
        return break_even(self.emitted, self.block_seconds, self.pass_seconds)

    @property
    def mark(self) -> Mark:
        """K* as a line across a plot over K_min."""
        return Mark(x=self.break_even, label=f"K* {self.break_even:.2g}")

    def seconds(self, counts: Counts) -> float:
        """Return what these counts would take at these costs."""
        return (
            self.block_seconds * counts.draft_passes
            + self.pass_seconds * counts.target_passes
            + self.policy_seconds * counts.rounds
        )


def costs_table(costs: StageCosts) -> Table:
    """Return the one row of costs and what follows."""
    row: dict[str, Value] = {
        "block_seconds": costs.block_seconds,
        "pass_seconds": costs.pass_seconds,
        "policy_seconds": costs.policy_seconds,
        "ratio": costs.block_seconds / costs.pass_seconds,
        "emitted": costs.emitted,
        "break_even": costs.break_even,
    }
    columns = (
        Column(key="block_seconds", label="Draft block", unit=MILLISECONDS),
        Column(key="pass_seconds", label="Target pass", unit=MILLISECONDS),
        Column(key="policy_seconds", label="Rest of a round", unit=MILLISECONDS),
        Column(key="ratio", label="Block / pass", unit=FEW),
        Column(key="emitted", label="Tokens per strict round", unit=PLAIN),
        Column(key="break_even", label="K*", unit=PLAIN),
    )
    note = "Of the strict arm. A skip of more than K* tokens beats a strict round."
    return Table.of("costs", "What a skip must commit to pay", columns, [row], note=note)


def runtime_model(
    costs: StageCosts,
    records: Mapping[str, Sequence[SampleRecord]],
    throughput: Mapping[str, Interval | float],
    protocol: str,
) -> PredictedVsMeasured | None:
    """Return throughput by the runtime model at strict's costs, beside what was measured."""
    points = []
    for arm, value in throughput.items():
        counts = Counts.of(records[arm])
        predicted = counts.emitted / costs.seconds(counts)
        points.append(PredictedPoint(label=arm, predicted=predicted, measured=value))
    if not points:
        return None
    return PredictedVsMeasured(
        protocol=protocol,
        key="runtime_model",
        quantity="Throughput by the runtime model",
        unit=TOKENS_PER_SECOND,
        points=tuple(points),
        note="Predicted: counts of the arm at the costs of strict's blocks and passes",
    )
