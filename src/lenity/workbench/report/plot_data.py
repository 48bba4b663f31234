"""What the plots of a report show. A plot with nothing in it is left out by whoever fills it.

Numbers are stored in base units (shares from 0 to 1, seconds, nats) and scaled when drawn. An
Estimate is an Interval wherever there is one; a bare number is drawn without error bars.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, FiniteFloat, model_validator

from lenity.workbench.intervals import Interval
from lenity.workbench.metrics import RegretHistogram
from lenity.workbench.records import Frozen
from lenity.workbench.tables import PLAIN, POINTS, TOKENS_PER_SECOND, Slug, Unit

Estimate = Interval | FiniteFloat
Share = Interval | FiniteFloat | None
"""An Estimate from 0 to 1; none where the denominator is 0"""


def middle(value: Estimate) -> float:
    """Return the number itself, or the interval's estimate."""
    return value.estimate if isinstance(value, Interval) else value


class Plot(Frozen):
    """What every plot says beneath itself. None: as the report's setting has it."""

    protocol: str
    """How it was measured, such as "fixed work, 64 prompts x 256 new tokens, 4 repeats" """
    models: str | None = None
    """Target and drafter, where they are not the report's"""
    hardware: str | None = None
    """Where it is not the report's"""
    run_id: str | None = None
    """The run it comes from, where the report has several"""
    note: str | None = None
    """A sentence of its own"""


class FrontierPoint(Frozen):
    """One operating point measured for quality and for speed."""

    label: str
    """Its spec string, such as asd:budget=8,gate=0.25,block_cap=2"""
    quality: Estimate
    """In the unit of the frontier"""
    throughput: Share = None
    """In the unit of the frontier"""
    relative_calls: Share = None
    """Target passes per token, strict = 1"""
    role: Literal["candidate", "chosen", "strict", "plain"] = "candidate"
    is_on_frontier: bool = False
    """Whether no other point is at least as good in both and better in one"""


class Frontier(Plot):
    """Quality against throughput, and quality against relative target calls."""

    points: tuple[FrontierPoint, ...] = Field(min_length=1)
    quality_label: str = "Score, relaxed − strict"
    quality_unit: Unit = POINTS
    throughput_label: str = "Throughput"
    throughput_unit: Unit = TOKENS_PER_SECOND
    margin: float | None = Field(default=None, ge=0)
    """Stated beforehand, in the quality's unit; drawn as a line at -margin"""


class PositionCurve(Frozen):
    """Acceptance of one arm by draft position, the first position first."""

    arm: str
    rate: tuple[Share, ...] = ()
    """Accepted at i / judged i"""
    conditional: tuple[Share, ...] = ()
    """Accepted at i / reached i"""


class AcceptanceByPosition(Plot):
    """Acceptance by draft position, several arms."""

    arms: tuple[PositionCurve, ...] = Field(min_length=1)


class RegretOfArm(Frozen):
    """Requests of one arm by the nats each gave away."""

    arm: str
    histogram: RegretHistogram


class RegretSpent(Plot):
    """Regret spent against the budget. Arms are to share their bin edges."""

    arms: tuple[RegretOfArm, ...] = Field(min_length=1)
    budget: float | None = None
    """Nats a request may give away; none or infinite without a bound"""


class OpportunityOfTask(Frozen):
    """Share of mismatches with regret <= tau that p agreeing draft tokens follow, one task."""

    task: str
    taus: tuple[FiniteFloat, ...] = Field(min_length=1)
    """Nats"""
    horizons: tuple[int, ...] = Field(min_length=1)
    """p: draft tokens behind the mismatch that all agree with the target"""
    shares: tuple[tuple[FiniteFloat | None, ...], ...]
    """shares[i][j] for taus[i] and horizons[j], from 0 to 1; none where no block is long enough"""
    num_mismatches: int = Field(ge=0)
    """The denominator: all mismatches of all evaluated blocks"""

    @model_validator(mode="after")
    def _is_a_grid(self) -> OpportunityOfTask:
        sizes = [len(row) for row in self.shares]
        if sizes != [len(self.horizons)] * len(self.taus):
            raise ValueError(
                f"{self.task}: expected {len(self.taus)} rows of {len(self.horizons)} shares, got "
                f"rows of {sizes}; give one share for each tau and p"
            )
        return self


class Opportunity(Plot):
    """The opportunity map, tau x p, one task a panel."""

    tasks: tuple[OpportunityOfTask, ...] = Field(min_length=1)


class LatencyOfArm(Frozen):
    """Synchronised seconds per emitted token of one arm, by stage; the prompt's pass excluded."""

    arm: str
    draft_seconds: float = Field(ge=0)
    target_seconds: float = Field(ge=0)
    verify_seconds: float = Field(ge=0)
    commit_seconds: float = Field(ge=0)
    total_seconds: Share = None
    """Of all stages together, with its interval where there is one"""


class Latency(Plot):
    """Where the time of a token goes, several arms."""

    arms: tuple[LatencyOfArm, ...] = Field(min_length=1)


class SweepPoint(Frozen):
    """One setting of a swept knob and what was found there."""

    x: FiniteFloat | str
    """The knob; words such as "∞" make the whole axis one of names, in order of appearance"""
    y: Estimate


class SweepCurve(Frozen):
    """One line of a sweep."""

    label: str
    """An arm, a task, or the paper's name"""
    points: tuple[SweepPoint, ...] = Field(min_length=1)
    is_reference: bool = False
    """Whether these are published numbers; drawn apart from ours"""
    setting: str | None = None
    """Models, hardware and knobs behind a reference"""


class Mark(Frozen):
    """A place on the axis of a knob that means something, such as a break-even."""

    x: FiniteFloat
    label: str


class Sweep(Plot):
    """One knob, or one grid, against one measure."""

    key: Slug
    """Of its files, such as asd-budget"""
    title: str
    x_label: str
    curves: tuple[SweepCurve, ...] = Field(min_length=1)
    x_is_logarithmic: bool = False
    x_unit: Unit = Unit()
    y_label: str
    y_unit: Unit = PLAIN
    mark: Mark | None = None
    """Drawn as a line across where the axis is one of numbers"""


class ReliabilityBin(Frozen):
    """Forecasts that fell into one bin."""

    forecast: float = Field(ge=0, le=1)
    """Their mean"""
    observed: Estimate
    """Share of them that came true"""
    count: int = Field(ge=0)


class ReliabilityCurve(Frozen):
    """Bins of one forecaster."""

    label: str
    bins: tuple[ReliabilityBin, ...] = Field(min_length=1)


class Reliability(Plot):
    """What was forecast against what happened."""

    key: Slug
    title: str
    curves: tuple[ReliabilityCurve, ...] = Field(min_length=1)
    forecast_label: str = "Forecast"
    observed_label: str = "Observed"


class PredictedPoint(Frozen):
    """One configuration predicted by replay and then measured."""

    label: str
    predicted: FiniteFloat
    measured: Estimate


class PredictedVsMeasured(Plot):
    """Replay's prediction against the measurement, one quantity."""

    key: Slug
    quantity: str
    """Such as tokens per target pass"""
    unit: Unit = PLAIN
    points: tuple[PredictedPoint, ...] = Field(min_length=1)
