"""Captured features on disk: shards of whole sequences, written by one rename, read lazily.

A shard is a safetensors file. Sequences stand one behind the other: ``token_ids`` (N,) and
``features`` (N, F), which are the taps and then the state that enters the LM head; and one entry a
sequence in ``lengths``, ``starts`` (where the reply begins) and ``keys`` (8 bytes of the prompt's
hash). A shard that cannot be read whole is left out, and its replies are captured again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from lenity.errors import ConfigError, RunDirError
from lenity.models.base import LanguageModel
from lenity.models.loading import check_safetensors
from lenity.registry import explain_file

MANIFEST = "features.json"
KEY_BYTES = 8
"""Of a prompt's SHA-256: enough that no two prompts of one file share it."""
HELD_OUT_SHARE = 20
"""One reply in this many is kept for validation."""

logger = logging.getLogger(__name__)


class Manifest(BaseModel):
    """What a folder of features was made from; another target or other taps do not mix with it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = 1
    target: str
    hidden_size: int
    num_layers: int
    vocab_size: int
    taps: tuple[int, ...]
    max_length: int
    dtype: str

    @classmethod
    def of(
        cls, target: LanguageModel, taps: Sequence[int], max_length: int, dtype: torch.dtype
    ) -> Manifest:
        """Return the manifest of features of this target."""
        return cls(
            target=target.name,
            hidden_size=target.hidden_size,
            num_layers=target.num_layers,
            vocab_size=target.vocab_size,
            taps=tuple(taps),
            max_length=max_length,
            dtype=str(dtype).removeprefix("torch."),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One prompt with its reply: its place in a shard."""

    shard: int
    first: int
    length: int
    start: int
    key: bytes
    family: str

    @property
    def is_held_out(self) -> bool:
        """Whether the reply is for validation only; a function of its prompt alone."""
        return is_held_out(self.key)


@dataclass(slots=True)
class FeatureStore:
    """The readable shards of a folder."""

    folder: Path
    manifest: Manifest
    sequences: list[Captured] = field(default_factory=list)
    num_bytes: int = 0
    next_number: int = 0
    _shards: list[dict[str, Tensor]] = field(default_factory=list, repr=False)

    def read(self, index: int) -> tuple[Tensor, Tensor]:
        """Return token ids (T,) and features (T, F) of sequence ``index``, as they are stored."""
        item = self.sequences[index]
        shard, rows = self._shards[item.shard], slice(item.first, item.first + item.length)
        return shard["token_ids"][rows].to(torch.int64), shard["features"][rows]

    def keys(self) -> set[bytes]:
        """Return the keys of all captured prompts."""
        return {item.key for item in self.sequences}

    def split(self) -> tuple[list[int], list[int]]:
        """Return the indices of sequences for training and for validation."""
        held = [i for i, item in enumerate(self.sequences) if item.is_held_out]
        return [i for i, item in enumerate(self.sequences) if not item.is_held_out], held

    def add(self, file: Path) -> None:
        """Take in one shard. Raises ConfigError when it is not whole."""
        check_safetensors(file)
        from safetensors import safe_open
        from safetensors.torch import load_file

        shard = load_file(file)  # mapped, not copied: rows are read when they are asked for
        with safe_open(file, "pt") as opened:
            families = json.loads(opened.metadata()["families"])
        lengths, starts = shard["lengths"].tolist(), shard["starts"].tolist()
        first = 0
        for row, (length, start) in enumerate(zip(lengths, starts, strict=True)):
            self.sequences.append(
                Captured(
                    shard=len(self._shards),
                    first=first,
                    length=length,
                    start=start,
                    key=bytes(shard["keys"][row].tolist()),
                    family=families[row],
                )
            )
            first += length
        self._shards.append(shard)
        self.num_bytes += file.stat().st_size


def key_of(prompt_ids: Sequence[int]) -> bytes:
    """Return the key of a prompt."""
    return hashlib.sha256(json.dumps(list(prompt_ids)).encode()).digest()[:KEY_BYTES]


def is_held_out(key: bytes) -> bool:
    """Return whether the reply to the prompt with this key is for validation only."""
    return key[0] % HELD_OUT_SHARE == 0


def open_store(folder: Path, manifest: Manifest | None = None) -> FeatureStore:
    """Return the readable shards of a folder; with a manifest, begin it or see that it fits.

    Raises RunDirError for features of another target, or with other settings.
    """
    file = folder / MANIFEST
    if file.is_file():
        found = _read_manifest(file)
        if manifest is not None and found != manifest:
            raise RunDirError(_difference(folder, manifest, found))
    elif manifest is None:
        raise RunDirError(
            f"Expected captured features in {folder}, which has no {MANIFEST}. Capture them "
            f"first, or correct the path."
        )
    else:
        found = manifest
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(file, manifest.model_dump_json(indent=1).encode())
    store = FeatureStore(folder, found)
    for shard in sorted(folder.glob("shard-*.safetensors")):
        store.next_number = max(store.next_number, 1 + int(shard.stem.removeprefix("shard-")))
        try:
            store.add(shard)
        except ConfigError as error:
            logger.warning("%s Its replies are captured again.", error)
    return store


def write_shard(store: FeatureStore, tensors: dict[str, Tensor], families: Sequence[str]) -> None:
    """Write the next shard, which appears whole or not at all, and take it in."""
    from safetensors.torch import save_file

    file = store.folder / f"shard-{store.next_number:05d}.safetensors"
    partial = file.with_suffix(".partial")
    save_file(tensors, partial, metadata={"families": json.dumps(list(families))})
    os.replace(partial, file)
    store.next_number += 1
    store.add(file)


def write_atomically(file: Path, content: bytes) -> None:
    """Write a file so that a killed run leaves the old one or the new one."""
    partial = file.with_name(file.name + ".partial")
    partial.write_bytes(content)
    os.replace(partial, file)


def _read_manifest(file: Path) -> Manifest:
    try:
        return Manifest.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise RunDirError(
            f"Expected the manifest of captured features, got something else. "
            f"{explain_file(error, Manifest, file)} Choose another folder, or delete this one and "
            f"capture again."
        ) from None


def _difference(folder: Path, expected: Manifest, found: Manifest) -> str:
    mine, its = expected.model_dump(), found.model_dump()
    parts = [
        f"{name} {mine[name]} (there: {its[name]})" for name in mine if mine[name] != its[name]
    ]
    return (
        f"Expected features with {', '.join(parts)} in {folder}. Choose another folder for them, "
        f"or delete this one."
    )
