"""Write a trained drafter in its published layout: a folder that the drafters read back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from lenity.errors import ConfigError
from lenity.training.recipe import Published
from lenity.training.store import write_atomically


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bytes of the weight file, and of each tensor in it, largest first."""

    total: int
    tensors: dict[str, int]


def write_drafter(published: Published, folder: Path, dtype: torch.dtype = torch.bfloat16) -> Sizes:
    """Write config.json and weights; return their sizes.

    Floating-point tensors are stored as ``dtype``, integers as they are. Each file appears whole
    or not at all. Raises ConfigError for weights that are not finite.
    """
    from safetensors.torch import save

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        # A clone each: safetensors refuses tensors that share their storage.
        name: tensor.to(device="cpu", dtype=dtype if tensor.is_floating_point() else None)
        .clone()
        .contiguous()
        for name, tensor in published.tensors.items()
    }
    broken = [n for n, t in tensors.items() if t.is_floating_point() and not t.isfinite().all()]
    if broken:
        raise ConfigError(
            f"Expected finite weights to write, got NaN or infinity in {broken[0]!r} as {dtype}. "
            f"The training run broke: go on from an earlier state with a lower learning rate."
        )
    config = {**published.config, "torch_dtype": str(dtype).removeprefix("torch.")}
    write_atomically(folder / published.file, save(tensors, metadata={"format": "pt"}))
    write_atomically(folder / "config.json", (json.dumps(config, indent=1) + "\n").encode())
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in tensors.items()}
    return Sizes(
        total=(folder / published.file).stat().st_size,
        tensors=dict(sorted(sizes.items(), key=lambda item: -item[1])),
    )
