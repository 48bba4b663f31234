"""Which figures and tables a report has, under which headings. What is absent has no section."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lenity.workbench.report.bars import latency, opportunity, regret
from lenity.workbench.report.curves import acceptance, reliability, sweep
from lenity.workbench.report.data import ReportData, WorstSlice
from lenity.workbench.report.figure import Figure
from lenity.workbench.report.points import frontier, predicted
from lenity.workbench.report.theme import looks_of
from lenity.workbench.tables import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Figures and tables under one heading."""

    slug: str
    """Its anchor"""
    title: str
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    worst_slice: WorstSlice | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not (self.figures or self.tables or self.worst_slice)


def sections_of(data: ReportData) -> list[Section]:
    """Return the sections that have something in them, in the order they are read."""
    return [section for section in _sections(data) if not section.is_empty]


def _sections(data: ReportData) -> Iterator[Section]:
    own = data.setting
    yield Section(
        slug="section-frontier",
        title="Quality and speed",
        figures=frontier(data.frontier, own) if data.frontier else (),
    )
    yield Section(
        slug="section-tasks",
        title="Tasks",
        tables=(data.tasks,) if data.tasks else (),
        worst_slice=data.worst_slice,
    )
    yield from _of_rounds(data)
    yield Section(
        slug="section-sweeps",
        title="Sweeps",
        figures=[sweep(plot, own) for plot in data.sweeps],
    )
    yield Section(
        slug="section-forecasts",
        title="Forecasts",
        figures=[reliability(plot, own) for plot in data.reliability],
    )
    yield Section(
        slug="section-replay",
        title="Predicted and measured",
        figures=[predicted(plot, own) for plot in data.predicted],
    )
    yield Section(slug="section-tables", title="Tables", tables=data.tables)


def _of_rounds(data: ReportData) -> Iterator[Section]:
    """Yield what happens inside rounds; an arm looks alike in all of these figures."""
    own, looks = data.setting, looks_of(_arms(data))
    figures = acceptance(data.acceptance, own, looks) if data.acceptance else []
    figures += [latency(data.latency, own)] if data.latency else []
    yield Section(slug="section-rounds", title="Inside a round", figures=figures)
    figures = [regret(data.regret, own, looks)] if data.regret else []
    yield Section(slug="section-regret", title="Regret", figures=figures)
    figures = opportunity(data.opportunity, own) if data.opportunity else []
    yield Section(slug="section-opportunity", title="Opportunity", figures=figures)


def _arms(data: ReportData) -> list[str]:
    arms = [curve.arm for curve in data.acceptance.arms] if data.acceptance else []
    return arms + ([arm.arm for arm in data.regret.arms] if data.regret else [])
