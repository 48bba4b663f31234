"""Train survival predictors on Strict SDD blocks, by rotations of prompt folds.

Prompts are shuffled with a fixed seed and dealt into folds. Rotation r tests on fold r, chooses the
epoch with the lowest cross-entropy on fold (r+1) mod n and trains on the others, so that every
block is judged by a predictor that saw nothing of its prompt (arXiv 2608.14787). A rotation that
is there is not trained again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import random
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from lenity.errors import ConfigError, RunDirError
from lenity.skipping.survival import (
    DESCRIPTION,
    WEIGHTS,
    Description,
    Estimand,
    SurvivalPredictor,
    load_predictor,
)
from lenity.training.store import write_atomically
from lenity.training.survival_blocks import Blocks

SETTINGS = "settings.json"

Calibrate = Callable[[Tensor, Tensor, Tensor], tuple[float, ...]]
"""(logits (N, G), lengths (N,), accepted (N,)) -> a temperature per position."""

logger = logging.getLogger(__name__)


class SurvivalSettings(BaseModel):
    """How a predictor is trained; the defaults are the paper's."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    estimand: Estimand
    """marginal: P(L >= j); conditional: P(L >= j given L >= j-1)"""
    has_hidden: bool = True
    """Whether the drafter's state is read beside the 19 numbers"""
    width: int = Field(default=256, ge=1)
    """Units of each of three hidden layers"""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Of Adam"""
    batch_size: int = Field(default=4096, ge=1)
    """Positions a step"""
    epochs: int = Field(default=15, ge=1)
    """Passes over the training folds; the best on the validation fold is kept"""
    seed: int = Field(default=0, ge=0)
    """Of weights, order and dropout"""
    num_folds: int = Field(default=5, ge=3)
    """Folds, and rotations"""
    fold_seed: int = Field(default=12345, ge=0)
    """Of the shuffle that deals prompts into folds"""
    is_calibrated: bool = False
    """Whether temperatures are fitted to the cumulative product, on the validation fold"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """A predictor, and what it says of the fold it never saw: ``scores`` (N, G), 0 behind a row."""

    fold: int
    folder: Path
    predictor: SurvivalPredictor
    test: Blocks
    scores: Float[Tensor, "N G"]


def fold_prompts(keys: Sequence[str], num_folds: int, seed: int) -> tuple[tuple[str, ...], ...]:
    """Return the folds of prompts: sorted, shuffled, dealt out one by one. Raises ConfigError."""
    order = sorted(set(keys))
    if len(order) < num_folds:
        raise ConfigError(
            f"Expected at least {num_folds} prompts with drafted blocks for {num_folds} folds, got "
            f"{len(order)}. Give more prompts."
        )
    random.Random(seed).shuffle(order)
    return tuple(tuple(order[fold::num_folds]) for fold in range(num_folds))


def rotate(
    blocks: Blocks,
    settings: SurvivalSettings,
    folder: Path,
    *,
    drafter: str = "",
    calibrate: Calibrate | None = None,
    progress: Callable[[int, float], None] = lambda fold, loss: None,
) -> list[Rotation]:
    """Return one rotation a fold; predictors are in fold-0, fold-1, ... of the folder.

    ``calibrate`` is asked where the settings say so. ``progress`` is told every fold's validation
    loss. Raises ConfigError for too few prompts, RunDirError for a folder of other settings.
    """
    folds = fold_prompts(blocks.prompts, settings.num_folds, settings.fold_seed)
    _open(folder, settings, folds)
    found = []
    for fold, keys in enumerate(folds):
        place = folder / f"fold-{fold}"
        if not (place / DESCRIPTION).is_file():
            other = (fold + 1) % settings.num_folds
            rest = [k for i, f in enumerate(folds) if i not in (fold, other) for k in f]
            validation = blocks.of_prompts(folds[other])
            predictor = fit(blocks.of_prompts(rest), validation, settings, drafter=drafter)
            if settings.is_calibrated and calibrate is not None:
                predictor = _calibrated(predictor, validation, calibrate)
            save_predictor(predictor, place)
        predictor = load_predictor(place)
        progress(fold, predictor.description.validation_loss or math.nan)
        test = blocks.of_prompts(keys)
        scores = predictor.probabilities(logits_of(predictor, test)) * test.counts("marginal")
        found.append(
            Rotation(fold=fold, folder=place, predictor=predictor, test=test, scores=scores)
        )
    return found


def fit(
    train: Blocks, validation: Blocks, settings: SurvivalSettings, *, drafter: str = ""
) -> SurvivalPredictor:
    """Return the predictor of the epoch with the lowest validation loss."""
    draw = torch.Generator().manual_seed(settings.seed)
    hidden_size = train.hidden.shape[-1] if settings.has_hidden else 0
    description = Description(
        estimand=settings.estimand, hidden_size=hidden_size, width=settings.width, drafter=drafter
    )
    predictor = SurvivalPredictor(description)
    _begin(predictor, draw)
    rows = _Rows(train, settings)
    _standardise(predictor, rows)
    held = _Rows(validation, settings)
    optimizer = torch.optim.Adam(predictor.layers.parameters(), lr=settings.learning_rate)
    best, kept = math.inf, deepcopy(predictor.state_dict())
    for epoch in range(settings.epochs):
        for inputs, labels in rows.batches(settings.batch_size, draw):
            loss = nn.functional.binary_cross_entropy_with_logits(predictor(inputs, draw), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        loss_held = held.loss(predictor, settings.batch_size)
        logger.info("epoch %d: validation %.4f nats", epoch + 1, loss_held)
        if loss_held < best:
            best, kept = loss_held, deepcopy(predictor.state_dict())
    return _described(predictor, kept, {"validation_loss": best})


def _described(
    predictor: SurvivalPredictor, state: dict[str, Tensor], changes: dict[str, object]
) -> SurvivalPredictor:
    again = SurvivalPredictor(predictor.description.model_copy(update=changes))
    again.load_state_dict(state)
    return again.eval()


def _begin(predictor: SurvivalPredictor, draw: torch.Generator) -> None:
    """Draw weights and biases as torch's Linear does: uniform in +-1 / sqrt(inputs)."""
    with torch.no_grad():
        for layer in predictor.layers:
            assert isinstance(layer, nn.Linear), "it is made of those"
            bound = layer.in_features**-0.5
            layer.weight.uniform_(-bound, bound, generator=draw)
            layer.bias.uniform_(-bound, bound, generator=draw)


class _Rows:
    """The training rows of blocks: inputs and labels of the positions that count."""

    def __init__(self, blocks: Blocks, settings: SurvivalSettings) -> None:
        """Keep where they are; inputs are put together batch by batch."""
        self._blocks, self._has_hidden = blocks, settings.has_hidden
        counts = blocks.counts(settings.estimand)
        self._index = counts.nonzero()
        self._labels = blocks.survives()[counts].to(torch.float32)

    def __len__(self) -> int:
        return len(self._labels)

    def inputs(self, rows: Tensor) -> Float[Tensor, "N F"]:
        """Return inputs of the rows: the drafter's state, then the numbers."""
        block, position = self._index[rows].unbind(-1)
        scalars = self._blocks.scalars[block, position]
        if not self._has_hidden:
            return scalars
        hidden = self._blocks.hidden[block, position].to(torch.float32)
        return torch.cat([hidden, scalars], -1)

    def batches(
        self, size: int, draw: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and labels, in an order drawn anew or as they stand."""
        order = (
            torch.arange(len(self)) if draw is None else torch.randperm(len(self), generator=draw)
        )
        for rows in order.split(size):
            yield self.inputs(rows), self._labels[rows]

    @torch.no_grad()
    def loss(self, predictor: SurvivalPredictor, size: int) -> float:
        """Return the mean cross-entropy in nats."""
        total = sum(
            float(nn.functional.binary_cross_entropy_with_logits(predictor(x), y, reduction="sum"))
            for x, y in self.batches(size)
        )
        return total / max(len(self), 1)


def _standardise(predictor: SurvivalPredictor, rows: _Rows) -> None:
    """Take mean and deviation of the training rows; a constant input becomes 0."""
    count, total, square = 0, torch.zeros(1), torch.zeros(1)
    for inputs, _ in rows.batches(1 << 14):
        count += len(inputs)
        total = total + inputs.double().sum(0)
    mean = total / max(count, 1)
    for inputs, _ in rows.batches(1 << 14):
        square = square + (inputs.double() - mean).square().sum(0)
    deviation = (square / max(count, 1)).sqrt()
    # float32 inputs that are all equal have a mean that may differ in the last place
    is_constant = deviation <= 1e-6 * mean.abs().clamp_min(1e-6)
    predictor.mean.copy_(mean)
    predictor.scale.copy_(torch.where(is_constant, 0.0, 1 / deviation.clamp_min(1e-30)))


@torch.no_grad()
def logits_of(predictor: SurvivalPredictor, blocks: Blocks) -> Float[Tensor, "N G"]:
    """Return the predictor's logits of all positions, those behind a block's length included."""
    inputs = blocks.scalars
    if predictor.description.hidden_size:
        inputs = torch.cat([blocks.hidden.to(torch.float32), inputs], -1)
    return predictor(inputs.flatten(0, 1)).unflatten(0, blocks.scalars.shape[:2])


def _calibrated(
    predictor: SurvivalPredictor, validation: Blocks, calibrate: Calibrate
) -> SurvivalPredictor:
    logits = logits_of(predictor, validation)
    found = calibrate(logits, validation.lengths, validation.accepted)
    return _described(predictor, predictor.state_dict(), {"temperatures": found})


def save_predictor(predictor: SurvivalPredictor, folder: Path) -> None:
    """Write a predictor; its description comes last, so that a folder with one is whole."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{WEIGHTS}.partial"
    save_file({k: v.contiguous() for k, v in predictor.state_dict().items()}, partial)
    os.replace(partial, folder / WEIGHTS)
    content = predictor.description.model_dump_json(indent=1)
    write_atomically(folder / DESCRIPTION, content.encode())


def _open(folder: Path, settings: SurvivalSettings, folds: Sequence[Sequence[str]]) -> None:
    """Begin a folder, or see that its predictors are of these settings and these very folds."""
    dealt = hashlib.sha256(json.dumps(folds).encode()).hexdigest()
    file = folder / SETTINGS
    content = json.dumps({"settings": settings.model_dump(), "prompts": dealt}, indent=1)
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content.encode())
    elif file.read_text() != content:
        raise RunDirError(
            f"Expected predictors trained on these {sum(map(len, folds))} prompts with {settings}, "
            f"got others in {folder}. Choose another folder, or delete that one."
        )
