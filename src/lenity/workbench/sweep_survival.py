"""The sweep ``survival``: what recorded blocks say of raw confidence and of trained predictors.

Blocks are the test folds that ``lenity train survival`` logs; no model is loaded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, ValidationError

from lenity.errors import ConfigError, RegistryError, RunDirError
from lenity.registry import did_you_mean, split_spec
from lenity.workbench.diagnosis import REPETITIONS, Diagnosis, SignalGates, diagnose
from lenity.workbench.diagnostics import Signal, read_blocks
from lenity.workbench.records import Frozen

SIGNALS: tuple[Signal, ...] = get_args(Signal)


class BlocksSource(Frozen):
    """Where blocks come from."""

    target: str | None = None
    drafter: str | None = None
    gamma: int | None = None
    digests: dict[str, str]
    """Signal -> SHA-256 of its log"""


class SurvivalSweep(Frozen):
    """All that decides what the sweep computes."""

    preset: Literal["survival"] = "survival"
    gates: tuple[SignalGates, ...] = Field(min_length=1)
    """At which gates each signal is looked at"""
    source: BlocksSource
    repetitions: int = Field(default=REPETITIONS, ge=1)
    """Permutations of each signal"""
    seed: int = Field(default=0, ge=0)
    """Of the permutations"""


def survival_sweep(
    folder: Path, wanted: Sequence[str] = (), *, repetitions: int = REPETITIONS
) -> SurvivalSweep:
    """Return the settings for the logs in a run of ``lenity train survival``.

    ``wanted`` holds signals, or signals with gates such as raw:local=0.7,prefix=0.8; all logged
    signals at the published gates without. Raises ConfigError, RegistryError or RunDirError.
    """
    logged = tuple(name for name in SIGNALS if log_of(folder, name).is_file())
    if not logged:
        raise RunDirError(
            f"Expected logged blocks ({', '.join(f'{name}.jsonl' for name in SIGNALS)}) in "
            f"{folder}, got none. Give the folder of `lenity train survival --out`."
        )
    gates = tuple(map(_gates, wanted)) or tuple(map(SignalGates.of_paper, logged))
    names = [own.signal for own in gates]
    if len(set(names)) < len(names) or not set(names) <= set(logged):
        raise ConfigError(
            f"Expected each signal once, of {', '.join(logged)}, got {', '.join(names)}. Correct "
            f"the values."
        )
    digests = {
        str(name): hashlib.sha256(log_of(folder, name).read_bytes()).hexdigest() for name in names
    }
    source = BlocksSource(**_manifest(folder), digests=digests)
    return SurvivalSweep(gates=gates, source=source, repetitions=repetitions)


def log_of(folder: Path, signal: Signal) -> Path:
    """Return where the blocks of a signal are logged."""
    return folder / f"{signal}.jsonl"


def _gates(spec: str) -> SignalGates:
    name, knobs = split_spec(spec)
    signal = next((known for known in SIGNALS if known == name), None)
    if signal is None:
        raise RegistryError(
            f"Unknown signal {name!r}.{did_you_mean(name, SIGNALS)} Available: "
            f"{', '.join(SIGNALS)}."
        )
    try:
        paper = SignalGates.of_paper(signal).model_dump()
        return SignalGates.model_validate({**paper, **knobs, "signal": signal})
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            f"Expected a signal with gates, such as {signal}:local=0.9,prefix=0.9, got {spec!r}: "
            f"{first['msg']}. Correct it."
        ) from None


def _manifest(folder: Path) -> dict[str, str | int]:
    """Return what the capture says of its models; nothing where it cannot be read."""
    try:
        found = json.loads((folder / "blocks" / "blocks.json").read_text())
        return {name: found[name] for name in ("target", "drafter", "gamma")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def diagnose_all(folder: Path, settings: SurvivalSweep) -> tuple[Diagnosis, ...]:
    """Return what the blocks in a folder say, signal by signal."""
    return tuple(
        diagnose(
            read_blocks(log_of(folder, own.signal)),
            own,
            repetitions=settings.repetitions,
            seed=settings.seed,
        )
        for own in settings.gates
    )
