"""Parts of a report, made from records: who gave what away, how fast, where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lenity.errors import ProtocolError
from lenity.workbench.intervals import bootstrap_ratio, paired_difference_interval
from lenity.workbench.metrics import Counts, acceptance_by_position, rates, regret_histogram
from lenity.workbench.pairing import Pairs, score
from lenity.workbench.provenance import Provenance
from lenity.workbench.records import SampleRecord
from lenity.workbench.repetition import summarise_texts
from lenity.workbench.report.data import Missing, Setting
from lenity.workbench.report.plot_data import (
    AcceptanceByPosition,
    Latency,
    LatencyOfArm,
    PositionCurve,
    RegretOfArm,
    RegretSpent,
)
from lenity.workbench.tables import COUNT, NATS, PERCENT, PLAIN, POINTS, Column, Table, Value

Records = Sequence[SampleRecord]


def setting_of(provenance: Provenance, drafter: str | None) -> Setting:
    """Return what stands in every caption."""
    target, machine = provenance.target, provenance.hardware
    name = target.name if target is not None else "no target"
    dtype = f", {target.dtype}" if target is not None and target.dtype else ""
    devices = ", ".join(machine.gpus) or f"{machine.cores} cores of {machine.cpu}"
    threads = f", {provenance.threads} threads" if provenance.threads else ""
    return Setting(
        models=f"{name}, {drafter or 'no drafter'}", hardware=f"{devices}{threads}{dtype}"
    )


def left_out(missing: Mapping[str, int]) -> tuple[Missing, ...]:
    """Return what a report says of requests that time did not suffice for, by arm."""
    return tuple(
        Missing(what=f"{count} requests of {arm}", why="time was up before they were run")
        for arm, count in missing.items()
    )


def arms_table(arms: Mapping[str, Records], name: str = "arms", title: str = "Arms") -> Table:
    """Return one row an arm: counts, rates, regret, repetition. Failed requests are counted."""
    rows: list[dict[str, Value]] = []
    for arm, records in arms.items():
        counts, found, text = Counts.of(records), rates(records), summarise_texts(records)
        rows.append(
            {
                "arm": arm,
                "requests": counts.requests,
                "failed": counts.failed,
                "tokens": counts.emitted,
                "tokens_per_pass": found["tokens_per_target_pass"].pooled,
                "acceptance": found["acceptance_rate"].pooled,
                "relaxed": found["relaxed_share"].pooled,
                "skipped": found["skipped_share"].pooled,
                "coverage": found["coverage"].pooled,
                "regret": found["regret_per_request"].pooled,
                "repetition": text.repeated_ngram_rate,
                "truncated": text.truncation_rate,
            }
        )
    columns = (
        Column(key="arm", label="Arm"),
        Column(key="requests", label="Requests", unit=COUNT),
        Column(key="failed", label="Failed", unit=COUNT),
        Column(key="tokens", label="New tokens", unit=COUNT),
        Column(key="tokens_per_pass", label="Tokens per target pass", unit=PLAIN),
        Column(key="acceptance", label="Acceptance rate", unit=PERCENT),
        Column(key="relaxed", label="Relaxed tokens", unit=PERCENT),
        Column(key="skipped", label="Skipped tokens", unit=PERCENT),
        Column(key="coverage", label="Requests relaxed", unit=PERCENT),
        Column(key="regret", label="Regret per request", unit=NATS),
        Column(key="repetition", label="Repeated 4-grams", unit=PERCENT),
        Column(key="truncated", label="Truncated", unit=PERCENT),
    )
    return Table.of(name, title, columns, rows)


def tasks_table(
    strict: Records,
    relaxed: Records,
    rng: np.random.Generator | None = None,
    names: tuple[str, str] = ("strict", "relaxed"),
) -> Table:
    """Return one row a task: scores and their difference, tokens per target pass of both arms.

    Without ``rng``, as for a served engine, what a pass or a ledger knows is left out. ``names``
    are what the arms are called.
    """
    rows: list[dict[str, Value]] = []
    for task in dict.fromkeys(record.task for record in strict):
        theirs = [r for r in strict if r.task == task]
        ours = [r for r in relaxed if r.task == task]
        row: dict[str, Value] = {"task": task, "prompts": len({r.item_id for r in theirs})}
        values = scores_of(theirs, ours)
        if values is not None:
            row[f"{names[0]}_score"] = float(values[0].mean())
            row[f"{names[1]}_score"] = float(values[1].mean())
            row["difference"] = paired_difference_interval(values[1] - values[0])
        if rng is not None:
            row[f"{names[0]}_passes"] = _per_pass(theirs, rng)
            row[f"{names[1]}_passes"] = _per_pass(ours, rng)
            row["regret"] = rates(ours)["regret_per_request"].pooled
        rows.append(row)
    columns = [
        Column(key="task", label="Task"),
        Column(key="prompts", label="Prompts", unit=COUNT),
        *(Column(key=f"{n}_score", label=f"{n.capitalize()} score", unit=PERCENT) for n in names),
        Column(key="difference", label="Difference", unit=POINTS),
    ]
    if rng is not None:
        columns += [
            *(Column(key=f"{n}_passes", label=f"Tokens per pass, {n}", unit=PLAIN) for n in names),
            Column(key="regret", label="Regret per request", unit=NATS),
        ]
    return Table.of("tasks", "Tasks", columns, rows, note="95 % intervals over prompts.")


def scores_of(strict: Records, relaxed: Records) -> tuple[np.ndarray, np.ndarray] | None:
    """Return both arms' scores by prompt; None where fewer than two prompts have them."""
    if sum(record.score is not None for record in strict) < 2:
        return None
    try:
        values = Pairs.of(strict, relaxed).values(score, "score")
    except ProtocolError:
        return None
    return values.strict, values.relaxed


def _per_pass(records: Records, rng: np.random.Generator) -> Value:
    """Return tokens per target pass with an interval over prompts, where there are enough."""
    sound = [r for r in records if r.status == "ok" and r.token_ids]
    if len({r.item_id for r in sound}) < 2:
        return rates(records)["tokens_per_target_pass"].pooled
    tokens = [len(r.token_ids) for r in sound]
    passes = [sum(c.target_passes for c in r.rounds) for r in sound]
    return bootstrap_ratio(tokens, passes, rng, resamples=2000)


def acceptance(arms: Mapping[str, Records], protocol: str) -> AcceptanceByPosition | None:
    """Return acceptance by draft position; None where nothing was drafted."""
    curves = []
    for arm, records in arms.items():
        found = acceptance_by_position(records)
        if found:
            curves.append(
                PositionCurve(
                    arm=arm,
                    rate=tuple(p.rate for p in found),
                    conditional=tuple(p.conditional for p in found),
                )
            )
    return AcceptanceByPosition(protocol=protocol, arms=tuple(curves)) if curves else None


def latency(arms: Mapping[str, Records], protocol: str) -> Latency | None:
    """Return seconds per emitted token by stage; None where nothing was emitted."""
    rows = []
    for arm, records in arms.items():
        counts = Counts.of(records)
        if counts.emitted:
            rows.append(
                LatencyOfArm(
                    arm=arm,
                    draft_seconds=counts.draft_seconds / counts.emitted,
                    target_seconds=counts.target_seconds / counts.emitted,
                    verify_seconds=counts.verify_seconds / counts.emitted,
                    commit_seconds=counts.commit_seconds / counts.emitted,
                )
            )
    return Latency(protocol=protocol, arms=tuple(rows)) if rows else None


def regret(arms: Mapping[str, Records], budget: float | None, protocol: str) -> RegretSpent | None:
    """Return requests by regret spent; None where no arm gave anything away."""
    if not any(record.regret_spent for records in arms.values() for record in records):
        return None
    limit = budget if budget is not None and np.isfinite(budget) else None
    if limit is None:
        limit = max(r.regret_spent for records in arms.values() for r in records)
        budget = None
    rows = tuple(
        RegretOfArm(arm=arm, histogram=regret_histogram(records, limit))
        for arm, records in arms.items()
    )
    return RegretSpent(protocol=protocol, arms=rows, budget=budget)
