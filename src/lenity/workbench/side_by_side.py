"""Two recorded runs side by side: paired by prompt, and refused where more than policies differ.

Counts, scores and texts are compared, each arm with the one of its name (a served engine's baseline
and candidate are an audit's strict and relaxed). Seconds are not: arms of two runs took no turns.
Needs no model and no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from lenity.errors import ProtocolError
from lenity.workbench.audit import EOS_RELAXED, EOS_STRICT
from lenity.workbench.comparable import (
    ArmIdentity,
    Difference,
    check_comparable,
    prompts_of,
)
from lenity.workbench.intervals import (
    bootstrap_gain,
    bootstrap_mean,
    bootstrap_ratio,
    paired_difference_interval,
)
from lenity.workbench.pairing import PairedValues, Pairs, mean_logprob, score
from lenity.workbench.parts import left_out, setting_of
from lenity.workbench.records import SampleRecord
from lenity.workbench.report.data import Disclosure, Missing, ReportData, Setting
from lenity.workbench.rundir import RunDir
from lenity.workbench.served import BASELINE, CANDIDATE, in_words, is_served
from lenity.workbench.tables import (
    COUNT,
    GAIN,
    NATS_APART,
    PERCENT,
    PLAIN,
    POINTS,
    Column,
    Table,
    Value,
)

SAME_ROLE = {BASELINE: EOS_STRICT, CANDIDATE: EOS_RELAXED}
"""What a served engine's arms are called beside another audit's."""
RESAMPLES = 2000
"""Of the bootstraps: a table of many rows is for reading, no verdict rests on it."""

Arms: TypeAlias = Mapping[str, Sequence[SampleRecord]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One of the two runs, read."""

    run: RunDir
    identity: ArmIdentity
    prompts: Mapping[tuple[str, str], tuple[int, ...]]
    arms: Arms

    @classmethod
    def of(cls, run: RunDir, *, as_words: bool) -> _Side:
        records = list(run.records())
        names = SAME_ROLE if is_served(run) else {}
        arms: dict[str, list[SampleRecord]] = {}
        for record in records:
            own = arms.setdefault(names.get(record.arm, record.arm), [])
            own.append(in_words(record) if as_words else record)
        return cls(
            run=run,
            identity=ArmIdentity.of(run.manifest.provenance, records),
            prompts=prompts_of(records),
            arms=arms,
        )


def compare_runs(first: RunDir, second: RunDir, *, force: bool = False) -> ReportData:
    """Return the report of two runs side by side; differences are second - first.

    Raises ProtocolError naming what differs where template, prompts, dtype, target or counters do;
    with ``force`` they are compared all the same and the report says "not comparable". Raises it,
    too, where the runs have no arm in common.
    """
    as_words = is_served(first) or is_served(second)
    left, right = (_Side.of(run, as_words=as_words) for run in (first, second))
    found = check_comparable(
        left.identity, right.identity, left.prompts, right.prompts, force=force
    )
    shared = [name for name in left.arms if name in right.arms]
    if not shared:
        raise ProtocolError(
            f"Expected an arm that both runs have, got {', '.join(left.arms) or 'none'} in "
            f"{first.path} and {', '.join(right.arms) or 'none'} in {second.path}. Give two runs "
            f"of one kind."
        )
    rows, excluded = _rows(left, right, shared)
    if not rows:
        raise ProtocolError(
            f"Expected a prompt that both runs answered, got none ({'; '.join(excluded[:3])}). "
            f"Give two runs of the same tasks."
        )
    return ReportData(
        kind="report",
        title="Two runs side by side",
        summary=f"First: {_told(first)}. Second: {_told(second)}. Differences are second - first.",
        created_at=second.manifest.started_at,
        setting=_setting(first, second),
        missing=_missing(left, right),
        tasks=_table(rows),
        tables=_settings_tables(first, second),
        disclosure=_disclosure(left, right, found, excluded),
    )


def _told(run: RunDir) -> str:
    return f"{run.path.name} ({run.manifest.run_id})"


def _setting(first: RunDir, second: RunDir) -> Setting:
    sides = []
    for run in (first, second):
        made = run.manifest.provenance
        sides.append(setting_of(made, ", ".join(one.spec for one in made.drafters) or None))
    one, other = sides
    if one == other:
        return one
    return Setting(
        models=one.models if one.models == other.models else f"{one.models}; {other.models}",
        hardware=(
            one.hardware if one.hardware == other.hardware else f"{one.hardware}; {other.hardware}"
        ),
    )


def _missing(left: _Side, right: _Side) -> tuple[Missing, ...]:
    """Return arms that have no counterpart, and what time left out of either run."""
    sides = ((left, right, "first"), (right, left, "second"))
    lonely = [
        Missing(what=f"Arm {name}", why=f"only the {place} run has it")
        for own, other, place in sides
        for name in own.arms
        if name not in other.arms
    ]
    return (*lonely, *(one for own, _, _ in sides for one in left_out(own.run.manifest.missing)))


def _rows(
    left: _Side, right: _Side, shared: Sequence[str]
) -> tuple[list[dict[str, Value]], list[str]]:
    """Return a row for each arm and task, and one of all tasks where there are several."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Value]] = []
    excluded: list[str] = []
    for arm in shared:
        pairs = Pairs.of(left.arms[arm], right.arms[arm], names=("the first", "the second"))
        excluded += [f"{arm}: {line}" for line in pairs.excluded]
        tasks = list(dict.fromkeys(one.task for one, _ in pairs.pairs))
        for task in ["all", *tasks] if len(tasks) > 1 else tasks:
            own = Pairs(pairs=tuple(p for p in pairs.pairs if task in ("all", p[0].task)))
            rows.append({"arm": arm, "task": task, **_row(own, rng)})
    return rows, excluded


def _row(pairs: Pairs, rng: np.random.Generator) -> dict[str, Value]:
    """Return what is known of two arms on some prompts; what cannot be said is left out."""
    row: dict[str, Value] = {
        "prompts": len({(record.task, record.item_id) for record, _ in pairs.pairs}),
        "equal": sum(_is_equal(*pair) for pair in pairs.pairs) / len(pairs.pairs),
    }
    scores = _values(pairs, score, "score")
    if scores is not None:
        row["first_score"] = float(scores.strict.mean())
        row["second_score"] = float(scores.relaxed.mean())
        row["score"] = paired_difference_interval(scores.differences)
    logprobs = _values(pairs, mean_logprob, "log-probability")
    if logprobs is not None:
        row["logprob"] = bootstrap_mean(logprobs.differences, rng, resamples=RESAMPLES)
    lengths = _values(pairs, lambda record: float(len(record.token_ids)), "length")
    if lengths is not None and lengths.strict.all():
        row["length"] = bootstrap_ratio(lengths.relaxed, lengths.strict, rng, resamples=RESAMPLES)
    passes = _values(pairs, _passes, "target pass")
    if lengths is not None and passes is not None and lengths.prompts == passes.prompts:
        first = np.stack([lengths.strict, passes.strict], axis=1)
        second = np.stack([lengths.relaxed, passes.relaxed], axis=1)
        row["first_passes"], row["second_passes"] = _rate(first), _rate(second)
        row["gain"] = bootstrap_gain(second, first, rng, resamples=RESAMPLES)
    return row


def _is_equal(one: SampleRecord, other: SampleRecord) -> bool:
    """Return whether two answers are the same: by token ids, by text where they are not known."""
    if one.rounds and other.rounds:
        return one.token_ids == other.token_ids
    return one.text == other.text


def _values(
    pairs: Pairs, measure: Callable[[SampleRecord], float | None], name: str
) -> PairedValues | None:
    try:
        return pairs.values(measure, name)
    except ProtocolError:
        return None


def _passes(record: SampleRecord) -> float | None:
    return float(sum(counts.target_passes for counts in record.rounds)) or None


def _rate(sums: Float[np.ndarray, "P 2"]) -> float:
    """Return tokens / target passes, summed over prompts."""
    tokens, passes = sums.sum(axis=0)
    return float(tokens / passes)


def _table(rows: Sequence[Mapping[str, Value]]) -> Table:
    columns = (
        Column(key="arm", label="Arm"),
        Column(key="task", label="Task"),
        Column(key="prompts", label="Prompts in both", unit=COUNT),
        Column(key="first_score", label="First score", unit=PERCENT),
        Column(key="second_score", label="Second score", unit=PERCENT),
        Column(key="score", label="Difference", unit=POINTS),
        Column(key="logprob", label="Log-probability per token", unit=NATS_APART),
        Column(key="first_passes", label="Tokens per target pass, first", unit=PLAIN),
        Column(key="second_passes", label="Tokens per target pass, second", unit=PLAIN),
        Column(key="gain", label="Tokens per target pass, second / first - 1", unit=GAIN),
        Column(key="length", label="Length, second / first", unit=PLAIN),
        Column(key="equal", label="Equal outputs", unit=PERCENT),
    )
    return Table.of("side_by_side", "Side by side", columns, rows, note=_NOTE)


_NOTE = (
    "95 % intervals over prompts that both runs answered. Seconds are not compared: arms of two "
    "runs did not take turns."
)


def _settings_tables(first: RunDir, second: RunDir) -> tuple[Table, ...]:
    """Return the settings in which the runs differ; no table where they do not."""
    pairs = list(_different(first.manifest.settings, second.manifest.settings))
    if not pairs:
        return ()
    columns = (
        Column(key="setting", label="Setting"),
        Column(key="first", label="First"),
        Column(key="second", label="Second"),
    )
    rows = [{"setting": name, "first": _spelled(a), "second": _spelled(b)} for name, a, b in pairs]
    return (Table.of("settings", "Settings that differ", columns, rows),)


def _different(
    left: Mapping[str, object], right: Mapping[str, object], prefix: str = ""
) -> Iterator[tuple[str, object, object]]:
    """Yield every key, dotted, under which two nested mappings differ, and both values."""
    for key in sorted({*left, *right}):
        ours, theirs = left.get(key), right.get(key)
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            yield from _different(ours, theirs, f"{prefix}{key}.")
        elif ours != theirs:
            yield f"{prefix}{key}", ours, theirs


def _spelled(value: object) -> str:
    return "none" if value is None else str(value)


def _disclosure(
    left: _Side, right: _Side, found: Sequence[Difference], excluded: Sequence[str]
) -> Disclosure:
    failed = [
        f"{place}: {r.arm} {r.task} {r.item_id}: {r.error}"
        for side, place in ((left, "first"), (right, "second"))
        for records in side.arms.values()
        for r in records
        if r.status == "failed"
    ]
    notes = ["Provenance is the first run's; the second's is in its own manifest."]
    if any(is_served(side.run) for side in (left, right)):
        notes.append("Lengths are counted in words between white space: an engine was served.")
    return Disclosure(
        provenance=left.run.manifest.provenance,
        run_ids=(left.run.manifest.run_id, right.run.manifest.run_id),
        protocols=("each arm against the arm of its name in the other run, paired by prompt",),
        exclusions=tuple(excluded),
        failed_samples=tuple(failed),
        not_comparable=tuple(difference.words for difference in found),
        notes=tuple(notes),
    )
