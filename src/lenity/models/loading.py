"""From a name to a model: a packaged demo, a local Hugging Face folder, or a hub id."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lenity.errors import ConfigError, ModelMismatchError, OutOfMemoryError, is_out_of_memory
from lenity.models.causal import CausalLM
from lenity.models.quiet import quiet
from lenity.paths import expanded
from lenity.registry import Registry, did_you_mean

MODELS = Registry("model", {"demo:smollm2": "lenity.models.packaged:SMOLLM2"})
"""Models with a name of their own; everything else is a folder or a hub id."""

LONGEST_REASON = 300
"""Characters of somebody else's error that are shown."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


def load(
    name: str,
    *,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    revision: str | None = None,
    attn_implementation: str | None = None,
) -> CausalLM:
    """Return the model called ``name``, ready to decode.

    ``name`` is a packaged model (``"demo:smollm2"``), a folder, or a hub id. ``device`` defaults
    to the GPU where there is one; ``dtype`` to float32 on the CPU and to the checkpoint's own
    elsewhere. Remote code is never run. Raises RegistryError, ConfigError, MissingExtraError,
    ModelMismatchError, UnsupportedModelError, OutOfMemoryError.
    """
    place = as_device(device)
    where = _resolve(name)
    options: dict[str, Any] = {
        "dtype": as_dtype(dtype) or (torch.float32 if place.type == "cpu" else "auto"),
        "revision": revision or "main",
    }
    if attn_implementation is not None:
        options["attn_implementation"] = attn_implementation
    module = _load_module(name, where, options)
    tokenizer = _load_tokenizer(name, where, options["revision"])
    return CausalLM(_move(module, place, name), tokenizer, name=name)


def as_dtype(dtype: torch.dtype | str | None) -> torch.dtype | str | None:
    """Return the dtype of a name such as ``"bfloat16"``; ``"auto"`` stays. Raises ConfigError."""
    if dtype is None or isinstance(dtype, torch.dtype) or dtype == "auto":
        return dtype
    found = getattr(torch, dtype, None)
    # a float8 is a way of storing weights; torch adds and multiplies none
    if not isinstance(found, torch.dtype) or not found.is_floating_point or found.itemsize < 2:
        known = ("float32", "bfloat16", "float16", "auto")
        raise ConfigError(
            f"Expected a dtype, got {dtype!r}.{did_you_mean(dtype, known)} "
            f"Use one of {', '.join(known)}."
        )
    return found


def as_device(device: torch.device | str | None) -> torch.device:
    """Return the device of a name, or the GPU where there is one. Raises ConfigError."""
    known = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    try:
        place = torch.device(device or ("cuda" if len(known) > 1 else "cpu"))
    except RuntimeError:
        place = None
    is_there = place is not None and place.type != "meta"
    if place is not None and place.type == "cuda":
        is_there = (place.index or 0) < len(known) - 1
    if place is None or not is_there:
        raise ConfigError(
            f"Expected a device of this machine, got {str(device)!r}. Use {' or '.join(known)}, "
            f"or leave it out."
        )
    return place


def _move(module: nn.Module, place: torch.device, name: str) -> nn.Module:
    """Return the module on a device. Raises OutOfMemoryError, ConfigError."""
    try:
        return module.to(place)
    except Exception as error:  # a device that is not built in fails in ways of its own
        if is_out_of_memory(error):
            size = sum(p.numel() * p.element_size() for p in module.parameters()) / 2**30
            raise OutOfMemoryError(
                f"The weights of {name} need {size:.3g} GiB on {place}, and that could not be "
                f"allocated. Use a smaller dtype, another device or a smaller model."
            ) from error
        raise ConfigError(
            f"Expected a device torch can use, got {str(place)!r}: {_reason(error)}. Use cpu, "
            f"or leave the device out."
        ) from None


def _resolve(name: str) -> str:
    """Return the folder or hub id behind a name. Raises ConfigError."""
    if name in MODELS.names() or name.startswith("demo:"):
        return str(MODELS.load(name).directory())
    path = expanded(name)
    if os.path.isdir(path):  # of os, for a name that no path can have is no folder either
        _check_folder(path)
        return str(path)
    is_file = os.path.exists(path)
    if is_file or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ConfigError(
            f"Expected a folder with a model, got {name!r}, which "
            f"{'is a file' if is_file else 'does not exist'}. Give a folder with a "
            f"config.json, a hub id such as 'org/model', or one of {', '.join(MODELS.names())}."
        )
    return name


def _check_folder(path: Path) -> None:
    if not (path / "config.json").is_file():
        raise ConfigError(
            f"Expected a Hugging Face folder, got {str(path)!r} without a config.json. Point to "
            f"the folder that save_pretrained wrote."
        )
    for file in sorted(path.glob("*.safetensors")):
        check_safetensors(file)


def check_safetensors(file: Path) -> None:
    """Check that a safetensors file is as long as its header says. Raises ConfigError."""
    size = file.stat().st_size
    try:
        with file.open("rb") as stream:
            (header_size,) = struct.unpack("<Q", stream.read(8))
            if header_size > size:
                raise ValueError("its header is cut off")
            header = json.loads(stream.read(header_size))
        ends = [entry["data_offsets"][1] for key, entry in header.items() if key[:2] != "__"]
        expected = 8 + header_size + max(ends, default=0)
    except (struct.error, ValueError, KeyError, TypeError, AttributeError):
        raise _damaged(file, f"{size} bytes without a readable header") from None
    if size != expected:
        raise _damaged(file, f"{size} bytes where its header says {expected}")


def _damaged(file: Path, found: str) -> ConfigError:
    return ConfigError(
        f"Expected whole weights, but {file} is damaged or cut off: {found}. "
        f"Copy or download the file again; a converted demo model is rebuilt when its folder "
        f"is deleted."
    )


def _load_module(name: str, where: str, options: dict[str, Any]) -> nn.Module:
    from transformers import AutoModelForCausalLM

    try:
        with quiet():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                where,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below, by name
                **options,
            )
    except Exception as error:  # transformers raises OSError, ValueError, KeyError and others
        if is_out_of_memory(error):
            raise OutOfMemoryError(
                f"The weights of {name} could not be allocated while they were read{_sizes(where)}"
                f". Use a smaller dtype, such as dtype='bfloat16', or a smaller model."
            ) from error
        raise _cannot_load(name, "model", error) from None
    module, info = loaded
    _check_weights(name, info)
    return module


def _check_weights(name: str, info: dict[str, Any]) -> None:
    """Refuse weights that would be made up. Raises ModelMismatchError."""
    if info["mismatched_keys"]:
        key, stored, wanted = min(info["mismatched_keys"])
        raise ModelMismatchError(
            f"Expected {key!r} of {name} to have the shape {tuple(wanted)} that its config.json "
            f"says, got {tuple(stored)}. Put the config.json that belongs to the weights beside "
            f"them."
        )
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelMismatchError(
            f"Expected weights for all of {name}, but {len(missing)} are missing, {missing[0]!r} "
            f"first; they would be random. Load a complete checkpoint of this architecture."
        )


def _sizes(where: str) -> str:
    """Return how large the weights of a folder are, in words; nothing for a hub id."""
    size = sum(file.stat().st_size for file in Path(where).glob("*.safetensors")) / 2**30
    return f": {size:.3g} GiB as they are stored" if size else ""


def _load_tokenizer(name: str, where: str, revision: str) -> Any:
    from transformers import AutoTokenizer

    folder = Path(where)
    if folder.is_dir() and not any((folder / file).is_file() for file in TOKENIZER_FILES):
        return None
    try:
        with quiet():
            return AutoTokenizer.from_pretrained(where, trust_remote_code=False, revision=revision)
    except Exception as error:  # as above
        raise _cannot_load(name, "tokenizer", error) from None


def _cannot_load(name: str, part: str, error: Exception) -> ConfigError:
    if "LocalEntryNotFoundError" in _causes(error):
        return _cannot_reach(name, part)
    return ConfigError(
        f"Expected the {part} of {name!r} to load, got {type(error).__name__}: "
        f"{_reason(error)}. "
        f"Give a folder with a config.json, a hub id you can reach (offline: HF_HUB_OFFLINE=1 and "
        f"a filled cache), or one of {', '.join(MODELS.names())}. Models that need remote code "
        f"are not supported."
    )


def _reason(error: BaseException) -> str:
    said = " ".join(str(error).split()) or type(error).__name__
    return (said if len(said) <= LONGEST_REASON else f"{said[:LONGEST_REASON]}…").rstrip(" .")


def _causes(error: BaseException) -> set[str]:
    """Return the class names of an error and of what it came from."""
    names: set[str] = set()
    at: BaseException | None = error
    while at is not None:
        names.add(type(at).__name__)
        at = at.__cause__ or at.__context__
    return names


def _cannot_reach(name: str, part: str) -> ConfigError:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return ConfigError(
            f"Expected the {part} of {name!r} in the hub's cache, for HF_HUB_OFFLINE is set, got "
            f"nothing there. Unset HF_HUB_OFFLINE to download it once, or give a local directory "
            f"that save_pretrained wrote."
        )
    return ConfigError(
        f"Expected the {part} of {name!r} from the hub, got no connection to "
        f"{constants.ENDPOINT}. Give a local directory that save_pretrained wrote; where an "
        f"earlier download is in the cache, HF_HUB_OFFLINE=1 takes it without asking."
    )
