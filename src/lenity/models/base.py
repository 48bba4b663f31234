"""The two small faces behind which every language model stands: LanguageModel and KVCache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenStates:
    """What one forward returns before the LM head.

    ``last`` is what enters the LM head. ``features`` concatenates, along the last axis, the
    residual stream after the layers asked for (``taps``), in the order asked; None without taps.
    """

    last: Float[Tensor, "B T H"]
    features: Float[Tensor, "B T F"] | None = None


@runtime_checkable
class Tokenizer(Protocol):
    """Text to ids and back; ids the tokenizer does not know are never emitted."""

    special_ids: frozenset[int]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a raw prompt, with the special tokens the tokenizer adds itself."""
        ...

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the ids of a conversation, ready for the assistant's reply."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Return the text of ids; incomplete UTF-8 shows as U+FFFD."""
        ...


@runtime_checkable
class KVCache(Protocol):
    """Keys and values of a batch, one slot per row, each with its own length.

    A forward writes behind ``lengths[b]`` and does not move it; ``commit`` makes written tokens
    count, which is also how rejected ones are forgotten.
    """

    lengths: list[int]

    def commit(self, counts: Sequence[int]) -> None:
        """Make the first ``counts[b]`` tokens written behind row b's length count."""
        ...

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order, and free the others."""
        ...

    def append(self, other: KVCache) -> None:
        """Take over the rows of another cache of the same model, behind one's own."""
        ...


@runtime_checkable
class LanguageModel(Protocol):
    """A causal language model: tokens to hidden states to logits.

    ``vocab_size`` counts rows of the LM head. ``unknown_ids`` are head rows no token stands for
    (padding); ``max_positions`` is None where positions are not limited.
    """

    name: str
    vocab_size: int
    unknown_ids: Int[Tensor, " U"]
    eos_token_ids: frozenset[int]
    tokenizer: Tokenizer | None
    max_positions: int | None
    num_layers: int
    hidden_size: int
    device: torch.device
    dtype: torch.dtype

    def new_cache(self, batch_size: int = 0) -> KVCache:
        """Return an empty cache of ``batch_size`` rows of length 0."""
        ...

    def hidden_states(
        self,
        token_ids: Int[Tensor, "B T"],
        cache: KVCache,
        *,
        offset: int = 0,
        taps: tuple[int, ...] = (),
        layers: tuple[int, ...] | None = None,
    ) -> HiddenStates:
        """Run the layers over T tokens per row, at positions ``lengths[b] + offset + t``.

        Row b attends to its first ``lengths[b] + offset`` cached tokens and, causally, to its own.
        What is behind a row's real tokens is padding: it is computed and never committed.
        ``taps`` are layer indices (0 = first layer) whose output is returned; -1 is what enters
        the first layer, ``num_layers`` what enters the LM head. ``layers`` runs only these
        layers; the others' caches are not touched.
        """
        ...

    def embed(self, token_ids: Int[Tensor, "*N"]) -> Float[Tensor, "*N H"]:
        """Return the input embeddings of tokens, as the table holds them."""
        ...

    def logits(self, hidden: Float[Tensor, "*N H"]) -> Float[Tensor, "*N V"]:
        """Return the logits of hidden states, in the model's dtype, unknown ids included."""
        ...
