"""Plots of a sweep: every quantity over the knob, or over target calls, one line a rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lenity.workbench.config import STRICT
from lenity.workbench.intervals import Interval
from lenity.workbench.report.plot_data import Mark, Sweep, SweepCurve, SweepPoint, middle
from lenity.workbench.sweep import Step
from lenity.workbench.sweep_measures import CALLS, Quantity, Values
from lenity.workbench.tables import PLAIN, Column, Table, Value

CALLS_LABEL = "Target passes per token, strict = 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What all plots of a sweep have in common."""

    steps: Sequence[Step]
    values: Values
    protocol: str
    run_id: str
    x_label: str


def over_knob(
    quantity: Quantity, drawn: Drawn, *, mark: Mark | None = None, is_level: bool = False
) -> Sweep | None:
    """Return a quantity over the knob; None where no arm has it.

    ``is_level`` draws strict, where the knob means nothing, as a line from end to end.
    """
    curves: dict[str, list[SweepPoint]] = {}
    for step, value in _known(quantity, drawn):
        curves.setdefault(step.curve, []).append(SweepPoint(x=step.x, y=value))
    if is_level:
        curves = _with_level(curves)
    made = tuple(
        SweepCurve(label=name, points=tuple(points), is_reference=name == STRICT)
        for name, points in curves.items()
    )
    return _sweep(quantity, drawn, made, drawn.x_label, mark=mark) if made else None


def _with_level(curves: dict[str, list[SweepPoint]]) -> dict[str, list[SweepPoint]]:
    """Return the curves with strict's one point at both ends of the others' axis."""
    xs = [p.x for name, points in curves.items() if name != STRICT for p in points]
    numbers = [x for x in xs if not isinstance(x, str)]
    if STRICT not in curves or not numbers or len(numbers) < len(xs):
        return curves
    level = curves[STRICT][0].y
    ends = [SweepPoint(x=x, y=level) for x in dict.fromkeys((min(numbers), max(numbers)))]
    return {**curves, STRICT: ends}


def over_calls(quantity: Quantity, drawn: Drawn) -> Sweep | None:
    """Return a quantity over relative target calls, each rule's settings by falling calls."""
    calls = drawn.values[CALLS]
    curves: dict[str, list[SweepPoint]] = {}
    for step, value in _known(quantity, drawn):
        if step.arm.name in calls:
            x = middle(calls[step.arm.name])
            curves.setdefault(step.curve, []).append(SweepPoint(x=x, y=value))
    made = tuple(
        SweepCurve(
            label=name,
            points=tuple(sorted(points, key=lambda p: -float(p.x))),
            is_reference=name == STRICT,
        )
        for name, points in curves.items()
    )
    return _sweep(quantity, drawn, made, CALLS_LABEL) if made else None


def _known(quantity: Quantity, drawn: Drawn) -> list[tuple[Step, Interval | float]]:
    found = drawn.values[quantity.key]
    return [(step, found[step.arm.name]) for step in drawn.steps if step.arm.name in found]


def _sweep(
    quantity: Quantity,
    drawn: Drawn,
    curves: tuple[SweepCurve, ...],
    x_label: str,
    *,
    mark: Mark | None = None,
) -> Sweep:
    return Sweep(
        protocol=drawn.protocol,
        run_id=drawn.run_id,
        key=quantity.key,
        title=quantity.title,
        x_label=x_label,
        y_label=quantity.title,
        y_unit=quantity.unit,
        curves=curves,
        mark=mark,
    )


def settings_table(known: Sequence[Quantity], drawn: Drawn) -> Table:
    """Return one row an arm: its rule, its setting, and every quantity that some arm has."""
    shown = [quantity for quantity in known if drawn.values[quantity.key]]
    rows: list[dict[str, Value]] = [
        {
            "rule": step.curve,
            "setting": str(step.x),
            "spec": step.arm.skip or step.arm.policy,
            **{q.key: drawn.values[q.key].get(step.arm.name) for q in shown},
        }
        for step in drawn.steps
    ]
    columns = (
        Column(key="rule", label="Rule"),
        Column(key="setting", label="Setting"),
        Column(key="spec", label="Spec"),
        *(
            Column(key=q.key, label=q.title, unit=q.unit if q.unit != PLAIN else _THREE)
            for q in shown
        ),
    )
    return Table.of("settings", "Settings", columns, rows, note="95 % intervals over prompts.")


_THREE = PLAIN.model_copy(update={"digits": 3})
