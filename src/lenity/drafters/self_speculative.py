"""Draft with the target itself, some of its layers left out.

Weights and cache are the target's own (Zhang et al. 2023, "Draft & Verify", arXiv 2309.08168; they
skip attention and feed-forward parts separately, we skip whole layers). For the committed tokens
the kept layers read what the full model wrote. The anchor and the draft tokens are written behind
the cache's lengths, where verification writes them again with every layer; nothing is ever
committed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import BeforeValidator, Field, PlainSerializer
from torch import Tensor

from lenity.drafters.base import DraftContext, Drafter, no_draft
from lenity.drafters.chain import DraftVocabulary, draft_chain
from lenity.drafters.layer_sets import LayerSet, find_layer_set
from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.base import KVCache, LanguageModel
from lenity.types import Draft

AUTO = "auto"
"""The skip that stands for the set saved or shipped for the target."""


class SelfSpeculativeSession:
    """Drafts behind the lengths of the target's cache and leaves no trace there."""

    taps: tuple[int, ...] = ()

    def __init__(self, target: LanguageModel, cache: KVCache, layers: tuple[int, ...]) -> None:
        """Draft with these layers of ``target``."""
        self._target, self._cache, self._layers = target, cache, layers
        self._vocabulary = DraftVocabulary(target, target)

    def admit(self, token_ids: Sequence[int], features: Float[Tensor, "T F"] | None) -> None:
        """Do nothing: the target's own prefill is the drafter's."""

    def propose(self, context: DraftContext) -> Draft:
        """Return a chain of up to ``context.limits[b]`` tokens per row."""
        if not context.gamma:
            return no_draft(len(context.limits), self._target.device)
        assert self._cache.lengths == [len(ids) - 1 for ids in context.token_ids], (
            "the target's cache holds all committed tokens but the anchor"
        )
        anchors = torch.tensor(
            [ids[-1] for ids in context.token_ids], dtype=torch.int64, device=self._target.device
        )

        def advance(i: int, drafted: Int[Tensor, " B"] | None) -> Float[Tensor, "B D"]:
            tokens = anchors if drafted is None else drafted
            hidden = self._target.hidden_states(
                tokens[:, None], self._cache, offset=i, layers=self._layers
            )
            return self._target.logits(hidden.last[:, 0])

        return draft_chain(advance, context, self._vocabulary)

    def observe(
        self, accepted_lengths: Sequence[int], features: Float[Tensor, "B R F"] | None
    ) -> None:
        """Do nothing: the engine commits on the target's cache."""

    def keep(self, rows: Sequence[int]) -> None:
        """Do nothing: the engine keeps the rows of the target's cache."""


def read_skip(value: Any) -> Any:
    """Return layer ids from ``8+9+11`` or one number; leave everything else as it is."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if isinstance(value, str) and all(part.strip().isdigit() for part in value.split("+")):
        return tuple(int(part) for part in value.split("+"))
    return str(value) if isinstance(value, Path) else value


def write_skip(value: str | tuple[int, ...]) -> str:
    """Return the spelling of the command line; the inverse of read_skip."""
    return value if isinstance(value, str) else "+".join(map(str, value))


class SelfSpeculative(Drafter):
    """The target with a set of its layers skipped: no second model, no training.

    Acceptance is high and drafting is slow: a draft token costs the kept share of the layers and
    the whole LM head, so a gain needs a deep model, few kept layers and a small vocabulary.
    Sampling and ``confidence`` are as for ``autoregressive``.
    """

    idea: ClassVar[str] = "the target with some of its layers skipped, on the target's own cache"
    paper: ClassVar[str] = "Zhang et al. 2023, Draft & Verify, arXiv 2309.08168"

    type: Literal["self_speculative"] = "self_speculative"
    skip: Annotated[
        str | tuple[int, ...], BeforeValidator(read_skip), PlainSerializer(write_skip)
    ] = Field(default=AUTO)
    """Layers left out: ids such as 8+9+11, a saved set's file, or auto for this target's set"""

    def layers(self, target: LanguageModel) -> tuple[int, ...]:
        """Return the layers of ``target`` that are kept. Raises ConfigError."""
        skipped = set(self._skipped(target))
        kept = tuple(i for i in range(target.num_layers) if i not in skipped)
        if not kept or not skipped <= set(range(target.num_layers)):
            raise ConfigError(
                f"Expected skip to name some of the layers 0 to {target.num_layers - 1} of "
                f"{target.name}, not all of them, got {sorted(skipped)}. Correct skip=."
            )
        return kept

    def open(self, target: LanguageModel, cache: KVCache) -> SelfSpeculativeSession:
        """Return a session on the target's own cache. Raises ConfigError, ModelMismatchError."""
        return SelfSpeculativeSession(target, cache, self.layers(target))

    def describe(self, target: LanguageModel) -> dict[str, Any]:
        """Return which layers of the target draft."""
        kept = self.layers(target)
        return {
            **super().describe(target),
            "layers_kept": f"{len(kept)} of {target.num_layers}",
            "layers_skipped": [i for i in range(target.num_layers) if i not in kept],
        }

    def _skipped(self, target: LanguageModel) -> tuple[int, ...]:
        if not isinstance(self.skip, str):
            return self.skip
        if self.skip == AUTO:
            return find_layer_set(target).skipped
        found = LayerSet.load(Path(self.skip))
        if not found.fits(target):
            raise ModelMismatchError(
                f"{self.skip} holds layers of {found.model} ({found.num_layers} layers, hidden "
                f"size {found.hidden_size}), got the target {target.name} ({target.num_layers} "
                f"layers, hidden size {target.hidden_size}). Search layers for this target."
            )
        return found.skipped
