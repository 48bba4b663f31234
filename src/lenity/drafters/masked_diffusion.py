"""Draft with a masked-diffusion language model: masks behind the text, filled in few passes.

Target-free: the drafter reads committed tokens and nothing of the target. It keeps no cache, for
every position sees every other: each pass computes the whole text again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, PrivateAttr, field_serializer, model_validator
from torch import Tensor

from lenity.drafters.base import DraftContext, Drafter, no_draft
from lenity.drafters.chain import DraftVocabulary
from lenity.drafters.mapped import MappedVocabulary, check_knobs, describe_map, map_ids
from lenity.drafters.reveal import Confidence, Reveal, Revealed, Schedule
from lenity.errors import NonFiniteError
from lenity.models.base import KVCache, LanguageModel
from lenity.models.id_map import Tokens
from lenity.models.masked import MaskedLM, compare_tokens, lay_out
from lenity.types import Draft, DraftRecord


class MaskedVocabulary(DraftVocabulary):
    """Which rows of a masked-diffusion model's head stand for tokens the target can emit."""

    def __init__(self, model: MaskedLM, target: LanguageModel) -> None:
        """Compare the two once. Raises ModelMismatchError."""
        compare_tokens(target, model)
        self.name, self.size, self.device = model.name, target.vocab_size, target.device
        self._width = min(model.vocab_size, target.vocab_size)
        forbidden = torch.zeros(self.size, dtype=torch.bool)
        forbidden[self._width :] = True
        forbidden[target.unknown_ids.cpu()] = True
        forbidden[[i for i in model.forbidden_ids if i < self.size]] = True
        self._forbidden = forbidden.to(model.device)


class MaskedDiffusionSession:
    """A masked-diffusion model and nothing else: what is drafted follows from the tokens alone."""

    taps: tuple[int, ...] = ()

    def __init__(self, model: MaskedLM, vocabulary: DraftVocabulary, reveal: Reveal) -> None:
        """Start without rows."""
        self._model, self._reveal, self._vocabulary = model, reveal, vocabulary
        self._device = vocabulary.device

    def admit(self, token_ids: Sequence[int], features: Float[Tensor, "T F"] | None) -> None:
        """Do nothing: a round's committed tokens say it all."""

    def propose(self, context: DraftContext) -> Draft:
        """Return up to ``context.limits[b]`` tokens, fewer where the drafter's positions end.

        Past its last position it says nothing, and nothing of a text that it cannot read. Raises
        NonFiniteError.
        """
        texts = [self._vocabulary.translate(ids) for ids in context.token_ids]
        sizes = [
            0 if ids is None else max(0, min(limit, self._model.max_positions - len(ids)))
            for ids, limit in zip(texts, context.limits, strict=True)
        ]
        rows = [row for row, size in enumerate(sizes) if size]
        if not rows:
            return no_draft(len(sizes), self._device)
        asked = [sizes[row] for row in rows]
        revealed = self._fill([texts[row] or () for row in rows], asked, context)
        return _draft(revealed, rows, sizes, self._device)

    def observe(
        self, accepted_lengths: Sequence[int], features: Float[Tensor, "B R F"] | None
    ) -> None:
        """Do nothing: the next round's committed tokens say it all."""

    def keep(self, rows: Sequence[int]) -> None:
        """Do nothing: no row is remembered."""

    def _fill(
        self, prefixes: Sequence[Sequence[int]], sizes: Sequence[int], context: DraftContext
    ) -> Revealed:
        model, mask = self._model, self._model.config.mask_token_id
        canvas = lay_out(prefixes, sizes, mask, device=model.device)

        def predict(
            block: Int[Tensor, "B G"], is_masked: Bool[Tensor, "B G"]
        ) -> tuple[Float[Tensor, "B G H"], Float[Tensor, "B G V"]]:
            said = self._vocabulary.own_ids(block.masked_fill(is_masked, 0))
            hidden = model.hidden(canvas.painted(said.masked_fill(is_masked, mask)))
            clean = self._vocabulary.clean(model.logits(hidden).flatten(0, 1))
            self._check(clean, is_masked.flatten())
            return hidden.to(torch.float32), clean.unflatten(0, block.shape)

        return self._reveal.run(
            predict, canvas.is_slot, mask, wants_logprobs=context.wants_logprobs
        )

    def _check(self, logits: Float[Tensor, "N V"], is_masked: Bool[Tensor, " N"]) -> None:
        """Refuse logits that are no numbers where a token is about to be chosen."""
        if not torch.isfinite(logits.amax(-1)[is_masked]).all():
            raise NonFiniteError(
                f"Expected finite logits from the drafter {self._model.name}, got NaN or infinity. "
                f"Load it in float32, or decode without it."
            )


def _draft(
    revealed: Revealed, rows: Sequence[int], sizes: Sequence[int], device: torch.device
) -> Draft:
    """Return a draft of all rows; those that were not asked have nothing in it."""

    def spread(part: Tensor) -> Tensor:
        whole = part.new_zeros(len(sizes), *part.shape[1:])
        whole[list(rows)] = part
        return whole.to(device)

    names = DraftRecord.__dataclass_fields__
    record = DraftRecord(**{name: spread(getattr(revealed.record, name)) for name in names})
    return Draft(
        token_ids=spread(revealed.token_ids),
        lengths=torch.tensor(list(sizes), dtype=torch.int64, device=device),
        confidence=record.probability,
        logprobs=None if revealed.logprobs is None else spread(revealed.logprobs),
        record=record,
    )


class MaskedDiffusion(Drafter):
    """A masked-diffusion language model that fills in a block behind the text.

    Every token is the likeliest of its position when it is revealed, at any temperature: a point
    mass, for which the verifier's rejection law is exact. The positions' laws would not be a law
    to sample from: a later position may be revealed first and then change an earlier one, so they
    are no q(x_i | x_<i). ``confidence`` of a draft token is its probability at reveal. Masks,
    padding and ids that either vocabulary lacks are never drafted.
    """

    idea: ClassVar[str] = "a masked-diffusion language model, a block in few passes"
    paper: ClassVar[str] = (
        "Christopher et al. 2024 (SpecDiff), arXiv 2408.05636; Ye et al. 2025 (Dream), 2508.15487"
    )
    is_target_free: ClassVar[bool] = True

    type: Literal["masked_diffusion"] = "masked_diffusion"
    model: str | MaskedLM = Field(examples=["Dream-org/Dream-v0-Instruct-7B"])
    """Drafter: a folder or hub id with a Dream, DiffuCoder or LLaDA checkpoint, or a loaded one"""
    steps: int = Field(default=2, ge=1)
    """Passes over a block at most"""
    schedule: Schedule = "dream"
    """How many masks become tokens in a pass: dream, half, or threshold (those that are sure)"""
    confidence: Confidence = "entropy"
    """Which masks do: those with the highest probability, margin, or negative entropy"""
    threshold: float = Field(default=0.9, ge=0, le=1)
    """Probability from which a token is revealed; for schedule=threshold only"""
    shift: bool | None = None
    """Whether logits are read one place to the left; none asks the config's architecture"""
    dtype: str | None = None
    """Dtype to load the drafter in; none takes the target's"""
    revision: str | None = None
    """Revision of a hub id; none takes the default branch"""
    id_map: str | None = None
    """For another tokenizer: content, or a file with the map; none wants the same tokens"""
    unmapped: int | None = None
    """Drafter's id to read for a token it has not; none drafts nothing for a text that has one"""

    _loaded: dict[tuple[Any, ...], MaskedLM] = PrivateAttr(default_factory=dict)

    @field_serializer("model")
    def _name_model(self, model: str | MaskedLM) -> str:
        return model if isinstance(model, str) else model.name

    @model_validator(mode="after")
    def _check_knobs(self) -> Self:
        if self.schedule != "threshold" and "threshold" in self.model_fields_set:
            raise ValueError(
                f"threshold is for schedule=threshold, got schedule={self.schedule}; set that, or "
                f"leave threshold out"
            )
        check_knobs(self.id_map, self.unmapped)
        return self

    def open(self, target: LanguageModel, cache: KVCache) -> MaskedDiffusionSession:
        """Return a session; the model is read when first asked for. Raises ModelMismatchError."""
        reveal = Reveal(
            schedule=self.schedule,
            confidence=self.confidence,
            steps=self.steps,
            threshold=self.threshold,
        )
        model = self.loaded(target)
        return MaskedDiffusionSession(model, self.vocabulary(target, model), reveal)

    def describe(self, target: LanguageModel) -> dict[str, Any]:
        """Return what the checkpoint was understood to be, and how it is made to draft."""
        model = self.loaded(target)
        vocabulary = self.vocabulary(target, model)
        return {
            **super().describe(target),
            **model.describe(),
            "steps": self.steps,
            "schedule": self.schedule,
            "confidence": self.confidence,
            **describe_map(vocabulary, self.id_map, self.unmapped),
        }

    def vocabulary(self, target: LanguageModel, model: MaskedLM) -> DraftVocabulary:
        """Return which of the model's rows the target can emit, and how the model reads a text.

        Raises ModelMismatchError, ConfigError.
        """
        if self.id_map is None:
            return MaskedVocabulary(model, target)
        known = Tokens(name=model.name, size=model.vocab_size, by_id=model.tokens)
        return MappedVocabulary(
            model.name,
            map_ids(self.id_map, target, known, self.unmapped),
            target,
            forbidden=sorted(model.forbidden_ids),
            device=model.device,
        )

    def loaded(self, target: LanguageModel) -> MaskedLM:
        """Return the model, read once per dtype and device. Raises what reading it raises."""
        if not isinstance(self.model, str):
            model = self.model
            return model if self.shift is None else model.shifted(self.shift)
        from lenity.models.loading import as_dtype  # transformers, only where a model is loaded
        from lenity.models.masked import load_masked

        dtype = as_dtype(self.dtype)
        dtype = dtype if isinstance(dtype, torch.dtype) else target.dtype
        key = (dtype, target.device)
        if key not in self._loaded:
            self._loaded[key] = load_masked(
                self.model,
                dtype=dtype,
                device=target.device,
                revision=self.revision,
                is_shifted=self.shift,
            )
        return self._loaded[key]
