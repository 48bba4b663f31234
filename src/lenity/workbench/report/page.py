"""The report as one HTML page: everything inside it, nothing asked of a network.

A content security policy forbids every request, and every script but the page's own by its hash,
so that a token spelling <script> is harmless twice: it is escaped, and it would not run.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lenity import __version__
from lenity.workbench.intervals import Interval
from lenity.workbench.report.data import ReportData
from lenity.workbench.report.disclosure import facts_of, point_facts
from lenity.workbench.report.sections import sections_of
from lenity.workbench.report.theme import DASHES, MARKS, css_variables
from lenity.workbench.report.tokens import kinds_in, largest_regret, view
from lenity.workbench.tables import GAIN, Column, Table, Value

PACKAGE = "lenity.workbench.report"
ASSETS = "assets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table as drawn: limits stand smaller, behind or below the estimate."""

    text: str
    limits: str | None = None
    is_number: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """An interval on a line from 0 to 100, zero and perhaps a margin marked."""

    low: float
    high: float
    estimate: float
    zero: float
    margin: float | None


def html(data: ReportData) -> str:
    """Return the page. The same document gives the same bytes."""
    script = _asset("report.js")
    top = largest_regret(data.samples)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            data=data,
            version=__version__,
            css=Markup(css_variables() + _asset("report.css")),
            script=Markup(script),
            script_hash=b64encode(sha256(script.encode()).digest()).decode(),
            sections=sections_of(data),
            point=point_facts(data.operating_point),
            facts=facts_of(data.disclosure),
            kinds=kinds_in(data.samples),
            top=top,
            view=partial(view, top=top),
            gain_unit=GAIN,
            strip=strip,
            marks=MARKS,
            dashes=DASHES,
        )
    )


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader(PACKAGE, ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"cells": cells, "minus": minus, "svg": Markup}
    return made


def _asset(name: str) -> str:
    return files(PACKAGE).joinpath(ASSETS, name).read_text(encoding="utf-8")


def minus(text: str) -> str:
    """Return the text with the hyphens in front of numbers as minus signs."""
    return re.sub(r"(?<![\w.)-])-(?=[\d.])", "\N{MINUS SIGN}", text)


def cells(table: Table) -> list[list[Cell]]:
    """Return the table's rows as drawn."""
    return [
        [_cell(value, column) for value, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]


def _cell(value: Value, column: Column) -> Cell:
    if isinstance(value, Interval) and column.unit:
        text, limits = column.unit.text(value.estimate), column.unit.limits(value)
        return Cell(text=minus(text), limits=minus(limits), is_number=True)
    text = column.text(value)
    is_number = column.unit is not None
    return Cell(text=minus(text) if is_number else text, is_number=is_number)


def strip(interval: Interval, margin: float | None = None) -> Strip:
    """Return an interval as places on a line that also holds zero and -margin."""
    floor = None if margin is None else -margin
    marks = [interval.low, interval.high, interval.estimate, 0.0]
    marks += [] if floor is None else [floor]
    low, high = min(marks), max(marks)
    pad = 0.08 * (high - low) or 1.0

    def place(value: float) -> float:
        return round(100 * (value - low + pad) / (high - low + 2 * pad), 2)

    return Strip(
        low=place(interval.low),
        high=place(interval.high),
        estimate=place(interval.estimate),
        zero=place(0.0),
        margin=None if floor is None else place(floor),
    )
