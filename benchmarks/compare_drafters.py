"""EAGLE-3, DSpark and Medusa for one target, on equal budgets of processor time and equal data.

Every family reads the same captured replies, makes as many draft tokens, and is trained until it
has used its minutes of processor time on steps, which other work on the machine hardly changes.
Settings of each are one guess, not tuned. A run that was stopped goes on when the same command is
given again; with --results the curves and the table are written there.

    python -m benchmarks.compare_drafters --replies FILE --features DIR --out DIR
        [--cpu-minutes 8] [--results benchmarks/drafter_comparison.json]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

import lenity
from benchmarks.measure import machine
from lenity.models.base import LanguageModel
from lenity.training.drafter import Trained, Trainer
from lenity.training.replies import read_replies
from lenity.training.run_state import read_curve
from lenity.training.settings import TrainingSettings
from lenity.training.store import FeatureStore, key_of, open_store

ARMS = {
    "eagle3": "eagle3:taps={taps},unroll={depth}",
    "dspark": "dspark:taps={taps},block_size={depth},num_anchors=64",
    "medusa": "medusa:num_heads={depth}",
}
"""What is compared: as many draft tokens, the same taps, the recipe's defaults otherwise."""
VALIDATE_EVERY = {"eagle3": 100, "dspark": 300, "medusa": 800}
"""Steps between validations, whose time is not counted; a step of Medusa costs least."""
STEPS = 10**6
"""More than any budget has: runs end by time."""


def main() -> int:
    """Train every arm, print the table, return the exit status."""
    chosen = _arguments().parse_args()
    target = lenity.load(chosen.target, dtype=chosen.dtype)
    replies = read_replies(chosen.replies)
    store = open_store(chosen.features)
    known = {key_of(reply["prompt_ids"]) for reply in replies}  # more may be captured there
    store.sequences = [item for item in store.sequences if item.key in known]
    rows = []
    for name in chosen.arms:
        settings = _settings(name, chosen, store)
        trainer = Trainer(target, store, settings, chosen.out / name, replies=replies)
        trained = trainer.run()
        rows.append(_row(name, settings, trainer, trained))
        print(_line(rows[-1]), flush=True)
    if chosen.results is not None:
        found = _document(chosen, target, store, rows)
        chosen.results.write_text(json.dumps(found, indent=1) + "\n")
    print("\n" + HEAD, *map(_line, rows), sep="\n")
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="demo:smollm2")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--replies", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True, help="captured for all the taps")
    parser.add_argument("--out", type=Path, required=True, help="one run directory an arm")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--cpu-minutes", type=float, default=8.0)
    parser.add_argument("--depth", type=int, default=4, help="draft tokens of every arm")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--validation-replies", type=int, default=80)
    return parser


def _settings(name: str, chosen: argparse.Namespace, store: FeatureStore) -> TrainingSettings:
    taps = "+".join(map(str, store.manifest.taps))
    return TrainingSettings(
        recipe=ARMS[name].format(taps=taps, depth=chosen.depth),
        steps=STEPS,
        max_cpu_minutes=chosen.cpu_minutes,
        batch_size=chosen.batch_size,
        learning_rate=chosen.learning_rate,
        warmup_steps=50,
        validate_every=VALIDATE_EVERY[name],
        validation_replies=chosen.validation_replies,
    )


def _row(
    name: str, settings: TrainingSettings, trainer: Trainer, trained: Trained
) -> dict[str, Any]:
    progress = trained.progress
    num_parameters = sum(p.numel() for p in trainer.state.head.parameters())
    return {
        "family": name,
        "recipe": settings.recipe,
        "num_parameters": num_parameters,
        "steps": progress.step,
        "num_drafts": progress.num_bases,
        "seconds": round(progress.seconds, 1),
        "cpu_seconds": round(progress.cpu_seconds, 1),
        "cpu_seconds_per_1000_drafts": round(1000 * progress.cpu_seconds / progress.num_bases, 3),
        "tokens_per_pass": {
            family: round(walk.tokens_per_pass, 4) for family, walk in trained.walks.items()
        },
        "acceptance": [round(rate, 4) for rate in trained.walks["all"].acceptance],
        "curve": list(_curve(trained.folder).values()),
    }


def _curve(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the validations of a run by step; one that is looked at again validates again."""
    return {
        line["step"]: {
            "step": line["step"],
            "cpu_seconds": line["cpu_seconds"],
            "tokens_per_pass": {
                family: found["tokens_per_pass"] for family, found in line["validation"].items()
            },
        }
        for line in read_curve(folder)
        if "validation" in line
    }


def _document(
    chosen: argparse.Namespace, target: LanguageModel, store: FeatureStore, rows: list[Any]
) -> dict[str, Any]:
    training, held = store.split()
    replies = [store.sequences[i] for i in training]
    return {
        "target": target.name,
        "dtype": chosen.dtype,
        "cpu_minutes": chosen.cpu_minutes,
        "machine": machine(),
        "torch": torch.__version__,
        "training_replies": len(training),
        "training_reply_tokens": sum(item.length - item.start for item in replies),
        "validation_replies": min(len(held), chosen.validation_replies),
        "batch_size": chosen.batch_size,
        "learning_rate": chosen.learning_rate,
        "seed": 0,
        "arms": rows,
    }


HEAD = "family  parameters  steps    drafts  CPU s  CPU s / 1000 drafts  tokens per pass by family"


def _line(row: dict[str, Any]) -> str:
    passes = "  ".join(f"{name} {value:.2f}" for name, value in row["tokens_per_pass"].items())
    return (
        f"{row['family']:7} {row['num_parameters'] / 1e6:8.2f} M {row['steps']:6} "
        f"{row['num_drafts']:9} {row['cpu_seconds']:6.0f} "
        f"{row['cpu_seconds_per_1000_drafts']:20.2f}  {passes}"
    )


if __name__ == "__main__":
    sys.exit(main())
