"""Reproduce verifier skipping (arXiv 2608.14787) in shape, on a real pair made of the demo model.

The drafter is what ``scripts/train_masked_drafter.py`` makes. Prompts are lenity's own of the
family ``data``: survival predictors learn from strict rounds on prompts of the training side that
the drafter did not see, everything else is measured on the held-out tenth. Five stages, each of
which goes on where it stopped when the same command is given again:

    traces    strict rounds with what the drafter said of its drafts      RUN/blocks
    offline   predictors by fold rotation, and what they are worth        RUN/hidden, RUN/scalars
    costs     seconds of a draft block and of a target pass               RUN/costs.json
    online    every arm on the same held-out prompts, with shadow passes  RUN/online
    page      the figures                                                 docs/reproduce/skipping.*

    python -m scripts.reproduce_skipping RUN --drafter DIR [--stages traces offline costs online
        page] [--trace-prompts 200] [--prompts 64] [--minutes 60]

Counts (target passes, draft blocks, agreement) are measured; no time is but the stage ``costs``,
since drafts and passes are remembered (``remembering_drafter.py``, ``remembering_target.py``).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import lenity
from lenity.cli.train_survival import lines
from lenity.requests import GenerationSettings
from lenity.training.prompts import prompts
from lenity.training.survival import Rotation, SurvivalSettings, rotate
from lenity.training.survival_blocks import Blocks, capture_blocks, read_blocks
from lenity.workbench.arms import Arms
from lenity.workbench.calibration import fit_temperatures
from lenity.workbench.config import Arm, NaturalEos
from lenity.workbench.diagnostics import position_metrics, write_blocks
from lenity.workbench.diagnostics import read_blocks as read_logged
from lenity.workbench.facts import target_facts
from lenity.workbench.jobs import Job
from lenity.workbench.manifest import begin
from lenity.workbench.protocols import Deadline, natural_eos
from lenity.workbench.provenance import collect
from lenity.workbench.rundir import RunDir
from scripts.remembering_drafter import RememberingDrafter, remembering_drafter
from scripts.remembering_target import RememberingTarget
from scripts.reproduce_skipping_grids import (
    COUNTS,
    GATED,
    LENIENCE,
    MIN_PREFIX,
    MIN_PREFIXES,
    PERIODS,
    TOP_K,
    grids,
)
from scripts.reproduce_skipping_summary import summarise

FAMILY = ("data",)
SEEN = 800
"""Prompts whose replies train_masked_drafter.py learns from; those behind them were not seen."""
GAMMA, STEPS, TRACE_TOKENS, NEW_TOKENS, BATCH = 8, 4, 96, 64, 8
GROUPS = ("signals", "baselines", "gates", "min_prefix")
STAGES = ("traces", "offline", "costs", "online", "page")
VARIANTS = "variants.json"
"""Which variant of each predictor goes online: the one with the lower loss offline."""


def main() -> int:
    """Run the stages asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="run directory, begun or continued")
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--trace-prompts", type=int, default=200)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--minutes", type=float, help="the online stage ends with what it has")
    parser.add_argument("--page", type=Path, default=Path("docs/reproduce"))
    chosen = parser.parse_args()
    drafter = remembering_drafter(chosen.drafter, steps=STEPS)
    target = lenity.load("demo:smollm2", dtype="float32")
    if "traces" in chosen.stages:
        traces(chosen.run, target, drafter, chosen.trace_prompts)
    if "offline" in chosen.stages:
        offline(chosen.run, target, str(drafter), chosen.trace_prompts)
    if "costs" in chosen.stages:
        costs(chosen.run, target, chosen.drafter)
    if "online" in chosen.stages:
        online(chosen.run, RememberingTarget(target), drafter, chosen)
    if "page" in chosen.stages:
        summarise(chosen.run, chosen.page)
    return 0


def trace_prompts(target: Any, count: int) -> list[dict[str, Any]]:
    """Return prompts of the training side that the drafter did not see."""
    texts = [text for _, text in prompts(FAMILY, SEEN + count, held_out=False)][SEEN:]
    return [{"family": "data", "prompt_ids": _rendered(target, text)} for text in texts]


def _rendered(target: Any, text: str) -> list[int]:
    ids: list[int] = target.tokenizer.encode_chat([{"role": "user", "content": text}])
    return ids


def traces(run: Path, target: Any, drafter: RememberingDrafter, count: int) -> None:
    """Decode strictly; keep what the drafter said of every block, and how far strict went."""
    decoder = lenity.Decoder(target=target, drafter=drafter, max_batch_size=BATCH)
    settings = GenerationSettings(gamma=GAMMA, max_new_tokens=TRACE_TOKENS)
    asked, began = trace_prompts(target, count), time.perf_counter()

    def say(done: int) -> None:
        print(f"traces: {done} prompts more, {time.perf_counter() - began:.0f} s", flush=True)

    capture_blocks(decoder, asked, run / "blocks", settings, progress=say)


def offline(run: Path, target: Any, drafter: str, count: int) -> None:
    """Train by fold rotation, with the drafter's state and without; log what the folds are told."""
    from lenity.training.store import key_of

    keys = [key_of(prompt["prompt_ids"]).hex() for prompt in trace_prompts(target, count)]
    blocks = read_blocks(run / "blocks", keys)
    losses: dict[str, dict[str, float]] = {"marginal": {}, "conditional": {}}
    for variant in ("hidden", "scalars"):
        for estimand in losses:
            settings = SurvivalSettings.model_validate(
                {"estimand": estimand, "has_hidden": variant == "hidden"}
            )
            rotations = rotate(blocks, settings, run / variant / estimand, drafter=drafter)
            _log(run / variant / f"{estimand}.jsonl", estimand, rotations)
            losses[estimand][variant] = _loss(run / variant / f"{estimand}.jsonl")
            print(f"offline: {variant} {estimand}", flush=True)
    _log(run / "raw.jsonl", "raw", rotations)
    chosen = {name: min(own, key=lambda v: own[v]) for name, own in losses.items()}
    (run / VARIANTS).write_text(json.dumps(chosen) + "\n")
    _calibrate(run, blocks, drafter)


def _calibrate(run: Path, blocks: Blocks, drafter: str) -> None:
    """Fit temperatures of the conditional predictor's product, on the validation folds."""
    settings = SurvivalSettings(estimand="conditional", is_calibrated=True)
    found = rotate(
        blocks,
        settings,
        run / "calibrated" / "conditional",
        drafter=drafter,
        calibrate=lambda *parts: fit_temperatures(*(part.numpy() for part in parts)),
    )
    _log(run / "calibrated" / "conditional.jsonl", "conditional", found)


def _loss(file: Path) -> float:
    return float(np.mean([metrics.bce for metrics in position_metrics(read_logged(file))]))


def _log(file: Path, signal: str, rotations: list[Rotation]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_blocks(file, lines(signal, rotations))


def costs(run: Path, target: Any, folder: Path) -> None:
    """Time draft blocks and target passes of plain masked_diffusion, one request at a time."""
    file = run / "costs.json"
    if file.is_file():
        return
    drafter = lenity.drafter("masked_diffusion", model=str(folder), steps=STEPS, dtype="bfloat16")
    decoder = lenity.Decoder(target=target, drafter=drafter)
    rounds = [
        made
        for _, text in prompts(FAMILY, 2, held_out=True)
        for made in decoder.generate(text, gamma=GAMMA, max_new_tokens=64).rounds[1:]
        if made.drafted == GAMMA
    ]
    found = {
        "rounds": len(rounds),
        "accepted": sum(made.accepted for made in rounds) / len(rounds),
        "draft_seconds": median(made.seconds.draft for made in rounds),
        "target_seconds": median(made.seconds.target + made.seconds.verify for made in rounds),
    }
    file.write_text(json.dumps(found, indent=1) + "\n")


def arms(run: Path, drafter: str) -> dict[str, list[Arm]]:
    """Return the arms by group, each group with a strict of its own.

    signals: the grids of every signal; baselines: lenience, top-k, periodic; gates: those left
    out one by one; min_prefix: K_min.
    """
    base = Arm(name="strict", drafter=drafter, gamma=GAMMA, batch_size=BATCH)
    groups: dict[str, list[Arm]] = {name: [base] for name in GROUPS}
    for name, spec in _skips(run):
        groups[_group(name)].append(base.renamed(name, skip=spec, shadow=True))
    relaxed = {f"lenience {ratio}": f"lenience:ratio={ratio}" for ratio in LENIENCE}
    relaxed |= {f"top_k {k}": f"top_k:k={k}" for k in TOP_K}
    groups["baselines"] += [base.renamed(name, policy=spec) for name, spec in relaxed.items()]
    return groups


def _group(name: str) -> str:
    first = name.split()[0]
    return first if first in GROUPS else "baselines" if first == "periodic" else "signals"


def _skips(run: Path) -> Iterator[tuple[str, str]]:
    """Yield names and specs of the arms that skip."""
    variants = json.loads((run / VARIANTS).read_text())
    places = {name: str(run / own / name / "fold-0") for name, own in variants.items()}
    places["product"] = "confidence"

    def spec(rule: str, local: float, prefix: float, least: int = MIN_PREFIX) -> str:
        name = "conditional" if rule == "product" else rule
        knobs = f"local={local},prefix={prefix},min_prefix={least}"
        return f"{name}:{knobs}" + (f",predictor={places[rule]}" if rule in places else "")

    for rule, pairs in grids().items():
        for local, prefix in pairs:
            yield f"{rule} {local} {prefix}", spec(rule, local, prefix)
    for period, count in product(PERIODS, COUNTS):
        yield f"periodic {period} {count}", f"periodic:period={period},count={count}"
    for rule, (local, prefix) in GATED.items():
        yield f"gates {rule} local", spec(rule, local, 0)
        yield f"gates {rule} prefix", spec(rule, 0, prefix)
        for least in MIN_PREFIXES:
            yield f"min_prefix {rule} {least}", spec(rule, local, prefix, least)


def online(run: Path, target: Any, drafter: RememberingDrafter, chosen: Any) -> None:
    """Decode held-out prompts, a batch of them in every arm before the next, until time is up."""
    texts = [text for _, text in prompts(FAMILY, chosen.prompts, held_out=True)]
    jobs = [
        Job(task="data@1", item_id=text, prompt_ids=tuple(_rendered(target, text)))
        for text in texts
    ]
    groups, origin = arms(run, str(drafter)), collect(target=target_facts(target))
    runs = {
        name: RunDir.create(run / "online" / name, begin("sweep", _stored(every), origin))
        for name, every in groups.items()
    }
    began, deadline = time.perf_counter(), Deadline(chosen.minutes)
    for start, (name, every) in product(range(0, len(jobs), BATCH), groups.items()):
        outcome = natural_eos(
            Arms(target, every, drafters={str(drafter): drafter}),
            jobs[start : start + BATCH],
            NaturalEos(max_new_tokens=NEW_TOKENS, block_size=BATCH),
            runs[name],
            deadline=deadline,
        )
        seconds = time.perf_counter() - began
        print(f"online: {name}, prompts from {start}: {outcome}, {seconds:.0f} s", flush=True)
    for made in runs.values():
        made.pause()


def _stored(every: list[Arm]) -> dict[str, Any]:
    return {"arms": [arm.model_dump(mode="json") for arm in every], "new_tokens": NEW_TOKENS}


if __name__ == "__main__":
    torch.set_num_threads(1)
    raise SystemExit(main())
