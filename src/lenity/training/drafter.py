"""The training loop: captured replies in, a published drafter and its curve out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lenity.errors import ConfigError, NonFiniteError
from lenity.models.base import LanguageModel
from lenity.models.heads.checkpoint import Checkpoint, open_checkpoint
from lenity.models.heads.made_for import MadeFor
from lenity.training.batches import endless, load_batch
from lenity.training.capture import Reply
from lenity.training.checkpoint import Sizes, begin_with, known_ids, write_drafter
from lenity.training.recipe import Outcome, Recipe, recipe
from lenity.training.run_state import Progress, RunState, open_run
from lenity.training.settings import TrainingSettings
from lenity.training.store import FeatureStore, is_held_out, key_of
from lenity.training.tables import TargetTables, choose_kept_ids
from lenity.training.validate import Walk, walk_all

DRAFTER = "drafter"
"""The folder of a run that holds the published drafter, the best on held-out replies so far."""

Report = Callable[[dict[str, Any]], None]
"""Told every line of the curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a run ended with. ``walks`` are those of the published drafter's last validation."""

    folder: Path
    progress: Progress
    walks: dict[str, Walk]
    sizes: Sizes | None


class Trainer:
    """One run: its drafter, its data, its place on disk."""

    def __init__(
        self,
        target: LanguageModel,
        store: FeatureStore,
        settings: TrainingSettings,
        folder: Path,
        *,
        replies: Iterable[Reply] | None = None,
        report: Report = lambda line: None,
    ) -> None:
        """Begin a run in ``folder``, or go on with the one there.

        The drafter's vocabulary is chosen from ``replies``, where more are recorded than captured.
        Raises ConfigError for features that do not fit the recipe, RunDirError.
        """
        self.settings, self.store, self.target = settings, store, target
        self.recipe: Recipe = recipe(settings.recipe)
        self._taps = self.recipe.tapped(target.num_layers)
        _check_taps(self._taps, store, target)
        self._train, self._held = store.split()
        if not self._train:
            raise ConfigError(
                f"Expected captured replies to train on, got {len(self._held)} in "
                f"{store.folder}, all held out. Record more replies and capture them."
            )
        saved = open_run(folder, settings, target.name)
        initial = None if saved else _open_initial(settings.initial, target)
        kept = saved["kept_ids"] if saved else None
        if initial is not None:
            kept = known_ids(initial, target.vocab_size)
        kept = self._choose_vocabulary(replies) if kept is None else kept
        self.tables = TargetTables(target, kept)
        head = self.recipe.build(target, self.tables, settings.seed).train()
        if initial is not None:
            begin_with(initial, self.recipe.publish(head, target, self.tables))
        self.state = RunState(folder, head, _optimizer(head, settings), kept)
        if saved:
            self.state.restore(saved)
        self._report, self._made_for = report, MadeFor.of(target)
        self._sizes: Sizes | None = None
        self._walks: dict[str, Walk] = {}
        self._is_bf16 = is_bf16(settings.precision, target.device)

    def run(self) -> Trained:
        """Train until the steps or the minutes are over; return what came of it."""
        progress, settings = self.state.progress, self.settings
        lengths = [self.store.sequences[i].length for i in self._train]
        skip = progress.step * settings.accumulate
        batches = endless(lengths, settings.batch_size, settings.seed, skip)
        while self.share_done < 1:
            began, cpu_began = time.perf_counter(), time.process_time()
            micro = [next(batches) for _ in range(settings.accumulate)]
            rate, outcomes, norm = self._step(micro)
            progress.step += 1
            progress.num_bases += sum(outcome.num_bases for outcome in outcomes)
            progress.seconds += time.perf_counter() - began
            progress.cpu_seconds += time.process_time() - cpu_began
            self._after(rate, outcomes, norm)
        if not self._walks:
            self._validate()
        self.state.save()
        return Trained(
            folder=self.state.folder, progress=progress, walks=self._walks, sizes=self._sizes
        )

    @property
    def share_done(self) -> float:
        """How much of the run is over, by steps or by time, whichever is further."""
        progress, settings = self.state.progress, self.settings
        spent = (
            (progress.seconds, settings.max_minutes),
            (progress.cpu_seconds, settings.max_cpu_minutes),
        )
        by_time = [seconds / (60 * minutes) for seconds, minutes in spent if minutes]
        return max(progress.step / settings.steps, *by_time, 0.0)

    def validate(self) -> dict[str, Walk]:
        """Return walks along the held-out replies, by family."""
        chosen = self._held[: self.settings.validation_replies]
        size = self.settings.batch_size
        parts = [chosen[i : i + size] for i in range(0, len(chosen), size)]
        self.state.head.eval()
        found = walk_all(map(self._hits, parts))
        self.state.head.train()
        return found

    def _hits(self, indices: Sequence[int]) -> tuple[Any, list[int], list[str]]:
        batch = load_batch(self.store, indices, self.target.device, self._taps)
        with self._autocast():
            hits = self.recipe.hits(self.state.head, batch, self.tables)
        items = [self.store.sequences[i] for i in indices]
        return hits, [i.length - i.start for i in items], [i.family for i in items]

    def _step(self, micro: Sequence[Sequence[int]]) -> tuple[float, list[Outcome], float]:
        """Take one optimiser step; return its learning rate, outcomes and gradient norm."""
        settings, head, step = self.settings, self.state.head, self.state.progress.step
        rate = settings.learning_rate * schedule(settings, step, self.share_done)
        for group in self.state.optimizer.param_groups:
            group["lr"] = rate
        outcomes = []
        for number, indices in enumerate(micro):
            seed = (settings.seed * 1_000_003 + step) * settings.accumulate + number
            draw = torch.Generator().manual_seed(seed)
            chosen = [self._train[i] for i in indices]
            batch = load_batch(self.store, chosen, self.target.device, self._taps)
            with self._autocast():
                outcome = self.recipe.outcome(head, batch, self.tables, draw)
            (outcome.loss / settings.accumulate).backward()
            outcomes.append(outcome)
        norm = float(nn.utils.clip_grad_norm_(head.parameters(), settings.clip))
        if not math.isfinite(norm):
            raise NonFiniteError(
                f"Expected a finite gradient at step {step}, got {norm}. Go on from the last "
                f"state with a lower learning_rate, or with precision=float32."
            )
        self.state.optimizer.step()
        self.state.optimizer.zero_grad(set_to_none=True)
        return rate, outcomes, norm

    def _after(self, rate: float, outcomes: Sequence[Outcome], norm: float) -> None:
        """Report, validate and save where it is time to."""
        progress, settings = self.state.progress, self.settings
        is_last = self.share_done >= 1
        if progress.step % settings.report_every == 0 or is_last:
            loss = sum(float(o.loss.detach()) for o in outcomes) / len(outcomes)
            accuracy = torch.stack([o.accuracy for o in outcomes]).mean(0).tolist()
            line = {"loss": round(loss, 5), "accuracy": [round(a, 4) for a in accuracy]}
            self._tell({**line, "learning_rate": rate, "gradient_norm": round(norm, 4)})
        if progress.step % settings.validate_every == 0 or is_last:
            self._validate()
        if progress.step % settings.checkpoint_every == 0 or is_last:
            self.state.save()

    def _validate(self) -> None:
        """Validate, and publish the drafter if none was better."""
        self._walks = self.validate()
        named = {
            family: {
                "tokens_per_pass": round(found.tokens_per_pass, 4),
                "acceptance": [round(rate, 4) for rate in found.acceptance],
                "num_rounds": found.num_rounds,
            }
            for family, found in self._walks.items()
        }
        self._tell({"validation": named})
        score = self._walks["all"].tokens_per_pass if self._walks else 0.0
        progress = self.state.progress
        if score >= progress.best or self._sizes is None:
            published = self.recipe.publish(self.state.head, self.target, self.tables)
            if score >= progress.best:
                self._sizes = write_drafter(
                    published, self.state.folder / DRAFTER, made_for=self._made_for
                )
            progress.best = max(score, progress.best)

    def _tell(self, line: dict[str, Any]) -> None:
        progress = self.state.progress
        place = {
            "step": progress.step,
            "seconds": round(progress.seconds, 2),
            "cpu_seconds": round(progress.cpu_seconds, 2),
            "num_bases": progress.num_bases,
        }
        self.state.report(place | line)
        self._report(place | line)

    def _choose_vocabulary(self, replies: Iterable[Reply] | None) -> torch.Tensor:
        """Return the ids the drafter knows; held-out replies are not counted."""
        if replies is None:
            ids = (self.store.read(i)[0][self.store.sequences[i].start :] for i in self._train)
        else:
            ids = (
                torch.tensor(reply["token_ids"])
                for reply in replies
                if not is_held_out(key_of(reply["prompt_ids"]))
            )
        size = self.recipe.draft_vocab_size
        return choose_kept_ids(ids, self.target.vocab_size, size, self.target.eos_token_ids)

    def _autocast(self) -> AbstractContextManager[Any]:
        kind = self.target.device.type
        return torch.autocast(kind, torch.bfloat16, enabled=self._is_bf16)


def schedule(settings: TrainingSettings, step: int, share_done: float) -> float:
    """Return the factor of the learning rate: a linear rise, then a cosine down to the floor."""
    rise = min(1.0, (step + 1) / settings.warmup_steps) if settings.warmup_steps else 1.0
    fall = 0.5 * (1 + math.cos(math.pi * min(1.0, share_done)))
    return rise * (settings.floor + (1 - settings.floor) * fall)


def is_bf16(precision: str, device: torch.device) -> bool:
    """Return whether products are taken in bfloat16; auto asks what the device multiplies fast."""
    if precision != "auto":
        return precision == "bfloat16"
    if device.type != "cpu":
        return True
    # Without such instructions, bfloat16 is emulated and slower than float32.
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def _open_initial(name: str | None, target: LanguageModel) -> Checkpoint | None:
    return None if name is None else open_checkpoint(name, target=target)


def _optimizer(head: nn.Module, settings: TrainingSettings) -> torch.optim.AdamW:
    matrices = [p for p in head.parameters() if p.ndim > 1]
    others = [p for p in head.parameters() if p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.learning_rate,
        betas=(0.9, 0.95),
    )


def _check_taps(wanted: Sequence[int], store: FeatureStore, target: LanguageModel) -> None:
    found = store.manifest.taps
    if not set(wanted) <= set(found) or store.manifest.hidden_size != target.hidden_size:
        raise ConfigError(
            f"Expected features of the layers {list(wanted)} of {target.name}, got "
            f"{list(found)} of {store.manifest.target} in {store.folder}. Capture them anew, or "
            f"name those layers with taps=."
        )
