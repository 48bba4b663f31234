"""The report of a sweep, from its directory alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from lenity.errors import ProtocolError
from lenity.workbench.intervals import Interval, bootstrap_mean, bootstrap_ratio
from lenity.workbench.metrics import Counts, rates, relative_blocks, relative_calls
from lenity.workbench.pairing import Pairs, mean_logprob, score
from lenity.workbench.parts import acceptance, arms_table, left_out, setting_of
from lenity.workbench.records import SampleRecord
from lenity.workbench.repetition import summarise_texts
from lenity.workbench.report.data import Disclosure, ReportData
from lenity.workbench.report.plot_data import Sweep, SweepCurve, SweepPoint
from lenity.workbench.rundir import RunDir
from lenity.workbench.sweep import Step, SweepSettings, preset, reference_of, steps
from lenity.workbench.tables import NATS, NATS_APART, PERCENT, PLAIN, POINTS, Unit

Records: TypeAlias = Sequence[SampleRecord]
Measure: TypeAlias = Callable[[Records, Records], Interval | float | None]
"""(an arm's records, its strict arm's) -> what is plotted."""


def sweep_report(run: RunDir, missing: Mapping[str, int] | None = None) -> ReportData:
    """Return the report of a recorded sweep: one plot a measure."""
    settings = SweepSettings.model_validate(run.manifest.settings["sweep"])
    records: dict[str, list[SampleRecord]] = {}
    for record in run.records():
        records.setdefault(record.arm, []).append(record)
    known = [step for step in steps(settings) if step.arm.name in records]
    chosen = preset(settings.preset)
    protocol = f"natural EOS, {settings.questions.num_prompts} discovery prompts, gamma " + (
        "as shown" if chosen.kind == "gamma" else str(settings.gamma)
    )
    rng = np.random.default_rng(settings.seed)
    plots = [
        Sweep(
            protocol=protocol,
            run_id=run.manifest.run_id,
            key=key,
            title=title,
            x_label=chosen.x_label,
            y_label=title,
            y_unit=unit,
            curves=curves,
        )
        for key, title, unit, measure in _measures(rng, settings.resamples)
        if (curves := _curves(measure, known, records))
    ]
    return ReportData(
        kind="sweep",
        title=f"Sweep: {chosen.x_label}",
        summary=chosen.words,
        created_at=run.manifest.started_at,
        setting=setting_of(run.manifest.provenance, settings.drafter),
        missing=left_out(missing or run.manifest.missing),
        acceptance=acceptance({s.arm.name: records[s.arm.name] for s in known[:4]}, protocol),
        sweeps=tuple(plots),
        tables=(arms_table({s.arm.name: records[s.arm.name] for s in known}),),
        disclosure=Disclosure(
            provenance=run.manifest.provenance,
            run_ids=(run.manifest.run_id,),
            protocols=(protocol,),
        ),
    )


def _measures(rng: np.random.Generator, resamples: int) -> list[tuple[str, str, Unit, Measure]]:
    """Return what is plotted: key, label, unit, and how it is read off records."""

    def passes(own: Records, strict: Records) -> Interval | None:
        sound = [r for r in own if r.status == "ok" and r.token_ids]
        if len({r.item_id for r in sound}) < 2:
            return None
        tokens = [len(r.token_ids) for r in sound]
        counted = [max(sum(c.target_passes for c in r.rounds), 1) for r in sound]
        return bootstrap_ratio(tokens, counted, rng, resamples=resamples)

    def difference(own: Records, strict: Records, measure: str) -> Interval | None:
        try:
            pairs = Pairs.of(strict, own)
            chosen = score if measure == "score" else mean_logprob
            values = pairs.values(chosen, measure)
            return bootstrap_mean(values.differences, rng, resamples=resamples)
        except ProtocolError:
            return None

    return [
        ("tokens_per_pass", "Tokens per target pass", PLAIN, passes),
        (
            "relative_calls",
            "Target passes per token / strict's",
            PLAIN,
            lambda own, strict: relative_calls(Counts.of(own), Counts.of(strict)),
        ),
        (
            "relative_blocks",
            "Draft blocks per token / strict's",
            PLAIN,
            lambda own, strict: relative_blocks(Counts.of(own), Counts.of(strict)),
        ),
        (
            "regret_spent",
            "Regret per request",
            NATS,
            lambda own, strict: rates(own)["regret_per_request"].pooled,
        ),
        ("coverage", "Requests relaxed", PERCENT, lambda o, s: rates(o)["coverage"].pooled),
        ("score", "Score, arm − strict", POINTS, lambda o, s: difference(o, s, "score")),
        (
            "logprob",
            "Log-probability per token, arm − strict",
            NATS_APART,
            lambda o, s: difference(o, s, "logprob"),
        ),
        (
            "repetition",
            "Repeated 4-grams",
            PERCENT,
            lambda own, strict: summarise_texts(own).repeated_ngram_rate,
        ),
    ]


def _curves(
    measure: Measure, known: Sequence[Step], records: Mapping[str, Records]
) -> tuple[SweepCurve, ...]:
    """Return one line a rule, of the steps at which the measure has a value."""
    curves: dict[str, list[SweepPoint]] = {}
    for step in known:
        strict = records.get(reference_of(step, known).arm.name, ())
        value = measure(records[step.arm.name], strict)
        if value is not None:
            curves.setdefault(step.curve, []).append(SweepPoint(x=step.x, y=value))
    return tuple(
        SweepCurve(label=name, points=tuple(points), is_reference=name == "strict")
        for name, points in curves.items()
    )
