"""What a task is: items to ask, and a scorer where there is a right answer.

A task knows no model: rendering is in ``chat``, decoding elsewhere. Nothing here imports torch, so
that recorded answers can be scored again anywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from lenity.errors import ConfigError
from lenity.registry import join_spec
from lenity.tasks.sources import Rows, Table, hash_text, read_rows

Message = dict[str, str]
"""``{"role": "user", "content": "…"}``"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing to ask, as a conversation, as plain text, or as both for either kind of model.

    ``about`` is what the item asks, apart from the wording around it (which knobs may change); by
    it discovery and audit are told apart. ``reference`` is what the scorer needs.
    """

    id: str
    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    reference: Any = None
    family: str = "all"
    about: str | None = None

    def __post_init__(self) -> None:
        """Refuse an item without a prompt, and text that is no Unicode. Raises ConfigError."""
        if not self.messages and not self.prompt:
            raise ConfigError(f"Expected a prompt or messages in item {self.id!r}, got neither.")
        try:
            self._content().encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"Expected text in Unicode in item {self.id!r}, got a lone surrogate. Mend the "
                f"file's encoding."
            ) from None

    @property
    def content_hash(self) -> str:
        """Return 16 hex digits of the content as it is asked: messages and plain text."""
        return hash_text(self._content())

    @property
    def split_hash(self) -> str:
        """Return 16 hex digits of what the item is about; spaces and capitals do not count."""
        about = self.about or self.prompt or " ".join(m["content"] for m in self.messages)
        return hash_text(" ".join(about.split()).casefold())

    def _content(self) -> str:
        return json.dumps([list(self.messages), self.prompt], ensure_ascii=False, sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a scorer says: 0 (wrong) to 1 (right), what it read, and why it said so."""

    value: float
    detail: str
    answer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The items of a task, where they come from, and the revision of that."""

    items: tuple[Item, ...]
    origin: str
    revision: str


class Task(BaseModel):
    """Knobs of a task; frozen, and refusing what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    idea: ClassVar[str]
    paper: ClassVar[str]
    source: ClassVar[str]
    licence: ClassVar[str]
    version: ClassVar[int] = 1
    """Counts changes after which prompts or scores are no longer those of before"""

    type: str
    """Registered name of the task."""
    max_new_tokens: int = Field(default=256, ge=1)
    """New tokens an answer may have where nobody says otherwise"""

    @property
    def label(self) -> str:
        """Return name@version, as records spell it."""
        return f"{self.type}@{self.version}"

    @property
    def spec(self) -> str:
        """Return the task in the spelling of the command line, defaults left out."""
        knobs = self.model_dump(exclude={"type"}, exclude_defaults=True)
        return join_spec(self.type, knobs)

    def __str__(self) -> str:
        """Return the spec."""
        return self.spec

    @property
    def has_scorer(self) -> bool:
        """Return whether there are right answers to compare with."""
        return True

    def open(self, data: str | Path | None = None) -> Loaded:
        """Return the items with their origin and revision. Raises ConfigError."""
        raise NotImplementedError

    def load(self, data: str | Path | None = None) -> list[Item]:
        """Return the items, in a fixed order; ``data`` is a file or folder. Raises ConfigError."""
        return list(self.open(data).items)

    def check_scorer(self) -> None:
        """Raise what would keep ``score`` from working, before anything is decoded."""

    def score(self, item: Item, text: str) -> Score | None:
        """Return the score of an answer; None where the task has no scorer.

        What a reasoning model thinks is no answer: only what follows it is read.
        """
        if not self.has_scorer:
            return None
        self.check_scorer()
        return self.judge(item, without_thinking(text))

    def judge(self, item: Item, answer: str) -> Score:
        """Return the score of an answer without its thinking."""
        raise NotImplementedError


class DataTask(Task):
    """A task whose items are rows of a published table."""

    table: ClassVar[Table]

    revision: str | None = None
    """Revision of the hub's dataset; if set, files are not looked for"""

    def open(self, data: str | Path | None = None) -> Loaded:
        """Return the items of the file or dataset found. Raises ConfigError."""
        rows = read_rows(self.table, data, self.revision)
        return loaded(rows, self.item_builder(data))

    def item_builder(self, data: str | Path | None) -> Callable[[Mapping[str, Any], int], Item]:
        """Return what makes an item of a row and its index."""
        return self.item

    def item(self, row: Mapping[str, Any], index: int) -> Item:
        """Return the item of a row."""
        raise NotImplementedError


def loaded(rows: Rows, build: Callable[[Mapping[str, Any], int], Item]) -> Loaded:
    """Return the items of rows. Raises ConfigError for a row that does not fit, and a double id."""
    items: dict[str, Item] = {}
    for index, row in enumerate(rows.rows):
        try:
            item = build(row, index)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(
                f"{rows.origin}, row {index + 1}: {type(error).__name__}: {error}. It has the "
                f"fields {', '.join(row)}; docs/tasks.md says which are read."
            ) from None
        if item.id in items:
            raise ConfigError(
                f"{rows.origin}, row {index + 1}: the id {item.id!r} stands twice. Ids must differ."
            )
        items[item.id] = item
    return Loaded(items=tuple(items.values()), origin=rows.origin, revision=rows.revision)


def made(items: list[Item], origin: str) -> Loaded:
    """Return items that were generated; their revision is a hash of their content."""
    content = "\n".join(f"{item.id} {item.content_hash} {item.reference}" for item in items)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return Loaded(items=tuple(items), origin=origin, revision=f"made:{digest}")


def without_thinking(text: str) -> str:
    """Return what follows ``</think>``; nothing where thinking began and never ended."""
    _, closed, answer = text.rpartition("</think>")
    if closed:
        return answer
    return "" if text.lstrip().startswith("<think>") else text


def user(text: str) -> Message:
    """Return a user's message."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    """Return an assistant's message."""
    return {"role": "assistant", "content": text}
