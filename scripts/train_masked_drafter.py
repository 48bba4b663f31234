"""Make a masked-diffusion drafter for SmolLM2 on its own replies to narrow prompts.

Records the target's greedy replies to lenity's data-formatting prompts (none of the held-out
tenth), captures them, and trains the target's own layers to fill in blocks of masks. Every stage
goes on where it stopped when the same command is given again; more minutes continue a run that is
over. The drafter is in RUN/drafter, in Dream's layout; its weights are 270 MB, so they are
made and not shipped.

    python scripts/train_masked_drafter.py RUN [--replies FILE] [--prompts 800]
        [--cpu-minutes 30]

Measure it with ``python -m benchmarks.masked_drafter RUN/drafter``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import lenity
from lenity.training.capture import capture
from lenity.training.drafter import Trainer
from lenity.training.prompts import is_held_out, prompts
from lenity.training.replies import read_replies, write_replies
from lenity.training.settings import TrainingSettings

FAMILIES = ("data",)
RECIPE = "masked_diffusion:prefix=causal,num_blocks=8"
STEPS = 10**6
"""More than any budget has: the run ends by processor time."""


def main() -> int:
    """Record, capture, train; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="run directory, begun or continued")
    parser.add_argument("--target", default="demo:smollm2")
    parser.add_argument("--replies", type=Path, help="replies recorded before; others are added")
    parser.add_argument("--prompts", type=int, default=800)
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--recipe", default=RECIPE)
    parser.add_argument("--cpu-minutes", type=float, default=30.0)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--batch-size", type=int, default=4)
    chosen = parser.parse_args()
    target = lenity.load(chosen.target, dtype="float32")
    replies = _replies(chosen, target)
    store = capture(target, replies, chosen.run / "features", taps=())
    trainer = Trainer(target, store, _settings(chosen), chosen.run, report=_say)
    progress = trainer.run().progress
    print(f"{progress.step} steps in {progress.cpu_seconds / 60:.1f} minutes of processor time")
    return 0


def _replies(chosen: argparse.Namespace, target: Any) -> list[dict[str, Any]]:
    """Return the recorded replies of the family, those missing recorded first."""
    file = chosen.run / "replies.jsonl"
    known = [r for r in read_replies(chosen.replies) if _is_ours(r)] if chosen.replies else []
    if known and not file.is_file():
        chosen.run.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(reply) + "\n" for reply in known))
    asked = prompts(FAMILIES, chosen.prompts, held_out=False)
    write_replies(target, asked, file, max_new_tokens=chosen.max_new_tokens)
    return read_replies(file)


def _is_ours(reply: dict[str, Any]) -> bool:
    return reply["family"] in FAMILIES and not is_held_out(reply["prompt"])


def _settings(chosen: argparse.Namespace) -> TrainingSettings:
    return TrainingSettings(
        recipe=chosen.recipe,
        steps=STEPS,
        max_cpu_minutes=chosen.cpu_minutes,
        batch_size=chosen.batch_size,
        learning_rate=chosen.learning_rate,
        warmup_steps=20,
        report_every=5,
        validate_every=100,
        validation_replies=8,
        checkpoint_every=40,
    )


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
