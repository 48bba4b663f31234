"""Parts of the prompts: by task, by task and family, by task and length. Where relaxed does worst.

A mean may hide that one kind of prompt pays for all the others. The worst of many slices looks bad
by chance alone, so that their number is told with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from lenity.errors import ProtocolError
from lenity.workbench.intervals import Interval, bootstrap_mean, paired_difference_interval
from lenity.workbench.pairing import Measure, PairedValues, Pairs, mean_logprob, score
from lenity.workbench.records import SampleRecord
from lenity.workbench.report.data import WorstSlice
from lenity.workbench.tables import COUNT, NATS_APART, PERCENT, POINTS, Column, Table, Unit, Value

MIN_SLICE = 10
"""Prompts below which a slice says nothing."""
RESAMPLES = 2000
"""Of a bootstrap: no verdict rests on a slice."""

Name: TypeAlias = Literal["score", "logprob"]
Prompt: TypeAlias = tuple[str, str]
"""Task and item."""

MEASURES: Mapping[Name, tuple[Measure, str, Unit]] = {
    "score": (score, "score", POINTS),
    "logprob": (mean_logprob, "log-probability", NATS_APART),
}
"""What quality is here: the measure, its name, the unit of a difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Some prompts, and what both arms made of them. ``difference`` is relaxed - strict."""

    name: str
    num_prompts: int
    strict: float
    relaxed: float
    difference: Interval


def slices_of(
    strict: Sequence[SampleRecord],
    relaxed: Sequence[SampleRecord],
    rng: np.random.Generator,
    *,
    measure: Name = "score",
) -> tuple[Slice, ...]:
    """Return the slices that have at least 10 prompts with the measure in both arms."""
    how, name, _ = MEASURES[measure]
    try:
        values = Pairs.of(strict, relaxed).values(how, name)
    except ProtocolError:
        return ()
    rows = {prompt: row for row, prompt in enumerate(values.prompts)}
    found = []
    for slice_name, prompts in _named(strict):
        own = [rows[prompt] for prompt in prompts if prompt in rows]
        if len(own) >= MIN_SLICE:
            found.append(_slice(slice_name, values, own, measure, rng))
    return tuple(found)


def _slice(
    name: str, values: PairedValues, rows: list[int], measure: Name, rng: np.random.Generator
) -> Slice:
    differences = values.differences[rows]
    if measure == "score":
        interval = paired_difference_interval(differences)
    else:
        interval = bootstrap_mean(differences, rng, resamples=RESAMPLES)
    return Slice(
        name=name,
        num_prompts=len(rows),
        strict=float(values.strict[rows].mean()),
        relaxed=float(values.relaxed[rows].mean()),
        difference=interval,
    )


def _named(records: Sequence[SampleRecord]) -> Iterator[tuple[str, list[Prompt]]]:
    """Yield every slice of an arm's prompts with its name; a slice that is all of them is none."""
    tasks: dict[str, dict[Prompt, SampleRecord]] = {}
    for record in records:
        tasks.setdefault(record.task, {})[record.task, record.item_id] = record
    for task, own in tasks.items():
        if len(tasks) > 1:
            yield task, list(own)
        yield from _families(task, own)
        yield from _lengths(task, own)


def _families(
    task: str, records: Mapping[Prompt, SampleRecord]
) -> Iterator[tuple[str, list[Prompt]]]:
    families: dict[str | None, list[Prompt]] = {}
    for prompt, record in records.items():
        families.setdefault(record.family, []).append(prompt)
    if len(families) > 1:
        for family, prompts in families.items():
            yield f"{task}, {family or 'no family'}", prompts


def _lengths(
    task: str, records: Mapping[Prompt, SampleRecord]
) -> Iterator[tuple[str, list[Prompt]]]:
    """Yield thirds of a task's prompts by their tokens; equally long ones stay together."""
    lengths = {prompt: len(record.prompt_ids) for prompt, record in records.items()}
    if not all(lengths.values()):
        return  # a served engine's prompts have no ids
    low, high = np.quantile(list(lengths.values()), (1 / 3, 2 / 3), method="lower")
    parts: dict[str, list[Prompt]] = {}
    for prompt, length in lengths.items():
        about = f"over {high}" if length > high else f"{low + 1} to {high}"
        about = f"up to {low}" if length <= low else about
        parts.setdefault(about, []).append(prompt)
    if len(parts) > 1:
        for about, prompts in sorted(parts.items(), key=lambda part: lengths[part[1][0]]):
            yield f"{task}, prompts of {about} tokens", prompts


def worst_slice(slices: Sequence[Slice], measure: Name = "score") -> WorstSlice | None:
    """Return the slice on which relaxed loses most; none of fewer than two."""
    if len(slices) < 2:
        return None
    worst = min(slices, key=lambda one: one.difference.estimate)
    return WorstSlice(
        name=worst.name,
        difference=worst.difference,
        unit=MEASURES[measure][2],
        num_prompts=worst.num_prompts,
        num_slices=len(slices),
    )


def slices_table(
    slices: Sequence[Slice],
    measure: Name = "score",
    names: tuple[str, str] = ("Strict", "Relaxed"),
) -> tuple[Table, ...]:
    """Return one row a slice; no table of fewer than two."""
    if len(slices) < 2:
        return ()
    unit = MEASURES[measure][2]
    level = PERCENT if measure == "score" else Unit(name=unit.name, digits=unit.digits)
    rows: list[dict[str, Value]] = [
        {
            "slice": one.name,
            "prompts": one.num_prompts,
            "strict": one.strict,
            "relaxed": one.relaxed,
            "difference": one.difference,
        }
        for one in slices
    ]
    columns = (
        Column(key="slice", label="Slice"),
        Column(key="prompts", label="Prompts", unit=COUNT),
        Column(key="strict", label=names[0], unit=level),
        Column(key="relaxed", label=names[1], unit=level),
        Column(key="difference", label="Difference", unit=unit),
    )
    note = (
        f"95 % intervals over prompts, each for itself: of {len(slices)} slices, one in twenty "
        f"misses by chance. Slices of fewer than {MIN_SLICE} prompts are left out."
    )
    return (Table.of("slices", f"Slices, by {MEASURES[measure][1]}", columns, rows, note=note),)
