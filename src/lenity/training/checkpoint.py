"""Trained drafters in their published layout: written for the drafters to read, and begun with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.heads.checkpoint import Checkpoint
from lenity.models.heads.made_for import FILE, MadeFor
from lenity.models.heads.vocab_map import read_kept_ids
from lenity.training.recipe import Published
from lenity.training.store import write_atomically

FREE_WORDS = frozenset({"torch_dtype", "ttt_length", "num_anchors", "base_model_name_or_path"})
"""Words of a config that say how a drafter was trained or stored, not what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bytes of the weight file, and of each tensor in it, largest first."""

    total: int
    tensors: dict[str, int]


def write_drafter(
    published: Published,
    folder: Path,
    dtype: torch.dtype = torch.bfloat16,
    made_for: MadeFor | None = None,
) -> Sizes:
    """Write config.json, weights and which target they are for; return the weights' sizes.

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
    if made_for is not None:
        write_atomically(folder / FILE, (made_for.model_dump_json(indent=1) + "\n").encode())
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in tensors.items()}
    return Sizes(
        total=(folder / published.file).stat().st_size,
        tensors=dict(sorted(sizes.items(), key=lambda item: -item[1])),
    )


def known_ids(checkpoint: Checkpoint, vocab_size: int) -> Int[Tensor, " D"] | None:
    """Return the target's ids in a checkpoint's vocabulary map; None where it has no map.

    Raises ModelMismatchError for a map that does not fit.
    """
    if not checkpoint.has("d2t"):
        return None
    return read_kept_ids(checkpoint, checkpoint.shape("d2t")[0], vocab_size)


@torch.no_grad()
def begin_with(checkpoint: Checkpoint, published: Published) -> None:
    """Copy a checkpoint's weights into a drafter, given as it would be published.

    ``published.tensors`` share their storage with the drafter's parameters. Raises
    ModelMismatchError for a checkpoint of another shape, or with other words in its config.
    """
    for key, ours in published.config.items():
        its = checkpoint.config.get(key)
        if key not in FREE_WORDS and its != ours:
            raise ModelMismatchError(
                f"Expected a checkpoint with {key}={ours!r} to begin with, got {its!r} in "
                f"{checkpoint.folder / 'config.json'}. Give the recipe that it was trained with."
            )
    for key, tensor in published.tensors.items():
        found = checkpoint.tensor(key, tensor.shape)
        if tensor.is_floating_point():
            tensor.copy_(found)
