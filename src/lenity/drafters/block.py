"""Drafting a whole block from one look at the target's features: what such drafters share.

Medusa, DFlash and DSpark see features of committed tokens only, propose all positions of a round
in one pass of their own, and load trained weights made for one target.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import torch
from jaxtyping import Bool, Float, Int
from pydantic import BeforeValidator, Field, PlainSerializer, PrivateAttr, field_serializer
from torch import Tensor, nn

from lenity.drafters.base import DraftContext, Drafter
from lenity.drafters.chain import DraftVocabulary
from lenity.errors import ModelMismatchError
from lenity.models.base import LanguageModel
from lenity.models.heads.vocab_map import check_vocabulary
from lenity.types import Draft


class HeadVocabulary(DraftVocabulary):
    """Which rows of a trained head stand for which tokens of the target."""

    def __init__(
        self,
        name: str,
        width: int,
        target: LanguageModel,
        kept_ids: Int[Tensor, " D"] | None = None,
    ) -> None:
        """Compare a head of ``width`` rows with the target's.

        ``kept_ids[d]`` is the target's id of row d where the head knows only some tokens; without
        it row d is id d, and the target may have more rows only where they are padding. Raises
        ModelMismatchError.
        """
        self.name, self.size, self.device = name, target.vocab_size, target.device
        forbidden = _unknown(target)
        self._width, self._kept = width, None
        if kept_ids is not None:
            _check_kept(name, width, target, kept_ids)
            self._kept = kept_ids.to(target.device)
        else:
            check_vocabulary(name, width, target)
        self._forbidden = forbidden.to(target.device) if forbidden.any() else None

    def clean(self, logits: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Return logits over the target's head, float32, -inf where no token stands."""
        logits = logits.to(torch.float32)
        if self._kept is not None:
            spread = logits.new_full((*logits.shape[:-1], self.size), -float("inf"))
            logits = spread.index_copy_(-1, self._kept, logits)
        elif self._width < self.size:
            missing = self.size - self._width
            logits = nn.functional.pad(logits, (0, missing), value=-float("inf"))
        if self._forbidden is not None:
            logits = logits.masked_fill(self._forbidden, -float("inf"))
        return logits

    def clamp(self, token_ids: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Keep ids drawn from a law that is not one (NaN) inside the target's vocabulary."""
        return token_ids.clamp_max(self.size - 1)


def _unknown(target: LanguageModel) -> Bool[Tensor, " V"]:
    unknown = torch.zeros(target.vocab_size, dtype=torch.bool)
    unknown[target.unknown_ids.cpu()] = True
    return unknown


def _check_kept(name: str, width: int, target: LanguageModel, kept_ids: Tensor) -> None:
    fits = (
        kept_ids.shape == (width,)
        and int(kept_ids.min()) >= 0
        and int(kept_ids.max()) < target.vocab_size
        and len(kept_ids.unique()) == width
    )
    if not fits:
        raise ModelMismatchError(
            f"Expected {name} to map its {width} tokens (d2t) to different ids below "
            f"{target.vocab_size}, got {kept_ids.numel()} ids from {int(kept_ids.min())} to "
            f"{int(kept_ids.max())}. Use a drafter made for {target.name}."
        )


def read_taps(value: Any) -> Any:
    """Return layer indices from ``1+9+17`` or one number; leave everything else as it is."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    return tuple(part.strip() for part in value.split("+")) if isinstance(value, str) else value


def write_taps(value: tuple[int, ...] | None) -> str | None:
    """Return the spelling of the command line; the inverse of read_taps."""
    return None if value is None else "+".join(map(str, value))


TapIds = Annotated[tuple[int, ...] | None, BeforeValidator(read_taps), PlainSerializer(write_taps)]
"""Taps as a knob: ``1+9+17``, 0 the output of the target's first layer, -1 its embeddings."""


class HeadDrafter(Drafter):
    """A drafter whose weights were trained on one target's features, in a published format."""

    model: str | nn.Module = Field(examples=["org/drafter"])
    """Drafter: a folder or hub id with its checkpoint, or loaded heads"""
    dtype: str | None = None
    """Dtype to load the drafter in; none takes the target's"""
    revision: str | None = None
    """Revision of a hub id; none takes the default branch"""

    _loaded: dict[tuple[Any, ...], Any] = PrivateAttr(default_factory=dict)

    @field_serializer("model")
    def _name_model(self, model: str | nn.Module) -> str:
        return model if isinstance(model, str) else str(getattr(model, "name", "loaded"))

    def describe(self, target: LanguageModel) -> dict[str, Any]:
        """Return what the checkpoint was understood to be, in the words of its reader."""
        return {**super().describe(target), **self._heads(target).describe()}

    @abstractmethod
    def _read(self, target: LanguageModel, dtype: torch.dtype) -> nn.Module:
        """Return the heads behind ``model``, for this target, on its device."""

    def _heads(self, target: LanguageModel) -> Any:
        """Return the heads, read once per target, dtype and device."""
        if not isinstance(self.model, str):
            return self.model
        from lenity.models.loading import as_dtype  # transformers, only where a model is loaded

        dtype = as_dtype(self.dtype)
        dtype = dtype if isinstance(dtype, torch.dtype) else target.dtype
        shape = (target.num_layers, target.hidden_size, target.vocab_size)
        key = (target.name, dtype, target.device, *shape)
        if key not in self._loaded:
            self._loaded[key] = self._read(target, dtype)
        return self._loaded[key]


def cap(context: DraftContext, most: Sequence[int]) -> DraftContext:
    """Return the context with ``most[b]`` as a further limit of row b."""
    limits = [min(limit, cap) for limit, cap in zip(context.limits, most, strict=True)]
    return replace(context, limits=limits)


def cut(draft: Draft, lengths: Int[Tensor, " B"]) -> Draft:
    """Return the first ``lengths[b]`` tokens of each row, at most what was drafted.

    What lies beyond becomes padding as everywhere: token 0, its point mass, confidence 0; columns
    that only hold padding are left out.
    """
    lengths = torch.minimum(lengths, draft.lengths)
    gamma = int(lengths.max()) if len(lengths) else 0
    is_padding = torch.arange(gamma, device=lengths.device) >= lengths[:, None]
    probs, confidence = draft.probs, draft.confidence
    if probs is not None:
        probs = probs[:, :gamma].masked_fill(is_padding[..., None], 0)
        probs[..., 0] += is_padding
    if confidence is not None:
        confidence = confidence[:, :gamma].masked_fill(is_padding, 0)
    return Draft(
        token_ids=draft.token_ids[:, :gamma].masked_fill(is_padding, 0),
        lengths=lengths,
        probs=probs,
        confidence=confidence,
        logprobs=None if draft.logprobs is None else draft.logprobs[:, :gamma],
    )
