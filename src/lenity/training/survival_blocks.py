"""Blocks of Strict SDD rounds on disk: what a survival predictor learns from.

A folder holds blocks.json (what was run) and one safetensors file a prompt, written by one rename
when its request has ended: ``scalars`` (N, G, S), ``hidden`` (N, G, H) in bf16 (H = 0 where the
drafter keeps no state), ``confidence`` (N, G), ``lengths`` and ``accepted`` (N,), where accepted is
L, the draft tokens that are the target's own choice, whatever ended the request. Capturing again
asks for the prompts that are missing, and for those whose file cannot be read whole.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from lenity.engine.decode import Decoder
from lenity.engine.tracing import RoundView
from lenity.errors import ConfigError, RunDirError
from lenity.models.loading import check_safetensors
from lenity.policies.asd import longest_prefix
from lenity.registry import explain_file
from lenity.requests import GenerationSettings
from lenity.skipping.features import SCALARS, hidden_features, scalar_features
from lenity.skipping.survival import Estimand
from lenity.training.store import key_of, write_atomically
from lenity.types import Draft, FinishReason

MANIFEST = "blocks.json"
PREFIX, SUFFIX = "blocks-", ".safetensors"

logger = logging.getLogger(__name__)


class BlockManifest(BaseModel):
    """What a folder of blocks was made by; another run does not mix with it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = 1
    target: str
    drafter: str
    gamma: int
    max_new_tokens: int
    scalars: tuple[str, ...] = SCALARS


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Blocks of several prompts, those of one prompt together; ``prompts`` names each block's."""

    prompts: tuple[str, ...]
    scalars: Float[Tensor, "N G S"]
    hidden: Float[Tensor, "N G H"]
    confidence: Float[Tensor, "N G"]
    lengths: Int[Tensor, " N"]
    accepted: Int[Tensor, " N"]

    def of_prompts(self, keys: Iterable[str]) -> Blocks:
        """Return the blocks of these prompts, in their order here."""
        wanted = set(keys)
        rows = [row for row, key in enumerate(self.prompts) if key in wanted]
        return Blocks(
            prompts=tuple(self.prompts[row] for row in rows),
            **{name: getattr(self, name)[rows] for name in _TENSORS},
        )

    def survives(self) -> Bool[Tensor, "N G"]:
        """Return 1{L >= j}."""
        return self._positions() <= self.accepted[:, None]

    def counts(self, estimand: Estimand) -> Bool[Tensor, "N G"]:
        """Return which positions are rows of training.

        marginal: every drafted one; conditional: those at risk, j <= L + 1.
        """
        is_drafted = self._positions() <= self.lengths[:, None]
        if estimand == "marginal":
            return is_drafted
        return is_drafted & (self._positions() <= self.accepted[:, None] + 1)

    def _positions(self) -> Int[Tensor, " G"]:
        return torch.arange(1, self.scalars.shape[1] + 1)


_TENSORS = ("scalars", "hidden", "confidence", "lengths", "accepted")


class BlockRecorder:
    """An observer that keeps what a predictor reads of every drafted block, by request."""

    wants_divergence = False

    def __init__(self, families: Sequence[str], gamma: int) -> None:
        """Start without blocks; ``families[i]`` is that of the call's request i."""
        self._families, self._gamma = families, gamma
        self._blocks: dict[int, list[dict[str, Tensor]]] = {}

    def observe(self, view: RoundView) -> None:
        """Keep the block of every verified row that has one."""
        draft = view.draft
        families = [self._families[row.index] for row in view.rows]
        accepted = longest_prefix(draft.token_ids == view.scores.top_id[:, :-1], draft.lengths)
        parts = {
            "scalars": scalar_features(draft, [r.num_emitted for r in view.rows], families),
            "hidden": _states(draft),
            "confidence": _confidence(draft),
        }
        for index in view.commits:
            if draft.lengths[index]:
                block = {name: self._widened(part[index]) for name, part in parts.items()}
                block |= {"lengths": draft.lengths[index].cpu(), "accepted": accepted[index].cpu()}
                self._blocks.setdefault(view.rows[index].index, []).append(block)

    def _widened(self, part: Tensor) -> Tensor:
        """Return (gamma, ...) on the host; positions that no row of this round has are 0."""
        out = torch.zeros(self._gamma, *part.shape[1:], dtype=part.dtype)
        out[: len(part)] = part
        return out

    def tensors(self, index: int) -> dict[str, Tensor]:
        """Return the tensors of request ``index``'s file."""
        blocks = self._blocks.get(index, [])
        if not blocks:
            return {"lengths": torch.zeros(0, dtype=torch.int64)}
        return {name: torch.stack([block[name] for block in blocks]) for name in _TENSORS}


def _states(draft: Draft) -> Tensor:
    hidden = hidden_features(draft)
    if hidden is None:
        return torch.zeros(*draft.token_ids.shape, 0, dtype=torch.bfloat16)
    return hidden.to(torch.bfloat16)


def _confidence(draft: Draft) -> Tensor:
    """Return the drafter's confidence; 0, which lets nothing pass, where it gives none."""
    if draft.confidence is None:
        return torch.zeros(draft.token_ids.shape)
    return draft.confidence.to(torch.float32)


def capture_blocks(
    decoder: Decoder,
    prompts: Sequence[Mapping[str, Any]],
    folder: Path,
    settings: GenerationSettings,
    *,
    progress: Callable[[int], None] = lambda prompts: None,
) -> Blocks:
    """Decode the prompts that are missing and keep their blocks; return those of all given ones.

    A prompt has ``prompt_ids`` and a ``family``; as many as the decoder batches are decoded
    together, and kept as soon as those have ended. ``progress`` is told how many. Where one of them
    is missing all are decoded again, so that a killed run ends with the same bytes as one that was
    not: numbers may depend on what a prompt is padded beside, in their last bits. Raises
    ConfigError for a decoder that is not Strict SDD, RunDirError for a folder of another run.
    """
    _check(decoder, settings)
    _open(folder, _manifest(decoder, settings))
    named = {key_of(prompt["prompt_ids"]).hex(): prompt for prompt in prompts}
    everyone, size = list(named), decoder.max_batch_size
    for first in range(0, len(everyone), size):
        keys = everyone[first : first + size]
        missing = {key for key in keys if _read(folder, key) is None}
        if not missing:
            continue
        recorder = BlockRecorder([str(named[k].get("family", "")) for k in keys], settings.gamma)
        ids = [list(named[key]["prompt_ids"]) for key in keys]
        found = decoder.generate(ids, settings, observer=recorder)
        for index, (key, generation) in enumerate(zip(keys, found, strict=True)):
            if generation.finish_reason is FinishReason.INTERRUPTED:
                raise KeyboardInterrupt  # which the decoder took for its own; half is none
            if key in missing:
                _write(folder, key, recorder.tensors(index))
        progress(len(missing))
    return read_blocks(folder, named)


def read_blocks(folder: Path, keys: Iterable[str]) -> Blocks:
    """Return the blocks of these prompts that are in the folder. Raises RunDirError for none."""
    shards = [(key, _read(folder, key)) for key in keys]
    full = [(key, shard) for key, shard in shards if shard is not None and len(shard["lengths"])]
    if not full:
        raise RunDirError(
            f"Expected blocks in {folder}, got none. Capture them first, or give prompts for which "
            f"something is drafted."
        )
    return Blocks(
        prompts=tuple(key for key, shard in full for _ in shard["lengths"]),
        **{name: torch.cat([shard[name] for _, shard in full]) for name in _TENSORS},
    )


def _check(decoder: Decoder, settings: GenerationSettings) -> None:
    is_strict = decoder.policy.is_strict and decoder.skip is None and not settings.temperature
    if not is_strict or decoder.drafter is None or not settings.gamma:
        raise ConfigError(
            f"Expected a drafter, the policy strict, no skip rule and temperature 0 to learn "
            f"survival from, got the drafter {decoder.drafter}, the policy {decoder.policy}, the "
            f"skip rule {decoder.skip}, temperature {settings.temperature:g} and gamma "
            f"{settings.gamma}. Other rounds do not say what strict would accept."
        )


def _manifest(decoder: Decoder, settings: GenerationSettings) -> BlockManifest:
    assert decoder.drafter is not None, "checked before"
    return BlockManifest(
        target=decoder.target.name,
        drafter=decoder.drafter.spec,
        gamma=settings.gamma,
        max_new_tokens=settings.max_new_tokens,
    )


def _open(folder: Path, manifest: BlockManifest) -> None:
    file = folder / MANIFEST
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(file, manifest.model_dump_json(indent=1).encode())
        return
    try:
        found = BlockManifest.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise RunDirError(
            f"Expected what blocks were made by, got something else. "
            f"{explain_file(error, BlockManifest, file)} Choose another folder."
        ) from None
    if found != manifest:
        its = found.model_dump()
        parts = [
            f"{k} {v} (there: {its[k]})" for k, v in manifest.model_dump().items() if v != its[k]
        ]
        raise RunDirError(
            f"Expected blocks with {', '.join(parts)} in {folder}. Choose another folder for them."
        )


def _file(folder: Path, key: str) -> Path:
    return folder / f"{PREFIX}{key}{SUFFIX}"


def _read(folder: Path, key: str) -> dict[str, Tensor] | None:
    """Return a prompt's tensors; None where there are none, or not whole."""
    from safetensors.torch import load_file

    file = _file(folder, key)
    if not file.is_file():
        return None
    try:
        check_safetensors(file)
    except ConfigError as error:
        logger.warning("%s Its prompt is decoded again.", error)
        return None
    return load_file(file)


def _write(folder: Path, key: str, tensors: dict[str, Tensor]) -> None:
    from safetensors.torch import save_file

    file = _file(folder, key)
    partial = file.with_suffix(".partial")
    save_file(tensors, partial)
    os.replace(partial, file)
