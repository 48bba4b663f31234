"""Run everything that docs/reproduce/asd.md and docs/reproduce/priced.md report.

    python -m scripts.reproduce_asd RUNS                  # every part, the most telling ones first
    python -m scripts.reproduce_asd RUNS --part budget --part gate
    python -m scripts.reproduce_asd RUNS --print          # the commands, without running them

A part is one ``lenity`` command with a run directory of its own below RUNS; the command is printed
before it runs, and gives the same by hand. Every part goes on where it stopped. Two parts need a
choice first, which replay of strict traces makes: the settings of ASD and priced that spend alike
(RUNS/traces-levels.json), and the thresholds of the local rules (RUNS/traces-thresholds.json).
``python -m scripts.reproduce_asd_summary RUNS`` then reads the runs and writes the pages' tables.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lenity.policies import policy
from lenity.workbench.manifest import read_manifest
from lenity.workbench.matched import Spending
from lenity.workbench.operating_point import freeze, save_operating_point
from lenity.workbench.replay import Replayer
from lenity.workbench.trace import TRACES, RequestTrace, read_traces

FAMILIES = ("maths", "code", "chat", "data")
DISCOVERY = f"own_prompts:families={'+'.join(FAMILIES)},per_family=200"
OTHERS = f"{DISCOVERY},seed=1"
"""Prompts nothing is chosen on."""
EAGLE = "eagle3:model=demo:smollm2"
SELF = "self_speculative"
NGRAM = "ngram"
ITSELF = "autoregressive:model=target"
ASD = "asd:budget=8,gate=0.25,block_cap=2"
"""The paper's setting."""
NUM_TOKENS = 48
LEVELS = (1.5, 5.0)
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
    """Run the parts asked for; return 1 where one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="folder of the run directories")
    parser.add_argument("--part", action="append", help="only this one; repeatable")
    parser.add_argument("--print", action="store_true", help="print the commands only")
    chosen = parser.parse_args()
    failed = []
    for name in chosen.part or PARTS:
        arguments = command(name, chosen.runs)
        print(f"{time.strftime('%H:%M:%S')} lenity {shlex.join(arguments)}", flush=True)
        if not chosen.print and _run(arguments, chosen.runs / f"{name}.log"):
            failed.append(name)
            print(f"{name} is not complete, see {name}.log", flush=True)
    return int(bool(failed))


def _run(arguments: Sequence[str], log: Path) -> int:
    call = [sys.executable, "-c", "from lenity.cli.main import app; app()", *arguments]
    with log.open("a", encoding="utf-8") as out:
        return subprocess.run(call, stdout=out, stderr=subprocess.STDOUT, check=False).returncode


def command(name: str, runs: Path) -> list[str]:
    """Return a part's ``lenity`` arguments; makes the choice it needs, if it needs one."""
    if name not in PARTS:
        raise SystemExit(f"No part {name!r}; there are {', '.join(PARTS)}.")
    if name == "audit":
        return ["audit", str(point(runs)), *PARTS[name].split(), "-o", str(runs / name)]
    out = ["sweep", *PARTS[name].split(), "-o", str(runs / name), "--dtype", "bfloat16"]
    if name.endswith("priced"):
        out += _values(levels(runs, "traces" if name == "priced" else f"{name[:-7]}-traces"))
    if name.endswith("matched"):
        out += _values(thresholds(runs, "traces" if name == "matched" else f"{name[:-8]}-traces"))
    return out


def _sweep(
    preset: str, drafter: str = EAGLE, *, prompts: int = 24, more: str = "", values: str = ""
) -> str:
    """Return the arguments of a sweep on prompts that nothing was chosen on."""
    words = [preset, f"--task {OTHERS} --drafter {drafter} --prompts {prompts} --batch-size 16"]
    words += [more or f"--gamma 7 -n {NUM_TOKENS}", *(f"--value {v}" for v in values.split())]
    return " ".join(words)


PARTS = {
    "traces": (
        f"matched_regret --task {DISCOVERY} --drafter {EAGLE} --gamma 7 --value strict "
        f"--divergence --prompts 320 -n 96 --batch-size 16"
    ),
    "priced": _sweep("matched_regret", prompts=320),
    "gate": _sweep("gate", values="0 0.05 0.25 0.5 inf"),
    "budget": _sweep("budget", values="0 2 8 32"),
    "gamma": _sweep("gamma", more="-n 48"),
    "matched": _sweep("matched_regret"),
    "ngram-traces": (
        f"matched_regret --task {DISCOVERY} --drafter ngram --gamma 7 --value strict "
        f"--divergence --prompts 48 -n 48 --batch-size 16"
    ),
    "ngram-budget": _sweep("budget", NGRAM, prompts=16, values="2 8 32"),
    "self-budget": _sweep("budget", SELF, prompts=16, more="--gamma 7 -n 32", values="2 8 32"),
    "quality": (
        f"budget --task small_exact --drafter {EAGLE} --gamma 7 --prompts 64 --batch-size 16 "
        f"--value 2 --value 8 --value 32"
    ),
    "block_cap": _sweep("block_cap", values="1 none"),
    "audit": (
        f"--task {OTHERS} --task small_exact --prompts 48 --work-prompts 4 --work-tokens 32 -n 32"
    ),
    "ngram-gate": _sweep("gate", NGRAM, prompts=16, values="0 0.25 inf"),
    "ngram-gamma": _sweep("gamma", NGRAM, prompts=16, more="-n 48", values="3 7"),
    "self-gate": _sweep("gate", SELF, prompts=16, more="--gamma 7 -n 32", values="0 0.25 inf"),
    "self-gamma": _sweep("gamma", SELF, prompts=16, more="-n 32", values="3 7"),
    "target-budget": _sweep("budget", ITSELF, prompts=8, more="--gamma 7 -n 32", values="8"),
}
"""Run directory -> arguments of ``lenity sweep`` (audit: of ``lenity audit``); the most telling
ones first."""


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


def levels(runs: Path, traces: str) -> dict[str, str]:
    """Return the setting of either rule that gains most at each level; chosen once, then read.

    It is the one with most tokens per target pass of those that spend at most 3 % more than the
    level, by replay of strict traces cut to as many tokens as the live run has.
    """
    file = runs / f"{traces}-levels.json"
    if not file.is_file():
        recorded = strict_traces(runs / traces, NUM_TOKENS)
        found = {}
        for rule, grid in (("asd", ASD_GRID), ("priced", PRICED_GRID)):
            curve = spending(recorded, grid)
            for level in LEVELS:
                allowed = (curve.mean_regret <= 1.03 * level).nonzero()[0]
                best = allowed[curve.tokens_per_pass[allowed].argmax()]
                found[f"{rule} at {level:g}"] = curve.specs[best]
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return dict(json.loads(file.read_text(encoding="utf-8")))


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


def _values(chosen: dict[str, str]) -> list[str]:
    specs = dict.fromkeys(spec for spec in chosen.values() if spec != "strict")
    return [word for spec in specs for word in ("--value", spec)]


if __name__ == "__main__":
    sys.exit(main())
