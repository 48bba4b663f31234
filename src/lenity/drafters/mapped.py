"""Drafting with another tokenizer than the target's: laws and texts through a map of ids.

The drafter reads the target's text token by token in its own ids, and proposes mapped ids only: its
law is restricted to them and normalised again before anything is drawn, so that what is handed to
the verifier is exactly the law the token came from, over the target's ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenity.drafters.chain import DraftVocabulary
from lenity.errors import ModelMismatchError
from lenity.models.base import LanguageModel
from lenity.models.id_map import IdMap, Tokens, make_id_map


class MappedVocabulary(DraftVocabulary):
    """Rows of a drafter's head, by the target's ids."""

    def __init__(
        self,
        name: str,
        ids: IdMap,
        target: LanguageModel,
        *,
        forbidden: Sequence[int],
        device: torch.device,
    ) -> None:
        """Spread the map over the target's head.

        ``forbidden`` are ids of the drafter that are never text; ``device`` is where its logits
        are. Raises ModelMismatchError when nothing is left to draft.
        """
        self.name, self.size, self.device = name, target.vocab_size, target.device
        self._ids = ids
        rows = torch.full((self.size,), -1, dtype=torch.int64)
        rows[list(ids.to_drafter)] = torch.tensor(list(ids.to_drafter.values()))
        rows[target.unknown_ids.cpu()] = -1
        rows[torch.isin(rows, torch.tensor(list(forbidden), dtype=torch.int64))] = -1
        self.num_mapped = int((rows >= 0).sum())
        if not self.num_mapped:
            raise ModelMismatchError(
                f"Expected a map of ids that both {target.name} and {name} use for text, got none "
                f"in {ids.name!r}. Use a drafter made for this target's tokenizer."
            )
        self._is_unmapped = (rows < 0).to(device)
        self._rows = rows.clamp_min(0).to(device)

    def clean(self, logits: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Return logits over the target's head, float32, -inf where no mapped token stands."""
        spread = logits.to(torch.float32).index_select(-1, self._rows)
        return spread.masked_fill(self._is_unmapped, -float("inf"))

    def clamp(self, token_ids: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Keep ids drawn from a law that is not one (NaN) inside the target's vocabulary."""
        return token_ids.clamp_max(self.size - 1)

    def translate(self, token_ids: Sequence[int]) -> Sequence[int] | None:
        """Return a text in the drafter's ids; None where it cannot read it."""
        return self._ids.translate(token_ids)

    def own_ids(self, token_ids: Int[Tensor, "*N"]) -> Int[Tensor, "*N"]:
        """Return the drafter's ids of tokens it drafted."""
        return self._rows[token_ids.to(self._rows.device)]


def tokens_of(model: LanguageModel) -> Tokens:
    """Return what a causal model's tokenizer says of its vocabulary."""
    make = getattr(model.tokenizer, "fingerprint", None)
    found = make() if make is not None else None
    return Tokens(
        name=model.name,
        size=model.vocab_size,
        by_id=None if found is None else found.tokens,
        special_ids=None if found is None else found.special_ids,
    )


def map_ids(id_map: str, target: LanguageModel, drafter: Tokens, unmapped: int | None) -> IdMap:
    """Return the map that the knobs ``id_map`` and ``unmapped`` ask for.

    Raises ConfigError, ModelMismatchError.
    """
    return make_id_map(id_map, tokens_of(target), drafter, unmapped)


def check_knobs(id_map: str | None, unmapped: int | None) -> None:
    """Refuse a stand-in where nothing is mapped. Raises ValueError."""
    if id_map is None and unmapped is not None:
        raise ValueError(
            f"unmapped is for a drafter with an id_map, got unmapped={unmapped} without one; set "
            f"id_map, or leave unmapped out"
        )


def describe_map(
    vocabulary: DraftVocabulary, id_map: str | None, unmapped: int | None
) -> dict[str, Any]:
    """Return what there is to say of a map: names and plain values; nothing without one."""
    if not isinstance(vocabulary, MappedVocabulary):
        return {}
    read_as = "not read" if unmapped is None else f"read as id {unmapped}"
    drafted = f"{vocabulary.num_mapped} of the target's {vocabulary.size} ids are drafted"
    return {
        "vocabulary_map": f"{id_map}: {drafted}",
        "unmapped_tokens": read_as,
    }
