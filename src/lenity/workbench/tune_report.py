"""The report of a tune, from its directory alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lenity.workbench.metrics import Counts, relative_calls
from lenity.workbench.opportunity import opportunity
from lenity.workbench.pareto import Point, place
from lenity.workbench.parts import acceptance, arms_table, latency, left_out, regret, setting_of
from lenity.workbench.records import SampleRecord
from lenity.workbench.report.data import Disclosure, ReportData, VerdictCard
from lenity.workbench.report.plot_data import (
    Frontier,
    FrontierPoint,
    Opportunity,
    OpportunityOfTask,
    PredictedPoint,
    PredictedVsMeasured,
)
from lenity.workbench.rundir import RunDir
from lenity.workbench.tables import GAIN, NATS, NATS_APART, PLAIN, POINTS, Column, Table
from lenity.workbench.trace import read_traces
from lenity.workbench.tune import EOS, WORK, Candidate, Chosen, TuneSettings, measure


def tune_report(run: RunDir, missing: Mapping[str, int] | None = None) -> ReportData:
    """Return the report of a recorded tune, with what was measured so far."""
    settings = run.settings("tune", TuneSettings)
    records: dict[str, list[SampleRecord]] = {}
    for record in run.records():
        records.setdefault(record.arm, []).append(record)
    known = _candidates(run)
    measured = [c for c in known if f"{c.name}-{EOS}" in records and f"{c.name}-{WORK}" in records]
    points, kind = measure(records, [c.name for c in measured], settings)
    verdict = _chosen(run)
    eos = {arm.removesuffix(f"-{EOS}"): r for arm, r in records.items() if arm.endswith(EOS)}
    work = {arm.removesuffix(f"-{WORK}"): r for arm, r in records.items() if arm.endswith(WORK)}
    natural = f"natural EOS, {settings.questions.num_prompts} discovery prompts"
    fixed = f"fixed work, {settings.fixed.new_tokens} tokens"
    tables = [_candidate_table(known, points)]
    tables += [arms_table(eos, "natural_eos", "Natural EOS")] if eos else []
    return ReportData(
        kind="tune",
        title=f"Tune of {settings.drafter}",
        summary=None if verdict is None else f"Chosen: {_named(verdict.name, known)}.",
        created_at=run.manifest.started_at,
        setting=setting_of(run.manifest.provenance, settings.drafter),
        missing=left_out(missing or run.manifest.missing),
        verdict=None if verdict is None else _card(verdict, known),
        frontier=_frontier(points, eos, kind, settings, natural, verdict),
        acceptance=acceptance(eos, natural),
        latency=latency(work, fixed),
        regret=regret({k: v for k, v in eos.items() if k != "strict"}, None, natural),
        opportunity=_opportunity(run),
        predicted=_predicted(measured, eos),
        tables=tuple(tables),
        disclosure=Disclosure(
            provenance=run.manifest.provenance,
            run_ids=(run.manifest.run_id,),
            protocols=(natural, fixed),
        ),
    )


def _candidates(run: RunDir) -> list[Candidate]:
    path = run.path / "candidates.json"
    if not path.is_file():
        return []
    stored = json.loads(path.read_text())
    return [Candidate.model_validate(one) for one in stored["finalists"]]


def _chosen(run: RunDir) -> Chosen | None:
    path = run.path / "chosen.json"
    return Chosen.model_validate_json(path.read_text()) if path.is_file() else None


def _named(name: str, known: list[Candidate]) -> str:
    for candidate in known:
        if candidate.name == name:
            return f"{candidate.policy}, gamma {candidate.gamma}"
    return "plain decoding (off)" if name == "plain" else name


def _card(verdict: Chosen, known: list[Candidate]) -> VerdictCard:
    point = verdict.choice.point if verdict.choice.point else None
    is_candidate = point is not None and point.name == verdict.name
    return VerdictCard(
        outcome="off" if verdict.name == "plain" else "chosen",
        words=f"{_named(verdict.name, known)}: {verdict.gain_over_plain:+.1%} tokens a second over "
        f"plain decoding. Rule: {verdict.rule}.",
        gain=point.gain_interval if is_candidate and point else None,
        quality_difference=point.quality_interval if is_candidate and point else None,
    )


def _candidate_table(known: list[Candidate], points: list[Point]) -> Table:
    by_name = {placed.point.name: placed for placed in place(points)}
    rows: list[dict[str, Any]] = []
    for candidate in known:
        row: dict[str, Any] = {
            "name": candidate.name,
            "policy": candidate.policy,
            "gamma": candidate.gamma,
            "speedup": candidate.speedup,
            "passes": candidate.tokens_per_pass,
            "regret": candidate.regret,
        }
        placed = by_name.get(candidate.name)
        if placed is not None:
            row["gain"] = placed.point.gain_interval
            row["failed"] = ", ".join(placed.point.failed) or None
        rows.append(row)
    columns = (
        Column(key="name", label="Name"),
        Column(key="policy", label="Policy"),
        Column(key="gamma", label="gamma"),
        Column(key="speedup", label="Predicted speed / plain", unit=PLAIN),
        Column(key="passes", label="Predicted tokens per pass", unit=PLAIN),
        Column(key="regret", label="Predicted regret per request", unit=NATS),
        Column(key="gain", label="Measured gain over strict", unit=GAIN),
        Column(key="failed", label="Failed gates"),
    )
    return Table.of("finalists", "Finalists", columns, rows)


def _frontier(
    points: list[Point],
    eos: Mapping[str, list[SampleRecord]],
    kind: str,
    settings: TuneSettings,
    protocol: str,
    verdict: Chosen | None,
) -> Frontier | None:
    if not points or "strict" not in eos:
        return None
    strict = Counts.of(eos["strict"])
    drawn = [
        FrontierPoint(
            label="strict", quality=0.0, throughput=0.0, relative_calls=1.0, role="strict"
        )
    ]
    for placed in place(points):
        point = placed.point
        is_chosen = verdict is not None and verdict.name == point.name
        drawn.append(
            FrontierPoint(
                label=point.name,
                quality=point.quality_interval or point.quality,
                throughput=point.gain_interval or point.gain,
                relative_calls=relative_calls(Counts.of(eos[point.name]), strict),
                role="chosen" if is_chosen else "candidate",
                is_on_frontier=placed.is_on_frontier,
            )
        )
    is_score = kind == "score"
    return Frontier(
        protocol=protocol,
        points=tuple(drawn),
        quality_label="Score, relaxed − strict" if is_score else "Log-probability per token",
        quality_unit=POINTS if is_score else NATS_APART,
        throughput_label="Gain over strict",
        throughput_unit=GAIN,
        margin=settings.margin if is_score else settings.logprob_margin,
    )


def _opportunity(run: RunDir) -> Opportunity | None:
    traces = list(read_traces(run.path / "traces.jsonl"))
    drawn = []
    for task in dict.fromkeys(trace.task for trace in traces):
        found = opportunity(t for t in traces if t.task == task)
        shares = found.shares
        if shares is not None:
            drawn.append(
                OpportunityOfTask(
                    task=task,
                    taus=found.taus,
                    horizons=found.num_following,
                    shares=shares,
                    num_mismatches=found.num_mismatches,
                )
            )
    if not drawn:
        return None
    return Opportunity(protocol="strict traces, discovery prompts", tasks=tuple(drawn))


def _predicted(
    measured: list[Candidate], eos: Mapping[str, list[SampleRecord]]
) -> tuple[PredictedVsMeasured, ...]:
    points = []
    for candidate in measured:
        counts = Counts.of(eos[candidate.name])
        if counts.target_passes:
            points.append(
                PredictedPoint(
                    label=candidate.name,
                    predicted=candidate.tokens_per_pass,
                    measured=counts.emitted / counts.target_passes,
                )
            )
    if not points:
        return ()
    return (
        PredictedVsMeasured(
            protocol="replay of strict traces, natural EOS",
            key="tokens_per_pass",
            quantity="Tokens per target pass",
            points=tuple(points),
        ),
    )
