"""Tables: rows with units and intervals, as plain text, Markdown and CSV.

What people read is rounded and scaled (a gain of 0.078 stands as +7.8 under "gain, %"); CSV keeps
the numbers as they are, an interval's limits in columns of their own. The command line, the
report and the pages of the documentation draw the same tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field, FiniteFloat, StringConstraints, model_validator

from lenity.workbench.intervals import Interval
from lenity.workbench.records import Frozen

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
"""Names a file and an anchor."""
Value = Interval | bool | int | FiniteFloat | str | None
"""A cell; None is "there is no such number"."""

NOTHING = "–"
"""Stands where there is no number."""


class Unit(Frozen):
    """How numbers of one kind are written: value * scale, rounded, and the unit's name."""

    name: str = ""
    """Behind the heading, such as %, pp or nats; empty for plain numbers"""
    scale: float = 1.0
    """Multiplies what is stored, such as 100 for a share shown in per cent"""
    digits: int = Field(default=2, ge=0, le=12)
    """Behind the point"""
    is_signed: bool = False
    """Whether a plus is written: for differences and gains"""

    def text(self, value: float | int) -> str:
        """Return the number without its unit; what rounds to 0 has no sign."""
        scaled = value * self.scale
        if round(scaled, self.digits) == 0:
            scaled = 0.0
        sign = "+" if self.is_signed and scaled != 0 else ""
        return f"{scaled:{sign},.{self.digits}f}"

    def limits(self, interval: Interval) -> str:
        """Return the interval's limits as "low to high", without the unit."""
        return f"{self.text(interval.low)} to {self.text(interval.high)}"

    def with_name(self, text: str) -> str:
        """Return a number's text with the unit behind it."""
        return f"{text} {self.name}" if self.name else text


PLAIN = Unit()
COUNT = Unit(digits=0)
PERCENT = Unit(name="%", scale=100, digits=1)
GAIN = Unit(name="%", scale=100, digits=1, is_signed=True)
"""Of relaxed / strict - 1"""
POINTS = Unit(name="pp", scale=100, digits=2, is_signed=True)
"""Of a difference of two shares"""
NATS = Unit(name="nats", digits=3)
NATS_APART = Unit(name="nats", digits=3, is_signed=True)
"""Of a difference of two log-probabilities"""
MILLISECONDS = Unit(name="ms", scale=1000)
"""Of seconds"""
TOKENS_PER_SECOND = Unit(name="tokens/s", digits=1)


class Column(Frozen):
    """One column: what it is called in a file, by people, and how its numbers are written."""

    key: str = Field(pattern=r"^[A-Za-z0-9_]+$")
    """Heading in CSV, such as gain"""
    label: str
    """Heading for people"""
    unit: Unit | None = None
    """Of its numbers; none for a column of words"""

    @property
    def heading(self) -> str:
        """The label with its unit."""
        return f"{self.label}, {self.unit.name}" if self.unit and self.unit.name else self.label

    def text(self, value: Value) -> str:
        """Return a cell as people read it: an interval as "estimate (low to high)"."""
        if value is None:
            return NOTHING
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "yes" if value else "no"
        unit = self.unit or PLAIN
        if isinstance(value, Interval):
            return f"{unit.text(value.estimate)} ({unit.limits(value)})"
        return str(value) if self.unit is None and isinstance(value, int) else unit.text(value)


class Table(Frozen):
    """Rows under columns."""

    name: Slug
    """Of its file"""
    title: str
    """For people"""
    columns: tuple[Column, ...] = Field(min_length=1)
    rows: tuple[tuple[Value, ...], ...] = ()
    """One value a column"""
    note: str | None = None
    """A sentence under the table"""

    @model_validator(mode="after")
    def _is_a_table(self) -> Table:
        keys = [column.key for column in self.columns]
        if len(set(keys)) != len(keys):
            raise ValueError(f"{self.name}: expected different keys, got {keys}; rename one")
        for i, row in enumerate(self.rows):
            if len(row) != len(keys):
                raise ValueError(
                    f"{self.name}, row {i}: expected a value for each of {keys}, got {len(row)}; "
                    f"None stands for no value"
                )
        return self

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        columns: Iterable[Column],
        rows: Iterable[Mapping[str, Value]],
        note: str | None = None,
    ) -> Table:
        """Make a table of mappings from key to value; a key that is left out has no value."""
        heads = tuple(columns)
        cells = tuple(tuple(row.get(column.key) for column in heads) for row in rows)
        return cls(name=name, title=title, columns=heads, rows=cells, note=note)

    def texts(self) -> list[list[str]]:
        """Return every cell as people read it, row by row."""
        return [
            [column.text(value) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]


def plain_text(table: Table) -> str:
    """Return the table in columns of equal width, numbers to the right, its title above."""
    heads = [column.heading for column in table.columns]
    lines = [heads, *table.texts()]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]

    def drawn(line: list[str]) -> str:
        cells = [
            text.rjust(width) if column.unit else text.ljust(width)
            for text, width, column in zip(line, widths, table.columns, strict=True)
        ]
        return "  ".join(cells).rstrip()

    rule = "  ".join("-" * width for width in widths)
    body = [drawn(heads), rule, *map(drawn, lines[1:])]
    return "\n".join([table.title, "", *body, *_note(table)]) + "\n"


def markdown(table: Table) -> str:
    """Return the table for a Markdown page, without its title; what would break it is escaped."""
    heads = [_in_markdown(column.heading) for column in table.columns]
    sides = ["---:" if column.unit else "---" for column in table.columns]
    rows = [[_in_markdown(text) for text in row] for row in table.texts()]
    lines = [f"| {' | '.join(line)} |" for line in (heads, sides, *rows)]
    return "\n".join([*lines, *_note(table)]) + "\n"


def _in_markdown(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return " ".join(escaped.splitlines())


def _note(table: Table) -> list[str]:
    return ["", table.note] if table.note else []


def csv_text(table: Table) -> str:
    """Return the table as CSV (RFC 4180, lines end in LF): numbers unscaled, in full.

    A column that holds an interval has two more behind it, KEY_low and KEY_high. No value is an
    empty cell, yes and no are true and false.
    """
    wide = [
        any(isinstance(row[i], Interval) for row in table.rows) for i in range(len(table.columns))
    ]
    heads: list[str] = []
    for column, is_wide in zip(table.columns, wide, strict=True):
        heads += [column.key, *([f"{column.key}_low", f"{column.key}_high"] if is_wide else [])]
    lines = [heads]
    for row in table.rows:
        lines.append([])
        for value, is_wide in zip(row, wide, strict=True):
            lines[-1] += _in_csv(value, is_wide)
    return "".join(",".join(map(_quoted, line)) + "\n" for line in lines)


def _quoted(cell: str) -> str:
    """Return a cell in quotes where it needs them; csv.writer forgets a lone carriage return."""
    if not set(cell) & set(',"\r\n'):
        return cell
    doubled = cell.replace('"', '""')
    return f'"{doubled}"'


def _in_csv(value: Value, is_wide: bool) -> list[str]:
    """Return a value's cells: three in a column with intervals, else one."""
    if isinstance(value, Interval):
        return [repr(float(v)) for v in (value.estimate, value.low, value.high)]
    if isinstance(value, bool):
        cell = "true" if value else "false"
    else:
        cell = "" if value is None else str(value)
    return [cell, "", ""] if is_wide else [cell]
