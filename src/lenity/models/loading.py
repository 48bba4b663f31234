"""From a name to a model: a packaged demo, a local Hugging Face folder, or a hub id."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.causal import CausalLM
from lenity.models.quiet import quiet
from lenity.registry import Registry, did_you_mean

MODELS = Registry("model", {"demo:smollm2": "lenity.models.packaged:SMOLLM2"})
"""Models with a name of their own; everything else is a folder or a hub id."""

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
    ModelMismatchError, UnsupportedModelError.
    """
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    where = _resolve(name)
    options: dict[str, Any] = {
        "dtype": as_dtype(dtype) or (torch.float32 if place.type == "cpu" else "auto"),
        "revision": revision or "main",
    }
    if attn_implementation is not None:
        options["attn_implementation"] = attn_implementation
    module = _load_module(name, where, options)
    tokenizer = _load_tokenizer(name, where, options["revision"])
    return CausalLM(module.to(place), tokenizer, name=name)


def as_dtype(dtype: torch.dtype | str | None) -> torch.dtype | str | None:
    """Return the dtype of a name such as ``"bfloat16"``; ``"auto"`` stays. Raises ConfigError."""
    if dtype is None or isinstance(dtype, torch.dtype) or dtype == "auto":
        return dtype
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype):
        known = ("float32", "bfloat16", "float16", "auto")
        raise ConfigError(
            f"Expected a dtype, got {dtype!r}.{did_you_mean(dtype, known)} "
            f"Use one of {', '.join(known)}."
        )
    return found


def _resolve(name: str) -> str:
    """Return the folder or hub id behind a name."""
    if name in MODELS.names() or name.startswith("demo:"):
        return str(MODELS.load(name).directory())
    path = Path(name).expanduser()
    if path.is_dir():
        _check_folder(path)
        return str(path)
    if path.exists() or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ConfigError(
            f"Expected a folder with a model, got {name!r}, which "
            f"{'is a file' if path.exists() else 'does not exist'}. Give a folder with a "
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
                where, trust_remote_code=False, output_loading_info=True, **options
            )
    except MemoryError:
        raise
    except Exception as error:  # transformers raises OSError, ValueError, KeyError and others
        raise _cannot_load(name, "model", error) from None
    module, info = loaded
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelMismatchError(
            f"Expected weights for all of {name}, but {len(missing)} are missing, {missing[0]!r} "
            f"first; they would be random. Load a complete checkpoint of this architecture."
        )
    return module


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
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ConfigError(
        f"Expected the {part} of {name!r} to load, got {type(error).__name__}: {reason[:300]} "
        f"Give a folder with a config.json, a hub id you can reach (offline: HF_HUB_OFFLINE=1 and "
        f"a filled cache), or one of {', '.join(MODELS.names())}. Models that need remote code "
        f"are not supported."
    )
