"""Run everything that docs/reproduce/asd.md and docs/reproduce/priced.md report.

    python -m scripts.reproduce_asd RUNS                  # every part, the most telling ones first
    python -m scripts.reproduce_asd RUNS --part budget --part gate
    python -m scripts.reproduce_asd RUNS --print          # the commands, without running them

A part has a run directory of its own below RUNS; the ``lenity`` command that records the same is
printed before it runs. Every part goes on where it stopped. Two parts need a choice first, which
replay of strict traces makes: the settings of ASD and priced that spend alike
(RUNS/traces-levels.json), and the thresholds of the local rules (RUNS/traces-thresholds.json).
``python -m scripts.reproduce_asd_summary RUNS`` then reads the runs and writes the pages' tables.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lenity
from lenity.cli.studies import close_run
from lenity.policies import policy
from lenity.workbench.audit import AuditSettings, judge
from lenity.workbench.audit_report import audit_report
from lenity.workbench.audit_run import Study, run_audit
from lenity.workbench.config import FixedWork, NaturalEos
from lenity.workbench.manifest import MANIFEST, read_manifest
from lenity.workbench.matched import Spending
from lenity.workbench.operating_point import freeze, load_operating_point, save_operating_point
from lenity.workbench.replay import Replayer
from lenity.workbench.select import Questions
from lenity.workbench.sweep import SweepSettings
from lenity.workbench.sweep_report import sweep_report
from lenity.workbench.sweep_run import run_sweep
from lenity.workbench.trace import TRACES, RequestTrace, read_traces

TARGET, DTYPE = "demo:smollm2", "bfloat16"
FAMILIES = ("maths", "code", "chat", "data")
DISCOVERY = f"own_prompts:families={'+'.join(FAMILIES)},per_family=200"
OTHERS = f"{DISCOVERY},seed=1"
"""Prompts of another seed; a few dozen are among the first all the same."""
EAGLE = "eagle3:model=demo:smollm2"
SELF = "self_speculative"
NGRAM = "ngram"
ITSELF = "autoregressive:model=target"
ASD = "asd:budget=8,gate=0.25,block_cap=2"
"""The paper's setting."""
NUM_TOKENS = 48
LEVELS, HIGH_LEVELS = (1.5, 5.0), (10.0,)
"""Nats of mean regret per request of 48 tokens at which ASD and priced meet, live."""

BUDGETS = (0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, "inf")
GATES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 0.75, 1, 1.5, 2, "inf")
PRICES = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1, 1.4, 2, 2.8, 4, 6, 10)
CAPS = (1, 2, 3, "none")
ASD_GRID = tuple(
    f"asd:budget={b},gate={g},block_cap={m}" for b in BUDGETS for g in GATES for m in CAPS
)
PRICED_GRID = tuple(
    f"priced:budget={b},price={p},block_cap={m}"
    for b in BUDGETS
    for p in PRICES
    for m in ("none", 2)
)
PACED_GRID = tuple(
    f"priced:budget={b},price={p},price_max={p * times:g}"
    for b in BUDGETS[:-1]
    for p in PRICES[1:]
    for times in (2, 4, 8)
)
RATIOS = tuple(round(0.5 + 0.01 * i, 2) for i in range(50))
THRESHOLDS = tuple(round(0.01 * i, 2) for i in range(1, 70))


def main() -> int:
    """Run the parts asked for; return 1 where one of them is not complete."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="folder of the run directories")
    parser.add_argument("--part", action="append", help="only this one; repeatable")
    parser.add_argument("--print", action="store_true", help="print the commands only")
    chosen = parser.parse_args()
    target, left = None, []
    for name in chosen.part or PARTS:
        print(f"{time.strftime('%H:%M:%S')} lenity {shlex.join(command(name, chosen.runs))}")
        sys.stdout.flush()
        if chosen.print or _is_finished(chosen.runs / name):
            continue
        target = target or lenity.load(TARGET, dtype=DTYPE)
        run = run_audit_part if name == "audit" else run_sweep_part
        if not run(name, chosen.runs, target):
            left.append(name)
            print(f"{name} is not complete", flush=True)
    return int(bool(left))


def run_sweep_part(name: str, runs: Path, target: lenity.LanguageModel) -> bool:
    """Run or go on with a sweep and write its report; return whether it is complete."""
    study = Study(target=target, folder=runs / name)
    run, missing = run_sweep(study, settings(name, runs))
    close_run(run, sweep_report(run, missing), missing)
    return not missing


def run_audit_part(name: str, runs: Path, target: lenity.LanguageModel) -> bool:
    """Run or go on with the audit and write its report; return whether it is complete."""
    study = Study(target=target, folder=runs / name)
    run, missing = run_audit(study, load_operating_point(point(runs)), AUDIT)
    close_run(run, audit_report(run, judge(run), missing), missing)
    return not missing


def _is_finished(run: Path) -> bool:
    return (run / MANIFEST).is_file() and read_manifest(run).is_finished


def command(name: str, runs: Path) -> list[str]:
    """Return the ``lenity`` arguments that do the same as a part."""
    if name == "audit":
        return [
            *("audit", str(point(runs)), *_asked(AUDIT.questions, AUDIT.natural)),
            *("--work-prompts", str(AUDIT.work_prompts)),
            *("--work-tokens", str(AUDIT.fixed.new_tokens), "-o", str(runs / name)),
        ]
    chosen = settings(name, runs)
    return [
        *("sweep", chosen.preset, "--drafter", chosen.drafter, "--gamma", str(chosen.gamma)),
        *(word for value in chosen.values for word in ("--value", str(value))),
        *(["--divergence"] if chosen.divergence else []),
        *_asked(chosen.questions, chosen.natural),
        *("--batch-size", str(chosen.batch_size), "--dtype", DTYPE, "-o", str(runs / name)),
    ]


def _asked(questions: Questions, natural: NaturalEos) -> list[str]:
    tasks = [word for task in questions.tasks for word in ("--task", task)]
    limit = natural.max_new_tokens
    words = [*tasks, "--prompts", str(questions.num_prompts)]
    return words if limit is None else [*words, "-n", str(limit)]


def settings(name: str, runs: Path) -> SweepSettings:
    """Return what a part records; makes the choice it needs, if it needs one."""
    if name not in PARTS:
        raise SystemExit(f"No part {name!r}; there are {', '.join(PARTS)}.")
    chosen = PARTS[name]
    if name not in CHOICES:
        return chosen
    specs = CHOICES[name](runs, "traces").values()
    values = tuple(dict.fromkeys(spec for spec in specs if spec != "strict"))
    return chosen.model_copy(update={"values": values})


def _sweep(
    preset: str,
    drafter: str = EAGLE,
    *values: str,
    prompts: int = 16,
    tokens: int | None = NUM_TOKENS,
    **more: Any,
) -> SweepSettings:
    """Return a sweep on the prompts of the other seed."""
    tasks = more.pop("tasks", (OTHERS,))
    return SweepSettings(
        preset=preset,
        questions=Questions(tasks=tasks, num_prompts=prompts),
        drafter=drafter,
        values=values,
        batch_size=16,
        natural=NaturalEos(max_new_tokens=tokens),
        **{"gamma": 7, **more},
    )


PARTS: dict[str, Any] = {
    "traces": _sweep(
        "matched_regret",
        EAGLE,
        "strict",
        prompts=320,
        tokens=96,
        tasks=(DISCOVERY,),
        divergence=True,
    ),
    "priced": _sweep("matched_regret", prompts=320),
    "gate": _sweep("gate", EAGLE, "0", "0.05", "0.25", "0.5", "inf"),
    "budget": _sweep("budget", EAGLE, "0", "2", "8", "32"),
    "gamma": _sweep("gamma", gamma=5),
    "matched": _sweep("matched_regret"),
    "ngram-traces": _sweep(
        "matched_regret", NGRAM, "strict", prompts=32, tasks=(DISCOVERY,), divergence=True
    ),
    "ngram-budget": _sweep("budget", NGRAM, "2", "8", "32"),
    "self-budget": _sweep("budget", SELF, "2", "8", "32", tokens=32),
    "quality": _sweep(
        "budget",
        EAGLE,
        "2",
        "8",
        tasks=("small_exact:per_family=100",),
        prompts=256,
        tokens=None,
    ),
    "audit": None,
    "block_cap": _sweep("block_cap", EAGLE, "1", "none"),
    "ngram-gate": _sweep("gate", NGRAM, "0", "0.25", "inf"),
    "ngram-gamma": _sweep("gamma", NGRAM, "3", "7", gamma=5),
    "self-gate": _sweep("gate", SELF, "0", "0.25", "inf", tokens=32),
    "self-gamma": _sweep("gamma", SELF, "3", "7", tokens=32, gamma=5),
    "priced-high": _sweep("matched_regret", prompts=320),
    "target-budget": _sweep("budget", ITSELF, "8", prompts=8, tokens=32),
}
"""Run directory -> what its sweep records; the most telling ones first. ``audit`` is AUDIT."""
AUDIT = AuditSettings(
    questions=Questions(tasks=(OTHERS, "small_exact"), num_prompts=32),
    work_prompts=4,
    fixed=FixedWork(new_tokens=32),
    natural=NaturalEos(max_new_tokens=32),
)


def point(runs: Path) -> Path:
    """Return the operating point of the paper's setting, frozen as the traces' models were."""
    file = runs / "asd-point.yaml"
    if not file.is_file():
        provenance = read_manifest(runs / "traces").provenance
        save_operating_point(freeze(provenance, policy(ASD), drafter=EAGLE, gamma=7), file)
    return file


def cut(trace: RequestTrace, num_tokens: int) -> RequestTrace:
    """Return the rounds of a request that end within its first tokens."""
    end = trace.prompt_length + num_tokens
    kept = tuple(r for r in trace.rounds if r.start + r.emitted <= end)
    return trace.model_copy(update={"rounds": kept})


def strict_traces(run: Path, num_tokens: int | None = None) -> list[RequestTrace]:
    """Return the strict traces of a run, in order, cut if asked."""
    found = read_traces(run / TRACES, where=lambda trace: trace.arm == "strict")
    traces = found if num_tokens is None else (cut(trace, num_tokens) for trace in found)
    sound = [trace for trace in traces if trace.rounds]
    if not sound:
        raise SystemExit(f"No strict traces in {run}; run the part {run.name} first.")
    return sound


def spending(
    traces: Sequence[RequestTrace], specs: Sequence[str], *, gamma: int | None = None
) -> Spending:
    """Return what replay predicts of rules; strict is put in front. ``gamma`` cuts the blocks."""
    replayer = Replayer(traces)
    said = [replayer.predict(spec, gamma=gamma) for spec in ("strict", *specs)]
    found = Spending.of_predictions(said, [(t.task, t.item_id) for t in traces])
    return replace(found, specs=("strict", *specs))  # as they were asked for, defaults left out


def levels(
    runs: Path, traces: str, wanted: Sequence[float] = LEVELS, name: str = "levels"
) -> dict[str, str]:
    """Return the setting of either rule that gains most at each level; chosen once, then read.

    It is the one with most tokens per target pass of those that spend at most 3 % more than the
    level, by replay of strict traces cut to as many tokens as the live run has.
    """
    file = runs / f"{traces}-{name}.json"
    if not file.is_file():
        recorded = strict_traces(runs / traces, NUM_TOKENS)
        found = {}
        for rule, grid in (("asd", ASD_GRID), ("priced", PRICED_GRID)):
            curve = spending(recorded, grid)
            for level in wanted:
                allowed = (curve.mean_regret <= 1.03 * level).nonzero()[0]
                best = allowed[curve.tokens_per_pass[allowed].argmax()]
                found[f"{rule} at {level:g}"] = curve.specs[best]
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def high_levels(runs: Path, traces: str) -> dict[str, str]:
    """Return the settings at the high level."""
    return levels(runs, traces, HIGH_LEVELS, "high-levels")


def thresholds(runs: Path, traces: str) -> dict[str, str]:
    """Return ASD and the local rules in both readings; thresholds chosen once, then read.

    Purely local: the setting that gains most while its dearest request costs no more than ASD's;
    and the same with the dearest request allowed half as much again, for prompts differ. With a
    ledger: the setting that gains most under ASD's budget.
    """
    file = runs / f"{traces}-thresholds.json"
    if not file.is_file():
        recorded = strict_traces(runs / traces, NUM_TOKENS)
        cap = float(spending(recorded, [ASD]).max_regret[1])
        found = {"asd": ASD}
        for rule, knob, grid in (
            ("margin", "ratio", RATIOS),
            ("fuzzy", "threshold", THRESHOLDS),
        ):
            local = spending(recorded, [f"{rule}:{knob}={value}" for value in grid])
            held = spending(recorded, [f"{rule}:{knob}={value},budget=8" for value in grid])
            for name, curve, limit in (
                (f"{rule}, local", local, cap),
                (f"{rule}, local, looser", local, 1.5 * cap),
                (f"{rule} with a ledger", held, cap),
            ):
                best = curve.dearest_within(limit)
                found[name] = curve.specs[0 if best is None else best]
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return dict(json.loads(file.read_text(encoding="utf-8")))


CHOICES = {"priced": levels, "priced-high": high_levels, "matched": thresholds}
"""Parts whose rules replay chooses."""


if __name__ == "__main__":
    sys.exit(main())
