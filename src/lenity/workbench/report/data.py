"""ReportData: everything a report says, as one frozen document.

tune, audit, sweep and replay fill it; page and write draw it; summary.json is it. Every part but
the title and the setting may be missing, and is then not drawn; what a user asked for and did not
get belongs in ``missing``, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, JsonValue, model_validator

from lenity.workbench.gates import Decision, Gate
from lenity.workbench.intervals import Interval
from lenity.workbench.provenance import Provenance
from lenity.workbench.records import Frozen
from lenity.workbench.report.plot_data import (
    AcceptanceByPosition,
    Frontier,
    Latency,
    Opportunity,
    PredictedVsMeasured,
    RegretSpent,
    Reliability,
    Sweep,
)
from lenity.workbench.report.token_data import TokenSample
from lenity.workbench.tables import NATS_APART, POINTS, Table, Unit
from lenity.workbench.verdicts import QualityVerdict, SpeedVerdict

REPORT_VERSION = 1
"""Of summary.json; readers refuse a newer one."""
PLOT_TABLES = ("frontier", "acceptance", "latency", "regret", "opportunity")
"""Names of the tables that the plots of a report leave, each under its own."""


class Setting(Frozen):
    """What stands in every caption."""

    models: str
    """Target and drafter, such as "SmolLM2-135M-Instruct, ngram:max_match=4" """
    hardware: str
    """Such as "2 cores of a Xeon, float32" """


class VerdictCard(Frozen):
    """The verdict and the numbers it rests on."""

    outcome: Literal["accepted", "rejected", "inconclusive", "chosen", "off"]
    """An audit's decision; of a tune: whether a point was chosen, or plain decoding wins"""
    words: str
    """The verdict in a sentence or two"""
    gain: Interval | None = None
    """Relaxed / strict throughput - 1, bootstrap over prompts"""
    gain_over_repeats: Interval | None = None
    """The same, Student-t over triplets"""
    quality_difference: Interval | None = None
    """Relaxed - strict, the interval the verdict rests on"""
    quality_name: str = "score"
    """What quality is here, such as score or log-probability per token"""
    quality_unit: Unit = POINTS
    margin: float | None = Field(default=None, gt=0)
    """Stated beforehand, in the quality's unit (0.01 is 1 pp)"""
    num_prompts: int | None = Field(default=None, ge=0)
    """Prompts in the quality difference"""
    num_triplets: int | None = Field(default=None, ge=0)
    """Triplets kept"""
    needed: str | None = None
    """What it would have taken, where inconclusive"""
    gates: tuple[Gate, ...] = ()
    """Quality first, the text's gates, then speed"""

    @classmethod
    def of(
        cls, decision: Decision, quality: QualityVerdict, speed: SpeedVerdict | None = None
    ) -> VerdictCard:
        """Return the card of an audit's decision."""
        is_score = quality.measure == "score"
        return cls(
            outcome=decision.outcome,
            words=_capital(decision.words.removeprefix(f"{decision.outcome}: ")),
            gain=speed.prompts if speed else None,
            gain_over_repeats=speed.repeats if speed else None,
            quality_difference=quality.interval,
            quality_name="score" if is_score else "log-probability per token",
            quality_unit=POINTS if is_score else NATS_APART,
            margin=quality.margin,
            num_prompts=quality.num_prompts,
            num_triplets=len(speed.triplets.kept) if speed else None,
            needed=quality.needed.words if quality.needed else None,
            gates=decision.gates,
        )


class WorstSlice(Frozen):
    """The part of the prompts on which relaxed does worst."""

    name: str
    """Such as "gsm8k@1, prompts over 200 tokens" """
    difference: Interval
    """Relaxed - strict"""
    unit: Unit = POINTS
    num_prompts: int = Field(ge=1)
    num_slices: int = Field(ge=1)
    """Slices it is the worst of; the worst of many looks bad by chance alone"""
    words: str | None = None


class Missing(Frozen):
    """Something asked for that is not here."""

    what: str
    """Such as "MBPP" or "latency by stage" """
    why: str
    """Such as "stopped after 5 minutes, 31 of 64 prompts done" """


class Disclosure(Frozen):
    """Everything a reader needs to judge the numbers, or to make them again.

    Of a tuple, None is "not recorded", and empty is "none".
    """

    provenance: Provenance | None = None
    """Hardware, versions, dtype, command, template hash, data revisions"""
    run_ids: tuple[str, ...] = ()
    """Runs the numbers come from"""
    protocols: tuple[str, ...] = ()
    """How each kind of number was measured, a sentence each"""
    exclusions: tuple[str, ...] | None = None
    """Pairs and prompts left out, each with its reason"""
    dropped_triplets: tuple[str, ...] | None = None
    """Each with its reason"""
    failed_samples: tuple[str, ...] | None = None
    """Each with its error"""
    divergences: dict[str, int] | None = None
    """First differences from strict by label: tie, policy, shape, defect"""
    not_comparable: tuple[str, ...] = ()
    """What differs between the arms although they are compared (--force); a banner says so"""
    notes: tuple[str, ...] = ()
    """Anything else, such as "a served engine keeps no ledger" """


class ReportData(Frozen):
    """A whole report."""

    schema_version: int = REPORT_VERSION
    """Of this document"""
    kind: Literal["tune", "audit", "sweep", "replay", "report"] = "report"
    title: str
    summary: str | None = None
    """A sentence under the title"""
    created_at: str | None = None
    """ISO 8601, UTC"""
    setting: Setting
    missing: tuple[Missing, ...] = ()
    """Asked for and not here"""
    verdict: VerdictCard | None = None
    operating_point: dict[str, JsonValue] = Field(default_factory=dict)
    """Target, drafter, policy, gamma and so on: spec strings and numbers, in order"""
    frontier: Frontier | None = None
    tasks: Table | None = None
    """One row a task: gain, quality and so on, with intervals"""
    worst_slice: WorstSlice | None = None
    acceptance: AcceptanceByPosition | None = None
    latency: Latency | None = None
    regret: RegretSpent | None = None
    opportunity: Opportunity | None = None
    sweeps: tuple[Sweep, ...] = ()
    reliability: tuple[Reliability, ...] = ()
    predicted: tuple[PredictedVsMeasured, ...] = ()
    tables: tuple[Table, ...] = ()
    """Any others"""
    samples: tuple[TokenSample, ...] = ()
    disclosure: Disclosure = Disclosure()

    @model_validator(mode="after")
    def _names_are_unique(self) -> ReportData:
        """Refuse two parts that would be written to one file."""
        names = [*PLOT_TABLES, *(table.name for table in self.own_tables)]
        names += [part.key for part in self.sweeps]
        names += [part.key for part in self.reliability]
        names += [part.key for part in self.predicted]
        twice = _first_twice(names)
        if twice is not None:
            raise ValueError(
                f"expected different keys, got {twice!r} twice "
                f"({', '.join(PLOT_TABLES)} are taken by the plots); rename one part"
            )
        return self

    @property
    def own_tables(self) -> tuple[Table, ...]:
        """The tables that are given, those made from plots not among them."""
        return ((self.tasks,) if self.tasks else ()) + self.tables


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _first_twice(names: Sequence[str]) -> str | None:
    return next((name for i, name in enumerate(names) if name in names[:i]), None)
