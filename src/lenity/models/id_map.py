"""Two vocabularies and one text: which id of a drafter stands for which id of the target.

A map pairs ids one to one. It is read from a file, or made of the tokens themselves: two ids are
one where both tokenizers write the same token for them. Tokens are compared as tokenizers write
them, so two that write spaces differently (byte-level and SentencePiece) share little that way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, StrictInt

from lenity.errors import ConfigError, ModelMismatchError
from lenity.registry import read_file

CONTENT = "content"
"""The map that is made of the tokens."""


class IdMapFile(BaseModel):
    """What a file with a map holds, as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    version: Literal[1] = 1
    """Of this format"""
    pairs: tuple[tuple[StrictInt, StrictInt], ...]
    """Each pair is an id of the target and the drafter's id of the same token"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What is known of a vocabulary: its owner, its size, tokens by id (None: not known).

    ``special_ids`` are no text, where the tokenizer says so.
    """

    name: str
    size: int
    by_id: Mapping[int, str] | None
    special_ids: AbstractSet[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdMap:
    """A drafter's id for ids of the target.

    A token of the target that is not in the map is read as ``stand_in``; without one, a text that
    has it cannot be read. It is never drafted.
    """

    name: str
    to_drafter: Mapping[int, int] = field(repr=False)
    stand_in: int | None = None

    def translate(self, token_ids: Sequence[int]) -> list[int] | None:
        """Return a text of the target in the drafter's ids, token by token; None: unreadable."""
        if self.stand_in is not None:
            return [self.to_drafter.get(i, self.stand_in) for i in token_ids]
        found = [self.to_drafter.get(i, -1) for i in token_ids]
        return None if -1 in found else found

    def write(self, file: str | Path) -> None:
        """Write the pairs as the file that ``read_id_map`` reads."""
        pairs = tuple(sorted(self.to_drafter.items()))
        Path(file).write_text(IdMapFile(pairs=pairs).model_dump_json())


def make_id_map(source: str, target: Tokens, drafter: Tokens, stand_in: int | None) -> IdMap:
    """Return the map by content, or the one in the file ``source``.

    Raises ConfigError for what is no map, ModelMismatchError for ids that a model does not have and
    for vocabularies that share nothing.
    """
    if stand_in is not None and not 0 <= stand_in < drafter.size:
        raise ModelMismatchError(
            f"Expected unmapped to be an id of {drafter.name}, 0 to {drafter.size - 1}, got "
            f"{stand_in}. Give the id that shall stand for tokens it does not have."
        )
    is_made = source == CONTENT
    pairs = _by_content(target, drafter) if is_made else _check(read_pairs(source), target, drafter)
    if not pairs:
        raise ModelMismatchError(
            f"Expected {target.name} and {drafter.name} to share a token, got none in the map "
            f"{source!r}. Use a drafter made for this target's tokenizer."
        )
    return IdMap(name=source, to_drafter=pairs, stand_in=stand_in)


def read_pairs(file: str | Path) -> dict[int, int]:
    """Return the drafter's id of each of the target's ids in a file. Raises ConfigError."""
    pairs = read_file(
        IdMapFile,
        file,
        expected='a map of token ids, JSON such as {"version": 1, "pairs": '
        "[[target id, drafter id], …]}",
        advice=f"Correct the file or its name, or use id_map={CONTENT}.",
    ).pairs
    found = dict(pairs)
    if len(found) < len(pairs) or len(set(found.values())) < len(pairs):
        raise ConfigError(
            f"Expected each id at most once on either side of the map in {file}, got an id twice: "
            f"what is drafted would stand for two tokens. Keep one pair of them."
        )
    return found


def _by_content(target: Tokens, drafter: Tokens) -> dict[int, int]:
    for side in (target, drafter):
        if side.by_id is None:
            raise ModelMismatchError(
                f"Expected tokens of {target.name} and {drafter.name} to compare, got none of "
                f"{side.name}. Load it with its tokenizer, or give the map in a file."
            )
    assert target.by_id is not None, "as above"
    assert drafter.by_id is not None, "as above"
    theirs: dict[str, int] = {}
    for index, token in sorted(drafter.by_id.items()):
        theirs.setdefault(token, index)
    pairs: dict[int, int] = {}
    for index, token in sorted(target.by_id.items()):
        own = theirs.pop(token, None)  # taken once: a map is one to one
        if own is not None and _is_shared(target, index, drafter, own):
            pairs[index] = own
    return pairs


def _is_shared(target: Tokens, ours: int, drafter: Tokens, theirs: int) -> bool:
    """Return whether both models have the token, as text or as special, as far as both say so."""
    if ours >= target.size or theirs >= drafter.size:
        return False
    if target.special_ids is None or drafter.special_ids is None:
        return True
    return (ours in target.special_ids) == (theirs in drafter.special_ids)


def _check(pairs: dict[int, int], target: Tokens, drafter: Tokens) -> dict[int, int]:
    for side, index in (
        *((target, index) for index in pairs),
        *((drafter, index) for index in pairs.values()),
    ):
        if not 0 <= index < side.size:
            raise ModelMismatchError(
                f"Expected ids of {side.name} in the map, 0 to {side.size - 1}, got {index}. The "
                f"map belongs to other models."
            )
    return pairs
