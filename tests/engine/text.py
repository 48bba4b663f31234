"""A tokenizer whose tokens are pieces of UTF-8, cut wherever the test likes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass
class Pieces:
    """Token i is ``pieces[i]``; special ids are no text."""

    pieces: Sequence[bytes]
    special_ids: frozenset[int] = frozenset()

    def encode(self, text: str) -> list[int]:
        return [self.pieces.index(char.encode()) for char in text]

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return self.encode("".join(message["content"] for message in messages))

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        kept = [i for i in token_ids if not (skip_special and i in self.special_ids)]
        return b"".join(self.pieces[i] for i in kept).decode("utf-8", "replace")


def byte_tokenizer() -> Pieces:
    """Return the tokenizer of which every byte is a token."""
    return Pieces([bytes([i]) for i in range(256)])


def cut_into(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Return ``data`` cut at these offsets, empty pieces left out."""
    edges = [0, *sorted(min(c, len(data)) for c in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a < b]
