"""A drafter checkpoint on disk: its config, its tensors, and errors that say what is wrong.

Reading is apart from meaning: this file knows folders, hub ids and weight files; which format a
checkpoint has is decided in formats.py, what its tensors do in one file a format.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from lenity.errors import ConfigError, LenityError, ModelMismatchError, UnsupportedModelError
from lenity.models.base import LanguageModel
from lenity.models.heads.made_for import MadeFor, read_made_for
from lenity.paths import expanded

WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "medusa_lm_head.safetensors",
    "medusa_lm_head.pt",
)
"""Names looked for, in this order: of two copies of the weights, the one that runs no pickle."""
IGNORABLE = ("verifier_*", "*rotary_emb.*")
"""Keys that trainers leave in a drafter's file and that no drafter needs."""
_LISTED = 8
"""Keys named in one error: enough to recognise a format by."""

_Module = TypeVar("_Module", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a checkpoint: its file, its shape, and how to read it."""

    file: Path
    shape: tuple[int, ...]
    read: Callable[[], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A folder with a config and tensors that are read one by one.

    ``name`` is what the user asked for; ``config`` is ``config.json`` as it is written;
    ``made_for`` is None where nothing but the config says which target it was trained for.
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    entries: Mapping[str, Entry] = field(repr=False)
    made_for: MadeFor | None = None

    @property
    def keys(self) -> frozenset[str]:
        """Names of all tensors."""
        return frozenset(self.entries)

    def has(self, *keys: str) -> bool:
        """Return whether all these tensors are there."""
        return all(key in self.entries for key in keys)

    def shape(self, key: str) -> tuple[int, ...]:
        """Return a tensor's shape without reading it. Raises ModelMismatchError."""
        return self._entry(key).shape

    def tensor(self, key: str, shape: Sequence[int] | None = None) -> Tensor:
        """Return a tensor as it is stored, on the CPU; ``shape`` is what it has to be.

        Raises ModelMismatchError when it is missing, has another shape or is not finite, and
        ConfigError when the file cannot be read.
        """
        entry = self._entry(key)
        if shape is not None and entry.shape != tuple(shape):
            raise self.wrong_shape(key, tuple(shape))
        tensor = _guarded(entry.file, entry.read)
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ModelMismatchError(
                f"Expected finite weights, got NaN or infinity in {key!r} of {entry.file}. The "
                f"training run broke or the file is damaged: take another checkpoint of it."
            )
        return tensor

    def wrong_shape(self, key: str, expected: Sequence[int], why: str = "") -> ModelMismatchError:
        """Return the error of a tensor whose shape is not the expected one."""
        entry = self._entry(key)
        reason = f" ({why})" if why else ""
        return ModelMismatchError(
            f"Expected {key!r} of {entry.file} to have shape {tuple(expected)}{reason}, got "
            f"{entry.shape}. The config and the weights, or the drafter and the target, do not "
            f"belong together: check both names."
        )

    def missing(self, keys: Sequence[str], expected: Sequence[int] | None = None) -> LenityError:
        """Return the error of tensors that are not there; ``expected`` is the first one's shape."""
        shape = f" with shape {tuple(expected)}" if expected is not None else ""
        more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        return ModelMismatchError(
            f"Expected {keys[0]!r}{shape}{more} in {self.files}, which "
            f"{'hold' if len(self._file_names()) > 1 else 'holds'} no such tensor; found "
            f"{listed(sorted(self.entries))}. The download is incomplete, or this is another "
            f"format than its config says."
        )

    @property
    def files(self) -> str:
        """Return the weight files in words, for errors."""
        names = self._file_names()
        return f"{self.folder / names[0]}" + (f" (+{len(names) - 1})" if len(names) > 1 else "")

    def _file_names(self) -> list[str]:
        return sorted({entry.file.name for entry in self.entries.values()}) or ["(no tensor)"]

    def _entry(self, key: str) -> Entry:
        if key not in self.entries:
            raise self.missing([key])
        return self.entries[key]


PACKAGED = {"demo:smollm2": "smollm2-eagle3"}
"""Drafters that lenity ships, by the name of the target they were trained for."""


def open_checkpoint(
    name: str | Path, *, revision: str | None = None, target: LanguageModel | None = None
) -> Checkpoint:
    """Open a folder, or a hub id, with ``config.json`` and weights.

    Nothing but headers is read from safetensors; ``.bin`` and ``.pt`` files are unpickled with
    ``weights_only``. Raises ConfigError for what is not there or cannot be read, and
    ModelMismatchError for a drafter that says it was trained for another target than ``target``.
    """
    folder = _find_folder(str(name), revision)
    config = read_json(folder / "config.json")
    quantised = config.get("quantization_config") or config.get("compression_config")
    if quantised:
        raise UnsupportedModelError(
            f"Expected plain weights, got a quantised drafter in {folder} ({listed(quantised)}). "
            f"Use its unquantised checkpoint; a drafter is small."
        )
    made_for = read_made_for(folder)
    if made_for is not None and target is not None:
        made_for.check(str(name), target)
    entries: dict[str, Entry] = {}
    for file in _weight_files(folder):
        entries |= _guarded(file, partial(_read_entries, file))
    return Checkpoint(
        name=str(name), folder=folder, config=config, entries=entries, made_for=made_for
    )


def fill(
    module: _Module,
    checkpoint: Checkpoint,
    *,
    names: Callable[[str], str] = str,
    ignored: Iterable[str] = (),
    dtype: torch.dtype,
    device: torch.device,
) -> _Module:
    """Give every parameter of ``module`` its tensor; return the module, in eval mode and frozen.

    The module may stand on the meta device. ``names`` maps a parameter's name to its key.
    ``ignored`` are patterns of keys that were read elsewhere or are not needed. Every other key
    has to be used: a weight nobody asked for means another architecture. Raises
    ModelMismatchError naming file, key, expected and found shape.
    """
    wanted = {own: names(own) for own in module.state_dict()}
    shapes = {wanted[own]: tuple(tensor.shape) for own, tensor in module.state_dict().items()}
    missing = [key for key in shapes if key not in checkpoint.entries]
    if missing:
        raise checkpoint.missing(missing, shapes[missing[0]])
    patterns = (*IGNORABLE, *ignored)
    unexpected = [
        key
        for key in sorted(checkpoint.keys - set(shapes))
        if not any(fnmatchcase(key, pattern) for pattern in patterns)
    ]
    if unexpected:
        raise ModelMismatchError(
            f"Expected the {len(shapes)} tensors of a {type(module).__name__} in "
            f"{checkpoint.files}, got {len(unexpected)} that belong to none of its parts: "
            f"{listed(unexpected)}. This is a variant that lenity does not know."
        )
    state = {
        own: checkpoint.tensor(key, shapes[key]).to(device=device, dtype=dtype)
        for own, key in wanted.items()
    }
    module.load_state_dict(state, assign=True)
    return module.eval().requires_grad_(False)


def listed(names: Iterable[str]) -> str:
    """Return the first names, quoted, and how many more there are."""
    names = list(names)
    head = ", ".join(repr(name) for name in names[:_LISTED])
    return head + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "") or "none"


def _find_folder(name: str, revision: str | None) -> Path:
    if name in PACKAGED:
        return Path(str(resources.files("lenity.demo"))) / PACKAGED[name]
    path = expanded(name)
    if path.is_dir():
        return path
    if path.exists() or path.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1:
        raise ConfigError(
            f"Expected a folder with a drafter's config.json and weights, or a hub id such as "
            f"'org/drafter', got {name!r}, which "
            f"{'is a file' if path.exists() else 'does not exist'}. Correct the path."
        )
    return _download(name, revision)


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    patterns = ["*.json", "*.safetensors", "*.bin", "*.pt"]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = str(error).strip().partition("\n")[0][:300] or type(error).__name__
        raise ConfigError(
            f"Expected the drafter {name!r} on the hub or in the hub's cache, got "
            f"{type(error).__name__}: {reason} Give a folder, or fill the cache while online "
            f"(HF_HUB_OFFLINE=1 reads it without a network)."
        ) from None


def read_json(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file of a checkpoint. Raises ConfigError."""
    if not file.is_file():
        raise ConfigError(
            f"Expected {file}, which is not there. Point to the folder that holds the drafter's "
            f"config.json beside its weights."
        )
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"Expected JSON in {file}, got {error}. Download the file again."
        ) from None
    if not isinstance(found, dict):
        raise ConfigError(
            f"Expected a JSON object in {file}, got a {type(found).__name__}. Download the file "
            f"again."
        )
    return found


def _weight_files(folder: Path) -> list[Path]:
    for name in WEIGHT_FILES:
        file = folder / name
        if file.is_file():
            return _shards(file) if file.suffix == ".json" else [file]
    other = sorted(f for f in folder.iterdir() if f.suffix in (".safetensors", ".bin", ".pt"))
    if len(other) == 1:
        return other
    raise ConfigError(
        f"Expected weights in {folder}, such as {', '.join(WEIGHT_FILES[:3:2])}, got "
        f"{listed(f.name for f in other)}. Put the drafter's weight file there under its "
        f"published name."
    )


def _shards(index: Path) -> list[Path]:
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(v, str) for v in names.values()):
        raise ConfigError(
            f"Expected a weight_map from keys to file names in {index}, got {names!r:.80}. "
            f"Download the file again."
        )
    files = [index.parent / name for name in sorted(set(names.values()))]
    for file in files:
        if not file.is_file():
            raise ConfigError(
                f"Expected {file}, which {index.name} names and which is not there. Download the "
                f"missing part of the checkpoint."
            )
    return files


def _read_entries(file: Path) -> dict[str, Entry]:
    if file.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(file, "pt") as opened:
            shapes = {key: tuple(opened.get_slice(key).get_shape()) for key in opened.keys()}  # noqa: SIM118 (no mapping)
        return {k: Entry(file, s, partial(_read_tensor, file, k)) for k, s in shapes.items()}
    loaded = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(loaded, dict) or not all(isinstance(v, Tensor) for v in loaded.values()):
        raise ValueError("it holds something else than a dict of tensors")
    return {k: Entry(file, tuple(v.shape), partial(_as_is, v)) for k, v in loaded.items()}


def _read_tensor(file: Path, key: str) -> Tensor:
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        return opened.get_tensor(key)


def _as_is(tensor: Tensor) -> Tensor:
    return tensor


_Read = TypeVar("_Read")


def _guarded(file: Path, read: Callable[[], _Read]) -> _Read:
    """Return ``read()``; whatever a damaged file makes it raise becomes one ConfigError."""
    from safetensors import SafetensorError

    try:
        return read()
    except MemoryError:
        raise
    except (
        SafetensorError,
        pickle.UnpicklingError,
        OSError,
        EOFError,
        RuntimeError,
        ValueError,
        KeyError,
        AttributeError,
    ) as error:
        reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        raise ConfigError(
            f"Expected whole weights in {file} ({file.stat().st_size} bytes), which is damaged or "
            f"cut off, or holds more than tensors: {reason}. Download or copy the file again."
        ) from None
