"""A run directory: settings, the state to go on from, and the curve so far.

``settings.json`` is written once; ``state.pt`` by one rename; ``curve.jsonl`` grows by a line a
report. A run that was killed goes on from ``state.pt``, and lines after it are dropped.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lenity.errors import RunDirError
from lenity.training.settings import TrainingSettings
from lenity.training.store import write_atomically

SETTINGS, STATE, CURVE = "settings.json", "state.pt", "curve.jsonl"
FREE = (
    "steps",
    "max_minutes",
    "max_cpu_minutes",
    "checkpoint_every",
    "validate_every",
    "report_every",
)
"""Settings that a run may be continued with other values of."""


@dataclass(slots=True)
class Progress:
    """How far a run is.

    ``seconds`` is time spent on steps and ``cpu_seconds`` processor time of all threads, both over
    all parts of the run.
    """

    step: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    num_bases: int = 0
    best: float = 0.0


@dataclass(slots=True)
class RunState:
    """What a run needs to go on: its folder, drafter, optimiser and progress."""

    folder: Path
    head: nn.Module
    optimizer: torch.optim.Optimizer
    kept_ids: torch.Tensor
    progress: Progress = field(default_factory=Progress)

    def save(self) -> None:
        """Write the state; a killed run leaves the last one or this one."""
        buffer = io.BytesIO()
        torch.save(
            {
                "head": self.head.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "kept_ids": self.kept_ids,
                "progress": {name: getattr(self.progress, name) for name in _FIELDS},
            },
            buffer,
        )
        write_atomically(self.folder / STATE, buffer.getvalue())

    def restore(self, saved: dict[str, Any]) -> None:
        """Take over a saved state, and drop what the curve says beyond it."""
        self.head.load_state_dict(saved["head"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.progress = Progress(**saved["progress"])
        kept = [line for line in read_curve(self.folder) if line["step"] <= self.progress.step]
        text = "".join(json.dumps(line) + "\n" for line in kept)
        write_atomically(self.folder / CURVE, text.encode())

    def report(self, line: dict[str, Any]) -> None:
        """Append a line to the curve."""
        with (self.folder / CURVE).open("a") as file:
            file.write(json.dumps(line) + "\n")


_FIELDS = tuple(Progress.__dataclass_fields__)


def open_run(folder: Path, settings: TrainingSettings, target: str) -> dict[str, Any] | None:
    """Begin a run directory, or return the state to go on from. Raises RunDirError."""
    file = folder / SETTINGS
    mine = {"target": target, **settings.model_dump(mode="json")}
    if file.is_file():
        found = _read_json(file)
        other = [k for k in mine if k not in FREE and found.get(k) != mine[k]]
        if other:
            raise RunDirError(
                f"Expected a run with {other[0]}={mine[other[0]]!r} in {folder}, got one with "
                f"{found.get(other[0])!r}. Choose another directory, or continue with the "
                f"settings in {SETTINGS}."
            )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(file, (json.dumps(mine, indent=1) + "\n").encode())
    state = folder / STATE
    if not state.is_file():
        return None
    saved: dict[str, Any] = torch.load(state, map_location="cpu", weights_only=True)
    return saved


def read_curve(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's curve; a torn last line is left out."""
    file = folder / CURVE
    lines = []
    for text in file.read_text().splitlines() if file.is_file() else ():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines


def _read_json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise RunDirError(
            f"Expected the settings of a run in {file}, got something else ({error}). Choose "
            f"another directory."
        ) from None
    assert isinstance(found, dict)
    return found
