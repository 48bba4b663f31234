"""The report of a served engine's audit, from its directory alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lenity.workbench.judgements import judge_notes, judge_table
from lenity.workbench.parts import left_out, tasks_table
from lenity.workbench.records import SampleRecord
from lenity.workbench.repetition import summarise_texts
from lenity.workbench.report.data import Disclosure, ReportData, Setting, VerdictCard
from lenity.workbench.rundir import RunDir
from lenity.workbench.served import (
    BASELINE,
    CANDIDATE,
    ServedAudit,
    ServedSettings,
    served_settings,
)
from lenity.workbench.slices import slices_of, slices_table, worst_slice
from lenity.workbench.tables import COUNT, PERCENT, PLAIN, Column, Table, Value

UNKNOWN = (
    "A served engine keeps no ledger: how many tokens were relaxed, and at what regret, is not "
    "known.",
    "Token ids are not known: length, repetition and loops are counted in words between white "
    "space.",
    "Speed is not judged: seconds of a served engine are its machine's, the network's and the "
    "load's.",
)
"""What no audit from outside can say."""


def served_report(
    run: RunDir, audit: ServedAudit, missing: Mapping[str, int] | None = None
) -> ReportData:
    """Return the report of a recorded audit of a served engine."""
    settings, manifest = served_settings(run), run.manifest
    ours, theirs = settings.candidate, settings.baseline
    before, after = audit.records[BASELINE], audit.records[CANDIDATE]
    slices = slices_of(before, after, np.random.default_rng(settings.seed))
    tables = [_arms_table(audit.records)]
    tables += slices_table(slices, names=("Baseline", "Candidate"))
    if audit.judged:
        tables.append(judge_table(audit.judged, ("Baseline", "Candidate")))
    return ReportData(
        kind="audit",
        title=f"Audit of {ours.model}, served",
        summary=audit.decision.words,
        created_at=manifest.started_at,
        setting=Setting(
            models=f"{ours.model} at {ours.url}, against {theirs.model} at {theirs.url}",
            hardware="the engines' own, not known",
        ),
        missing=left_out(missing or manifest.missing),
        verdict=VerdictCard.of(audit.decision, audit.quality),
        tasks=tasks_table(before, after, names=(BASELINE, CANDIDATE)),
        worst_slice=worst_slice(slices),
        tables=tuple(tables),
        disclosure=_disclosure(run, settings, audit),
    )


def _arms_table(arms: Mapping[str, Sequence[SampleRecord]]) -> Table:
    """Return one row an arm: requests, failures, and what its texts are like, in words."""
    rows: list[dict[str, Value]] = []
    for arm, records in arms.items():
        text = summarise_texts(records)
        rows.append(
            {
                "arm": arm,
                "requests": len(records),
                "failed": sum(record.status == "failed" for record in records),
                "words": text.mean_tokens,
                "truncated": text.truncation_rate,
                "repetition": text.repeated_ngram_rate,
                "loop": text.longest_loop_share,
            }
        )
    columns = (
        Column(key="arm", label="Arm"),
        Column(key="requests", label="Requests", unit=COUNT),
        Column(key="failed", label="Failed", unit=COUNT),
        Column(key="words", label="Words per answer", unit=PLAIN),
        Column(key="truncated", label="Truncated", unit=PERCENT),
        Column(key="repetition", label="Repeated 4-grams of words", unit=PERCENT),
        Column(key="loop", label="Words in the longest loop", unit=PERCENT),
    )
    return Table.of("arms", "Answers", columns, rows)


def _disclosure(run: RunDir, settings: ServedSettings, audit: ServedAudit) -> Disclosure:
    failed = [r for records in audit.records.values() for r in records if r.status == "failed"]
    return Disclosure(
        provenance=run.manifest.provenance,
        run_ids=(run.manifest.run_id,),
        protocols=(
            f"natural EOS at temperature 0, through {settings.candidate.api} of the candidate and "
            f"{settings.baseline.api} of the baseline, {audit.quality.num_prompts} prompts",
        ),
        exclusions=audit.quality.excluded,
        failed_samples=tuple(f"{r.arm} {r.task} {r.item_id}: {r.error}" for r in failed),
        notes=(*UNKNOWN, _signal(audit), *_same(settings), *judge_notes(settings.judge, run)),
    )


def _signal(audit: ServedAudit) -> str:
    found = audit.signal.strict
    text = f"The baseline scores {found.estimate:.1%} ({found.low:.1%} to {found.high:.1%})."
    if audit.signal.has_signal:
        return text
    return (
        f"{text} It solves too little, or the prompts are too few, for a margin of "
        f"{audit.quality.margin:.1%} to mean something, and a served engine gives no "
        f"log-probabilities to judge by instead: quality stays undecided unless it is inferior."
    )


def _same(settings: ServedSettings) -> tuple[str, ...]:
    if settings.candidate != settings.baseline:
        return ()
    return ("Both arms are one engine: what differs is what it differs from itself by.",)
