"""Which layers of a model self-speculation skips: a saved set, and where saved sets are found."""

from __future__ import annotations

import glob
import hashlib
import os
import time
from importlib import resources
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lenity.errors import ConfigError
from lenity.models.base import LanguageModel
from lenity.models.packaged import cache_dir
from lenity.registry import explain

HOW_TO_SEARCH = (
    "Find one with lenity.drafters.layer_search.search_layers(model, prompts), keep it with "
    ".save(saved_path(model)), or name the layers yourself, such as skip=8+9+11."
)

SHIPPED_SUFFIX = ".layers.json"
"""Ending of the sets in lenity.demo."""

PART_SUFFIX = ".part"
"""Ending of a set that is being written."""
SAVE_SECONDS = 600
"""No save takes this long: an older file is a killed one's."""


class SearchSettings(BaseModel):
    """What a search measures, when it stops, and which of its sets is chosen."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    block_size: int = Field(default=4, ge=1)
    """Draft tokens per teacher-forced block"""
    num_tokens: int = Field(default=32, ge=1)
    """Most tokens of the target's continuation per prompt"""
    shortlist: int = Field(default=8, ge=1)
    """Layers tried per removal after the first, those that were cheapest to lose when last tried"""
    keep_share: float = Field(default=0.5, gt=0, le=1)
    """The search stops where a smaller share of the layers would be kept"""
    min_agreement: float = Field(default=0.8, ge=0, le=1)
    """The chosen set is the largest one whose agreement is at least this"""


class CurvePoint(BaseModel):
    """What is left when the search has removed one layer more.

    ``agreement`` = block positions whose argmax is the target's / block positions.
    ``accepted_length`` = mean, over blocks, of the agreeing positions before the first that does
    not. Both on the prompts searched with; the ``held_out_*`` pair on prompts the search never saw.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    removed: int
    num_skipped: int
    agreement: float
    accepted_length: float
    held_out_agreement: float | None = None
    held_out_accepted_length: float | None = None


class LayerSet(BaseModel):
    """Layers of one model that self-speculation may skip, and how the set was found.

    ``curve`` holds every set of the search: its first n removals are the set of n layers. The file
    carries no date, so that the same search gives the same bytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    model: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    dtype: str
    skipped: tuple[int, ...]
    agreement: float
    prompts_sha256: str
    num_positions: int
    settings: SearchSettings
    curve: tuple[CurvePoint, ...] = ()

    def fits(self, model: LanguageModel) -> bool:
        """Return whether the set was found on this model; weights are not compared."""
        ours = (self.model, self.num_layers, self.hidden_size, self.vocab_size)
        return ours == (model.name, model.num_layers, model.hidden_size, model.vocab_size)

    def save(self, path: Path) -> None:
        """Write the set as JSON, whole or not at all; what a killed save left is removed."""
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in path.parent.glob(f"{glob.escape(path.name)}.*{PART_SUFFIX}"):
            _remove_if_old(leftover)
        temporary = path.with_name(f"{path.name}.{os.getpid()}{PART_SUFFIX}")
        try:
            temporary.write_text(
                self.model_dump_json(indent=2, exclude_none=True) + "\n", encoding="utf-8"
            )
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> LayerSet:
        """Read a saved set. Raises ConfigError when the file is missing or is something else."""
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(
                f"Expected a saved layer set, could not read {path} ({error.strerror}). "
                f"{HOW_TO_SEARCH}"
            ) from None
        except (ValidationError, UnicodeDecodeError) as error:
            found = f"{error}."
            if isinstance(error, ValidationError):
                found = explain(error, cls, "layer set").splitlines()[0]
            raise ConfigError(
                f"Expected a saved layer set (schema 1), got something else in {path}: {found} "
                f"{HOW_TO_SEARCH}"
            ) from None


def _remove_if_old(leftover: Path) -> None:
    """Remove what a killed save left; a young file may be another process's, at work."""
    try:
        if time.time() - leftover.stat().st_mtime > SAVE_SECONDS:
            leftover.unlink()
    except FileNotFoundError:
        return  # the other process has ended


def saved_path(model: LanguageModel) -> Path:
    """Return where this model's own layer set is kept, in the user's cache directory.

    The name carries a digest of the model's name and sizes.
    """
    sizes = (model.name, model.num_layers, model.hidden_size, model.vocab_size)
    digest = hashlib.sha256(repr(sizes).encode()).hexdigest()[:16]
    return cache_dir() / "layers" / f"{digest}.json"


def find_layer_set(model: LanguageModel) -> LayerSet:
    """Return the set saved for this model, or else the one lenity ships for it.

    Raises ConfigError when there is neither.
    """
    own = saved_path(model)
    if own.is_file():
        return LayerSet.load(own)
    for file in resources.files("lenity.demo").iterdir():
        if file.name.endswith(SHIPPED_SUFFIX):
            shipped = LayerSet.model_validate_json(file.read_text(encoding="utf-8"))
            if shipped.fits(model):
                return shipped
    raise ConfigError(
        f"skip=auto expects a layer set found on {model.name} ({model.num_layers} layers), got "
        f"none: {own} does not exist, and lenity ships none for it. {HOW_TO_SEARCH}"
    )
