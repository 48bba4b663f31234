"""Prompts for trying a drafter on whatever target it has: lenity's own, or random token ids."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from lenity.errors import LenityError

if TYPE_CHECKING:
    from lenity.models.base import LanguageModel

RANDOM_LENGTH = 16
"""Ids of a random prompt."""


def own_prompts(target: LanguageModel, count: int) -> tuple[list[Any], str]:
    """Return ``count`` prompts for a target, and what they are, in words.

    Held-out prompts of lenity's families (none of them is ever trained on), as a user's messages
    where there is a chat template. Without a tokenizer, random ids, the same on every call.
    """
    from lenity.training.prompts import FAMILIES, prompts

    if target.tokenizer is None:
        words = (
            f"{count} prompts of {RANDOM_LENGTH} random token ids, for the target has no "
            f"tokenizer: acceptance on text may be another"
        )
        return _random_ids(target, count), words
    families = ", ".join(FAMILIES)
    texts = [text for _, text in prompts(tuple(FAMILIES), count, held_out=True)]
    if has_chat(target):
        words = f"{len(texts)} of lenity's own prompts ({families}) through the chat template"
        return [[{"role": "user", "content": text}] for text in texts], words
    return list(texts), (
        f"{len(texts)} of lenity's own prompts ({families}) as plain text, for there is no chat "
        f"template"
    )


def has_chat(target: LanguageModel) -> bool:
    """Return whether a target has a tokenizer with a chat template that works."""
    try:
        return target.tokenizer is not None and bool(
            target.tokenizer.encode_chat([{"role": "user", "content": "x"}])
        )
    except LenityError:
        return False


def _random_ids(target: LanguageModel, count: int) -> list[list[int]]:
    draw = random.Random(0)
    unknown = set(target.unknown_ids.tolist()) | target.eos_token_ids
    known = [i for i in range(target.vocab_size) if i not in unknown]
    return [draw.choices(known, k=RANDOM_LENGTH) for _ in range(count)]
