"""Your own prompts from a JSONL file, with a simple scorer where you give references.

A line holds ``prompt`` (text) or ``messages`` (a conversation), and may hold ``id``, ``family`` and
``reference`` (a text, or a list of texts any of which is right).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from lenity.errors import ConfigError
from lenity.registry import did_you_mean
from lenity.tasks.base import Item, Loaded, Message, Score, Task, loaded, user
from lenity.tasks.math500 import judge_answer
from lenity.tasks.math_answers import check_installed
from lenity.tasks.sources import read_jsonl

_FIELDS = ("prompt", "messages", "id", "family", "reference")


class Jsonl(Task):
    """Prompts of a file of yours, optionally scored against references in it."""

    idea: ClassVar[str] = "your own prompts from a JSONL file, optionally scored"
    paper: ClassVar[str] = "–"
    source: ClassVar[str] = "a file of yours"
    licence: ClassVar[str] = "yours"

    type: Literal["jsonl"] = "jsonl"
    max_new_tokens: int = Field(default=256, ge=1)
    """New tokens an answer may have where nobody says otherwise"""
    file: str | None = None
    """The file; none takes the one given as data"""
    scorer: Literal["none", "exact", "contains", "math"] = "none"
    """How answers are compared with references: the same text, the reference as words inside
    the answer (both without regard to capitals and spaces), or the same mathematics"""
    chat: bool = False
    """Whether a prompt becomes a user's message"""

    @property
    def has_scorer(self) -> bool:
        """Return whether a scorer was asked for."""
        return self.scorer != "none"

    def open(self, data: str | Path | None = None) -> Loaded:
        """Return the items of the file. Raises ConfigError."""
        file = self.file or data
        if file is None or not Path(file).is_file():
            got = "none" if file is None else f"{file}, which is no file"
            raise ConfigError(f"Expected a JSONL file (jsonl:file=… or --data), got {got}.")
        return loaded(read_jsonl(Path(file)), self.item)

    def item(self, row: Mapping[str, Any], index: int) -> Item:
        """Return the item of a line."""
        for name in row:
            if name not in _FIELDS:
                raise ValueError(f"unknown field {name!r}.{did_you_mean(name, _FIELDS)}")
        prompt, messages = row.get("prompt"), _messages(row)
        if (prompt is None) == (not messages):
            raise ValueError("either prompt or messages is expected")
        if prompt is not None and not isinstance(prompt, str):
            raise ValueError(f"prompt: a text is expected, got {prompt!r}")
        if self.chat and prompt is not None:
            messages, prompt = (user(prompt),), None
        return Item(
            id=str(row.get("id", f"jsonl/{index}")),
            messages=messages,
            prompt=prompt,
            reference=_references(row, self.has_scorer),
            family=str(row.get("family", "all")),
        )

    def check_scorer(self) -> None:
        """Raise MissingExtraError when mathematics is to be compared without math-verify."""
        if self.scorer == "math":
            check_installed()

    def judge(self, item: Item, answer: str) -> Score:
        """Return 1 where the answer fits one of the references."""
        wanted: Sequence[str] = item.reference
        if self.scorer == "math":
            scores = [judge_answer(answer, gold) for gold in wanted]
            return max(scores, key=lambda score: score.value)
        hits = [text for text in wanted if _fits(text, answer, whole=self.scorer == "exact")]
        detail = f"{self.scorer}: {hits[0]}" if hits else f"expected {' or '.join(wanted)}"
        return Score(value=float(bool(hits)), detail=detail, answer=answer.strip())


def _fits(wanted: str, answer: str, *, whole: bool) -> bool:
    """Return whether an answer is, or holds as whole words, what was wanted."""
    gold, said = _folded(wanted), _folded(answer)
    if whole:
        return gold == said
    return re.search(rf"(?<!\w){re.escape(gold)}(?!\w)", said) is not None


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _messages(row: Mapping[str, Any]) -> tuple[Message, ...]:
    messages = row.get("messages") or []
    for message in messages:
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise ValueError(f"messages: role and content are expected, got {message!r}")
        if not all(isinstance(value, str) for value in message.values()):
            raise ValueError(f"messages: texts are expected, got {message!r}")
    return tuple(messages)


def _references(row: Mapping[str, Any], is_needed: bool) -> tuple[str, ...]:
    reference = row.get("reference")
    found = () if reference is None else reference if isinstance(reference, list) else [reference]
    if is_needed and not found:
        raise ValueError("a reference is expected, for a scorer was asked for")
    return tuple(str(text) for text in found)
