"""Read the runs of scripts/reproduce_asd.py and write what the pages say of them.

    python -m scripts.reproduce_asd_summary RUNS           # RUNS -> docs/reproduce/asd.json, tables
    python -m scripts.reproduce_asd_summary --tables       # docs/reproduce/asd.json -> tables only

Every table between ``<!-- table NAME -->`` and ``<!-- end -->`` in asd.md and priced.md is made
from asd.json by scripts/reproduce_asd_tables.py; what stands around it is written by hand. Runs
that are not there are left out, and the tables say so.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lenity.errors import ProtocolError
from lenity.workbench.audit import RELAXED
from lenity.workbench.config import STRICT_A, STRICT_B
from lenity.workbench.intervals import bootstrap_mean
from lenity.workbench.manifest import read_manifest
from lenity.workbench.matched import Spending, compare, paired_difference
from lenity.workbench.metrics import Counts
from lenity.workbench.opportunity import Opportunity, opportunity
from lenity.workbench.pairing import Pairs, mean_logprob, score
from lenity.workbench.records import SampleRecord
from lenity.workbench.repetition import repeated_ngram_rate, summarise_texts
from lenity.workbench.rundir import RECORDS, RunDir
from lenity.workbench.sweep import SweepSettings, steps
from scripts.reproduce_asd import (
    FAMILIES,
    PARTS,
    command,
    high_levels,
    levels,
    strict_traces,
    thresholds,
)
from scripts.reproduce_asd_plots import plot_knobs, plot_priced
from scripts.reproduce_asd_replay import (
    RESAMPLES,
    SEED,
    interval,
    knobs,
    level_row,
    local_rules,
    predicted,
    replayed,
)
from scripts.reproduce_asd_tables import PAGES, PAPER, write_tables

TAUS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
FOLLOWING = (0, 1, 2, 3)
FIXED_ARMS = (STRICT_A, RELAXED, STRICT_B)

Arms = Mapping[str, Sequence[SampleRecord]]


def main() -> int:
    """Summarise the runs, or take the summary there is, and write tables and plots."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="?", help="folder of the run directories")
    parser.add_argument("--tables", action="store_true", help="make the tables again only")
    chosen = parser.parse_args()
    file = PAGES / "asd.json"
    if not chosen.tables:
        if chosen.runs is None:
            parser.error("name the folder of the runs, or give --tables")
        file.write_text(json.dumps(summarise(chosen.runs), indent=1) + "\n", encoding="utf-8")
    summary = json.loads(file.read_text(encoding="utf-8"))
    write_tables(summary)
    plot_knobs(summary["knobs"], PAPER, PAGES / "asd-knobs.svg")
    plot_priced(summary, PAGES / "priced.svg")
    return 0


def summarise(runs: Path) -> dict[str, Any]:
    """Return all figures of the pages, by part; parts without a record are left out."""
    known = [name for name in PARTS if is_begun(runs / name)]
    out: dict[str, Any] = {"runs": {name: about(runs, name) for name in known}}
    out["arms"] = {
        name: by_family(arms_of(runs / name))
        for name in known
        if name != "audit" and not name.endswith("traces")
    }
    out["opportunity"] = {
        name: opportunities(runs / name) for name in known if name.endswith("traces")
    }
    if "traces" in known:
        out["knobs"] = knobs(runs / "traces")
        out["replay"] = replayed(runs / "traces")
        out["local"] = local_rules(runs / "traces")
        out["rules"] = thresholds(runs, "traces")
    chosen = {"priced": levels, "priced-high": high_levels}
    found = [live(runs, n, choose(runs, "traces")) for n, choose in chosen.items() if n in known]
    if found:
        out["live"] = {"levels": [row for rows in found for row in rows]}
    if "audit" in known:
        out["latency"] = latency(runs / "audit")
    return out


def is_begun(run: Path) -> bool:
    """Return whether a run has a request of every arm; an unfinished one may not."""
    if not (run / RECORDS).is_file():
        return False
    found = RunDir.open(run)
    asked = found.manifest.settings.get("sweep")
    arms = {record.arm for record in found.records()}
    if asked is None:
        return RELAXED in arms
    return {step.arm.name for step in steps(SweepSettings.model_validate(asked))} <= arms


def about(runs: Path, name: str) -> dict[str, Any]:
    """Return what a run is: its command, its target, its drafter's weights, its requests."""
    manifest = read_manifest(runs / name)
    provenance = manifest.provenance
    target = provenance.target
    return {
        "run_id": manifest.run_id,
        "command": "lenity " + " ".join(command(name, runs)).replace(str(runs), "runs/asd"),
        "target": target.name if target else None,
        "dtype": target.dtype if target else None,
        "drafter": [facts.fingerprint for facts in provenance.drafters],
        "hardware": provenance.hardware.model_dump(mode="json"),
        "requests": sum(1 for _ in RunDir.open(runs / name).records()),
        "state": manifest.state,
    }


def arms_of(run: Path) -> dict[str, list[SampleRecord]]:
    """Return the sound records of a run at natural EOS, by arm, on prompts that every arm has."""
    arms: dict[str, list[SampleRecord]] = {}
    for record in RunDir.open(run).records():
        if record.status == "ok" and record.repeat == 0:
            arms.setdefault(record.arm, []).append(record)
    shared = set.intersection(*({(r.task, r.item_id) for r in rows} for rows in arms.values()))
    return {arm: [r for r in rows if (r.task, r.item_id) in shared] for arm, rows in arms.items()}


def family_of(record: SampleRecord) -> str:
    """Return the family of a made prompt: the middle of its id."""
    return record.item_id.split("/")[1]


def by_family(arms: Arms) -> dict[str, dict[str, dict[str, Any]]]:
    """Return arm -> family ("all" first) -> what is said of it."""
    present = dict.fromkeys(family_of(record) for rows in arms.values() for record in rows)
    out: dict[str, dict[str, dict[str, Any]]] = {}
    for arm, rows in arms.items():
        strict = arms.get(reference(arm, arms), ())
        out[arm] = {"all": figures(rows, strict)}
        for family in present:
            own = [r for r in rows if family_of(r) == family]
            theirs = [r for r in strict if family_of(r) == family]
            out[arm][family] = figures(own, theirs)
    return out


def reference(arm: str, arms: Iterable[str]) -> str:
    """Return the strict arm that an arm stands beside: the one of its gamma in a gamma sweep."""
    suffix = arm.rpartition("-")[2]
    return f"strict-{suffix}" if f"strict-{suffix}" in arms else "strict"


def figures(rows: Sequence[SampleRecord], strict: Sequence[SampleRecord]) -> dict[str, Any]:
    """Return one arm's figures on some prompts, with intervals against strict."""
    counts, texts = Counts.of(rows), summarise_texts(rows)
    spent = [record.regret_spent for record in rows]
    out: dict[str, Any] = {
        "requests": counts.requests,
        "tokens_per_pass": _round(counts.emitted / counts.target_passes),
        "accepted_per_pass": _round(counts.accepted / counts.target_passes),
        "coverage": _round(counts.covered / counts.requests),
        "relaxed_share": _round(counts.relaxed / counts.emitted),
        "mean_regret": _round(float(np.mean(spent))),
        "max_regret": _round(max(spent)),
        "repetition": _round(texts.repeated_ngram_rate),
        "loops": _round(texts.longest_loop_share),
        "tokens": _round(texts.mean_tokens),
    }
    both = Spending.of_records({"strict": strict, "own": rows})
    pairs = Pairs.of(strict, rows)
    differs = [ours.token_ids != theirs.token_ids for ours, theirs in pairs.pairs]
    out["differs"] = _round(float(np.mean(differs)))
    rng = np.random.default_rng(SEED)
    out["gain"] = interval(
        paired_difference(both.settings([1]), both.settings([0]), rng, resamples=RESAMPLES)
    )
    out["logprob"] = difference(pairs, mean_logprob, "log-probability")
    out["score"] = difference(pairs, score, "score")
    out["repeats"] = difference(pairs, lambda r: repeated_ngram_rate(r.token_ids), "4-gram")
    scores = [record.score for record in rows if record.score is not None]
    out["mean_score"] = _round(float(np.mean(scores))) if scores else None
    return out


def difference(pairs: Pairs, measure: Any, name: str) -> list[float] | None:
    """Return the paired difference of a measure, arm - strict; none where it has none."""
    try:
        values = pairs.values(measure, name)
    except ProtocolError:
        return None
    rng = np.random.default_rng(SEED)
    return interval(bootstrap_mean(values.differences, rng, resamples=RESAMPLES))


def _round(value: float | None) -> Any:
    return None if value is None else round(float(value), 5)


def opportunities(run: Path) -> dict[str, Any]:
    """Return Omega of the strict traces, pooled and by family."""
    traces = strict_traces(run)
    groups = {"all": traces}
    for family in FAMILIES:
        groups[family] = [t for t in traces if t.item_id.split("/")[1] == family]
    maps: dict[str, Opportunity] = {
        name: opportunity(own, TAUS, FOLLOWING) for name, own in groups.items()
    }
    return {
        name: {
            "taus": found.taus,
            "following": found.num_following,
            "mismatches": found.num_mismatches,
            "positions": found.num_positions,
            "shares": [[_round(share) for share in row] for row in found.shares or ()],
        }
        for name, found in maps.items()
    }


def latency(run: Path) -> dict[str, dict[str, float]]:
    """Return seconds per emitted token by stage at fixed work, strict's sum being 1."""
    rows: dict[str, list[SampleRecord]] = {}
    for record in RunDir.open(run).records(where=lambda r: r.arm in FIXED_ARMS):
        rows.setdefault("strict" if record.arm.startswith("strict") else "asd", []).append(record)
    counts = {arm: Counts.of(own) for arm, own in rows.items()}
    whole = counts["strict"].decode_seconds / counts["strict"].emitted
    stages = ("draft", "target", "verify", "commit")
    out = {}
    for arm, found in counts.items():
        own = {s: getattr(found, f"{s}_seconds") / found.emitted / whole for s in stages}
        out[arm] = {s: _round(value) for s, value in {**own, "all": sum(own.values())}.items()}
    return out


def live(runs: Path, name: str, chosen: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return ASD against priced as measured, at the mean of what the two spend at each level.

    Made prompts repeat themselves, so that some are among those the settings were chosen on; the
    comparison without them stands beside that of all.
    """
    specs = list(dict.fromkeys(chosen.values()))
    arms = arms_of(runs / name)
    measured = Spending.of_records(arms)
    said = predicted(runs / "traces", specs)
    families = np.array([item.split("/")[1] for _, item in measured.prompts])
    groups = {"new prompts": is_new(measured, arms["strict"], runs / "traces")}
    groups |= {family: families == family for family in FAMILIES}
    curves = [
        measured.named(["strict", *(v for k, v in chosen.items() if k.startswith(rule))])
        for rule in ("priced", "asd")
    ]
    rows = []
    for level in dict.fromkeys(key.partition(" at ")[2] for key in chosen):
        both = [chosen[f"{rule} at {level}"] for rule in ("priced", "asd")]
        spent = float(measured.named(both).mean_regret.mean())
        row = {
            "asked": float(level),
            "run": name,
            "settings": {spec: _setting(measured, said, spec) for spec in ("strict", *both)},
            **_live_row(curves, spent),
        }
        row["families"] = {
            family: _live_row([curve.only(kept) for curve in curves], spent)
            for family, kept in groups.items()
        }
        rows.append(row)
    return rows


def is_new(measured: Spending, strict: Sequence[SampleRecord], traces: Path) -> np.ndarray:
    """Return which prompts are not among those the settings were chosen on."""
    known = {record.prompt_ids for record in RunDir.open(traces).records()}
    asked = {(record.task, record.item_id): record.prompt_ids for record in strict}
    return np.array([asked[key] not in known for key in measured.prompts], dtype=np.bool_)


def _live_row(curves: Sequence[Spending], level: float) -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    return level_row(compare([(curves[0], curves[1])], level, rng, resamples=RESAMPLES))


def _setting(measured: Spending, said: Spending, spec: str) -> dict[str, float]:
    """Return regret and tokens per pass of a setting, measured and predicted."""
    out = {}
    for label, curve in (("measured", measured.named([spec])), ("predicted", said.named([spec]))):
        out[f"{label}_regret"] = _round(curve.mean_regret[0])
        out[f"{label}_tokens_per_pass"] = _round(curve.tokens_per_pass[0])
    return out


if __name__ == "__main__":
    sys.exit(main())
