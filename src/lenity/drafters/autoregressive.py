"""Draft with a smaller causal language model, or with the target itself.

The drafter keeps a cache of its own with one slot per row. A round feeds what was committed since
(ragged, padded on the right), then drafts token by token behind the cache's lengths. What the
target accepts is committed there too; the rest is forgotten. The last draft token of a round is
never fed: should it be accepted, the next round feeds it together with the target's token.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from jaxtyping import Float, Int
from pydantic import Field, PrivateAttr, field_serializer, model_validator
from torch import Tensor

from lenity.drafters.base import DraftContext, Drafter, no_draft
from lenity.drafters.chain import DraftVocabulary, draft_chain, prefill, run_ragged
from lenity.drafters.mapped import (
    MappedVocabulary,
    check_knobs,
    describe_map,
    map_ids,
    tokens_of,
)
from lenity.models.base import KVCache, LanguageModel
from lenity.models.tokenizers import compare_vocabularies
from lenity.types import Draft

ITSELF = "target"
"""The model name that stands for the target's own weights."""


class AutoregressiveSession:
    """A drafter's cache of the committed tokens, one slot per row it can still draft for."""

    taps: tuple[int, ...] = ()

    def __init__(self, model: LanguageModel, vocabulary: DraftVocabulary, chunk: int) -> None:
        """Start without rows; at most ``chunk`` tokens per row enter one forward."""
        self._model, self._vocabulary, self._chunk = model, vocabulary, chunk
        self._cache = model.new_cache()
        self._has_slot: list[bool] = []  # slots stand in the order of their rows
        self._num_written: list[int] = []  # behind each slot's length, anchor included

    def admit(self, token_ids: Sequence[int], features: Float[Tensor, "T F"] | None) -> None:
        """Prefill a prompt but for its last token, unless the drafter cannot take or read it."""
        own = self._vocabulary.translate(token_ids)
        self._has_slot.append(own is not None and self._room(token_ids) > 0)
        if own is None or not self._has_slot[-1]:
            return
        slot = self._model.new_cache(1)
        prefill(self._model, slot, [own[:-1]], self._chunk)
        self._cache.append(slot)

    def propose(self, context: DraftContext) -> Draft:
        """Return up to ``context.limits[b]`` tokens, fewer where the drafter's positions end.

        Past its last position a drafter says nothing, and nothing behind a token that it cannot
        read; no placeholder stands in for it.
        """
        self._num_written = []
        rooms = self._rooms(context.token_ids)
        self._retire(rooms)
        rows = self._slotted()
        asked = DraftContext(
            token_ids=[context.token_ids[row] for row in rows],
            limits=[min(context.limits[row], rooms[row]) for row in rows],
            sampling=[context.sampling[row] for row in rows],
            coins=context.coins.select(rows),
            wants_logprobs=context.wants_logprobs,
        )
        if not asked.gamma:
            return no_draft(len(rooms), self._vocabulary.device)
        return _spread(self._draft(asked), rows, len(rooms))

    def observe(
        self, accepted_lengths: Sequence[int], features: Float[Tensor, "B R F"] | None
    ) -> None:
        """Keep the anchor and the accepted tokens that were fed; forget the others."""
        if self._num_written:
            accepted = [accepted_lengths[row] for row in self._slotted()]
            self._cache.commit(
                [min(1 + a, n) for a, n in zip(accepted, self._num_written, strict=True)]
            )
        self._num_written = []

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        slots = {row: slot for slot, row in enumerate(self._slotted())}
        self._cache.keep([slots[row] for row in rows if row in slots])
        self._has_slot = [self._has_slot[row] for row in rows]

    def _draft(self, context: DraftContext) -> Draft:
        first = self._catch_up(context)

        def advance(i: int, drafted: Int[Tensor, " B"] | None) -> Float[Tensor, "B D"]:
            if drafted is None:
                return self._model.logits(first)
            tokens = self._vocabulary.own_ids(drafted)[:, None].to(self._model.device)
            hidden = self._model.hidden_states(tokens, self._cache, offset=i).last[:, 0]
            return self._model.logits(hidden)

        draft = draft_chain(advance, context, self._vocabulary)
        self._num_written = [draft.gamma if limit else 0 for limit in context.limits]
        return draft

    def _catch_up(self, context: DraftContext) -> Float[Tensor, "B H"]:
        """Feed what the cache lacks; return the hidden state of each row's anchor.

        All but the anchor is committed: an interrupted round can be drafted again. Rows that ask
        for nothing are not fed.
        """
        missing = self._missing(context)
        if max(map(len, missing)) > self._chunk:
            prefill(self._model, self._cache, [ids[:-1] for ids in missing], self._chunk)
            missing = self._missing(context)
        last = run_ragged(self._model, self._cache, missing)
        self._cache.commit([max(len(ids) - 1, 0) for ids in missing])
        return last

    def _missing(self, context: DraftContext) -> list[Sequence[int]]:
        return [
            (self._vocabulary.translate(ids[length:]) or ()) if limit else ()
            for ids, length, limit in zip(
                context.token_ids, self._cache.lengths, context.limits, strict=True
            )
        ]

    def _rooms(self, token_ids: Sequence[Sequence[int]]) -> list[int]:
        """Return how many tokens each row may draft; 0 where what is new cannot be read."""
        rooms, starts = [0] * len(token_ids), self._cache.lengths
        for start, row in zip(starts, self._slotted(), strict=True):
            if self._vocabulary.translate(token_ids[row][start:]) is not None:
                rooms[row] = self._room(token_ids[row])
        return rooms

    def _retire(self, rooms: Sequence[int]) -> None:
        """Free the slots of rows that outgrew the drafter; lengths only grow, so for good."""
        rows = self._slotted()
        self._cache.keep([slot for slot, row in enumerate(rows) if rooms[row] > 0])
        self._has_slot = [
            has_slot and room > 0 for has_slot, room in zip(self._has_slot, rooms, strict=True)
        ]

    def _slotted(self) -> list[int]:
        return [row for row, has_slot in enumerate(self._has_slot) if has_slot]

    def _room(self, token_ids: Sequence[int]) -> int:
        """Return how many tokens can be drafted before the drafter's positions run out.

        The anchor and every draft token but the last are fed.
        """
        limit = self._model.max_positions
        return sys.maxsize if limit is None else limit - len(token_ids) + 1


def _spread(draft: Draft, rows: Sequence[int], batch_size: int) -> Draft:
    """Return the draft of some rows as one of the whole batch; the others draft nothing."""
    if len(rows) == batch_size:
        return draft
    assert draft.confidence is not None

    def spread(part: Tensor) -> Tensor:
        whole = part.new_zeros(batch_size, *part.shape[1:])
        whole[list(rows)] = part
        return whole

    probs = None
    if draft.probs is not None:
        probs = spread(draft.probs)
        probs[..., 0] += probs.sum(-1) == 0  # the law of padding is the point mass on token 0
    return Draft(
        token_ids=spread(draft.token_ids),
        lengths=spread(draft.lengths),
        probs=probs,
        confidence=spread(draft.confidence),
        logprobs=None if draft.logprobs is None else spread(draft.logprobs),
    )


class Autoregressive(Drafter):
    """A causal language model that drafts one token after the other.

    ``model="target"`` drafts with the target's own weights on a second cache: everything is
    accepted (in fp32), nothing is gained; it is there to check an engine with.

    At temperature 0 a draft token is the drafter's argmax. Above, it is drawn under the request's
    own sampling settings, with coins of the request's own seed, and ``probs`` is the law it was
    drawn from. ``confidence`` is the drafter's probability of the token at temperature 1.
    """

    idea: ClassVar[str] = "a smaller causal language model, token by token"
    paper: ClassVar[str] = "Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, 2302.01318"
    is_target_free: ClassVar[bool] = True

    type: Literal["autoregressive"] = "autoregressive"
    model: str | LanguageModel = Field(examples=["demo:smollm2"])
    """Drafter: a name or directory to load, a loaded model, or "target" for the target itself"""
    dtype: str | None = None
    """Dtype to load the drafter in; none takes the target's"""
    prefill_chunk: int = Field(default=512, ge=1)
    """Most tokens per row in one forward over a prompt"""
    id_map: str | None = None
    """For another tokenizer: content, or a file with the map; none wants the same tokens"""
    unmapped: int | None = None
    """Drafter's id to read for a token it has not; none drafts nothing behind such a token"""

    _loaded: dict[tuple[str, str], LanguageModel] = PrivateAttr(default_factory=dict)

    @field_serializer("model")
    def _name_model(self, model: str | LanguageModel) -> str:
        return model if isinstance(model, str) else model.name

    @model_validator(mode="after")
    def _check_knobs(self) -> Self:
        if self.dtype is not None and (self.model == ITSELF or not isinstance(self.model, str)):
            raise ValueError(
                f"dtype is for a drafter that is loaded by name, got dtype={self.dtype} for a "
                f"model that is there already; leave dtype out"
            )
        check_knobs(self.id_map, self.unmapped)
        if self.id_map is not None and self.model == ITSELF:
            raise ValueError(
                f"id_map is for a drafter with another tokenizer, got id_map={self.id_map} for "
                f"the target itself; leave id_map out"
            )
        return self

    def open(self, target: LanguageModel, cache: KVCache) -> AutoregressiveSession:
        """Return a session whose drafter shares the target's vocabulary, or is mapped to it.

        The drafter is loaded once, when first asked for. Raises ModelMismatchError, ConfigError.
        """
        model = self._resolve(target)
        return AutoregressiveSession(model, self._vocabulary(target, model), self.prefill_chunk)

    def describe(self, target: LanguageModel) -> dict[str, Any]:
        """Return which model drafts, and its sizes."""
        model = self._resolve(target)
        vocabulary = self._vocabulary(target, model)
        return {
            **super().describe(target),
            "model": model.name,
            "layers": model.num_layers,
            "hidden_size": model.hidden_size,
            "vocabulary_rows": model.vocab_size,
            "max_positions": model.max_positions,
            **describe_map(vocabulary, self.id_map, self.unmapped),
        }

    def _vocabulary(self, target: LanguageModel, model: LanguageModel) -> DraftVocabulary:
        if self.id_map is None:
            if model is not target:
                compare_vocabularies(target, model)
            return DraftVocabulary(model, target)
        ids = map_ids(self.id_map, target, tokens_of(model), self.unmapped)
        forbidden = model.unknown_ids.tolist()
        return MappedVocabulary(model.name, ids, target, forbidden=forbidden, device=model.device)

    def _resolve(self, target: LanguageModel) -> LanguageModel:
        if not isinstance(self.model, str):
            return self.model
        if self.model == ITSELF:
            return target
        dtype = self.dtype or str(target.dtype).removeprefix("torch.")
        key = (dtype, str(target.device))
        if key not in self._loaded:
            from lenity.models import load  # transformers, only where a model is loaded

            self._loaded[key] = load(self.model, dtype=dtype, device=target.device)
        return self._loaded[key]
