"""The report of an audit, from its directory alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lenity.workbench.audit import EOS_RELAXED, EOS_STRICT, RELAXED, Audit, settings_of
from lenity.workbench.config import PLAIN, STRICT_A, STRICT_B
from lenity.workbench.intervals import Interval
from lenity.workbench.judgements import judge_notes, judge_table
from lenity.workbench.metrics import Counts, relative_calls
from lenity.workbench.operating_point import OperatingPoint
from lenity.workbench.parts import (
    acceptance,
    arms_table,
    latency,
    left_out,
    regret,
    setting_of,
    tasks_table,
)
from lenity.workbench.records import SampleRecord
from lenity.workbench.report.data import Disclosure, ReportData, VerdictCard
from lenity.workbench.report.plot_data import Frontier, FrontierPoint
from lenity.workbench.rundir import RunDir
from lenity.workbench.samples import read_samples
from lenity.workbench.slices import slices_of, slices_table, worst_slice
from lenity.workbench.tables import NATS_APART, POINTS

SHOWN = {EOS_STRICT: "strict", EOS_RELAXED: "relaxed"}
"""Arms of natural EOS as they are called in plots."""


def audit_report(run: RunDir, audit: Audit, missing: Mapping[str, int] | None = None) -> ReportData:
    """Return the report of a recorded audit."""
    settings, manifest = settings_of(run), run.manifest
    frozen = run.settings("point", OperatingPoint)
    point = _point(frozen)
    eos = {name: audit.records.get(arm, ()) for arm, name in SHOWN.items()}
    if PLAIN in audit.records:
        eos = {PLAIN: audit.records[PLAIN], **eos}
    work = {
        arm: audit.records[arm] for arm in (STRICT_A, RELAXED, STRICT_B) if arm in audit.records
    }
    natural = f"natural EOS, {audit.quality.num_prompts} prompts"
    fixed = (
        f"fixed work, {settings.work_prompts} prompts x {settings.fixed.new_tokens} tokens, "
        f"{settings.fixed.repeats} repeats"
    )
    rng = np.random.default_rng(settings.seed)
    tables = [arms_table(eos, "natural_eos", "Natural EOS, all prompts")]
    if work:
        tables.append(arms_table(work, "fixed_work", "Fixed work, all repeats"))
    slices = slices_of(eos["strict"], eos["relaxed"], rng, measure=audit.quality.measure)
    tables += slices_table(slices, audit.quality.measure)
    if audit.judged:
        tables.append(judge_table(audit.judged))
    return ReportData(
        kind="audit",
        title=f"Audit of {point['policy']}",
        summary=audit.decision.words,
        created_at=manifest.started_at,
        setting=setting_of(manifest.provenance, point["drafter"]),
        missing=left_out(missing or manifest.missing),
        verdict=VerdictCard.of(audit.decision, audit.quality, audit.speed),
        operating_point=point,
        frontier=_frontier(audit, eos, natural),
        tasks=tasks_table(eos["strict"], eos["relaxed"], rng),
        worst_slice=worst_slice(slices, audit.quality.measure),
        acceptance=acceptance({k: v for k, v in eos.items() if k != PLAIN}, natural),
        latency=latency(work, fixed) if work else None,
        regret=regret({"relaxed": eos["relaxed"]}, _budget(frozen), natural),
        tables=tuple(tables),
        samples=read_samples(run.path),
        disclosure=_disclosure(run, audit, (natural, fixed)),
    )


def _point(stored: OperatingPoint) -> dict[str, Any]:
    """Return the deciding lines of a stored operating point, in order."""
    return {
        "target": stored.target.name,
        "dtype": stored.target.dtype,
        "drafter": stored.drafter.spec if stored.drafter else None,
        "policy": stored.policy,
        "gamma": stored.gamma,
        "skipping": stored.skipping,
        "batch_size": stored.batch_size,
    }


def _budget(stored: OperatingPoint) -> float | None:
    budget: Any = (stored.knobs or {}).get("budget")
    return None if budget is None else float(budget)


def _frontier(audit: Audit, arms: Mapping[str, Sequence[SampleRecord]], protocol: str) -> Frontier:
    """Place strict at no difference and no gain, the point where it was found."""
    counts = {arm: Counts.of(records) for arm, records in arms.items()}
    is_score = audit.quality.measure == "score"
    speed = audit.speed.triplets if audit.speed else None
    strict_tps = relaxed_tps = None
    if speed is not None and speed.kept:
        strict = [t.strict_tokens_per_second for t in speed.kept]
        strict_tps = sum(strict) / len(strict)
        gain = audit.speed.repeats if audit.speed else None
        relaxed_tps = _scaled(gain, strict_tps) if gain else strict_tps * (1 + speed.gains[0])
    points = [
        FrontierPoint(
            label="strict", quality=0.0, throughput=strict_tps, relative_calls=1.0, role="strict"
        ),
        FrontierPoint(
            label="audited point",
            quality=audit.quality.interval,
            throughput=relaxed_tps,
            relative_calls=relative_calls(counts["relaxed"], counts["strict"]),
            role="chosen",
            is_on_frontier=True,
        ),
    ]
    return Frontier(
        protocol=protocol,
        points=tuple(points),
        quality_label="Score, relaxed − strict" if is_score else "Log-probability per token",
        quality_unit=POINTS if is_score else NATS_APART,
        margin=audit.quality.margin,
    )


def _scaled(gain: Interval, base: float) -> Interval:
    """Return the throughput that a gain over ``base`` tokens a second is."""
    moved = {name: base * (1 + getattr(gain, name)) for name in ("estimate", "low", "high")}
    return gain.model_copy(update=moved)


def _disclosure(run: RunDir, audit: Audit, protocols: tuple[str, ...]) -> Disclosure:
    failed = [r for records in audit.records.values() for r in records if r.status == "failed"]
    dropped = audit.speed.triplets.dropped if audit.speed else ()
    notes = [audit.signal.words] if audit.signal else []
    if audit.noise is not None and audit.noise.share is not None:
        notes.append(
            f"Noise floor: {audit.noise.share:.1%} of {audit.noise.num_pairs} strict outputs "
            f"differ from plain decoding."
        )
    if audit.divergences.share is not None:
        notes.append(
            f"{audit.divergences.share:.1%} of {audit.divergences.num_pairs} relaxed outputs "
            f"differ from strict."
        )
    notes += judge_notes(settings_of(run).judge, run)
    return Disclosure(
        provenance=run.manifest.provenance,
        run_ids=(run.manifest.run_id,),
        protocols=protocols,
        exclusions=audit.quality.excluded,
        dropped_triplets=tuple(f"repeat {d.repeat}: {d.reason}" for d in dropped),
        failed_samples=tuple(f"{r.arm} {r.task} {r.item_id}: {r.error}" for r in failed),
        divergences={str(label): n for label, n in audit.divergences.counts.items()},
        notes=tuple(notes),
    )
