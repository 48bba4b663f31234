"""MT-Bench: open questions in eight categories (Zheng et al. 2023, arXiv 2306.05685). No scorer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from lenity.errors import ConfigError
from lenity.tasks.base import DataTask, Item, Message, assistant, user
from lenity.tasks.sources import Hub, Table, read_jsonl


class TurnsTask(DataTask):
    """Questions of one or two turns, by category; no right answers, so no scorer."""

    max_new_tokens: int = Field(default=512, ge=1)
    """New tokens an answer may have where nobody says otherwise"""

    @property
    def has_scorer(self) -> bool:
        """Return False: there are no right answers."""
        return False

    def item(self, row: Mapping[str, Any], index: int) -> Item:
        """Return the first turn of a row."""
        first = turns_of(row)[0]
        return Item(
            id=f"{self.type}/{question_id(row, index)}",
            messages=(user(first),),
            prompt=first,
            reference=reference_of(row, 1),
            family=str(row.get("category", "all")),
            about=first,
        )


class MtBench(TurnsTask):
    """Two-turn questions; the first turn, or the second after a fixed first answer."""

    idea: ClassVar[str] = "open questions in eight categories, no scorer"
    paper: ClassVar[str] = "Judging LLM-as-a-Judge with MT-Bench, arXiv 2306.05685"
    source: ClassVar[str] = "lm-sys/FastChat"
    licence: ClassVar[str] = "Apache-2.0"
    table: ClassVar[Table] = Table(
        files=("mt_bench_question.jsonl", "mt_bench/question.jsonl"),
        hub=Hub(name="HuggingFaceH4/mt_bench_prompts", split="train"),
    )

    type: Literal["mt_bench"] = "mt_bench"
    turn: int = Field(default=1, ge=1, le=2)
    """Which turn is asked"""
    answers: str | None = None
    """JSONL of first answers for turn 2: question_id and text, the same for every arm"""

    def item_builder(self, data: str | Path | None) -> Callable[[Mapping[str, Any], int], Item]:
        """Return what makes an item of the turn asked for. Raises ConfigError."""
        if self.turn == 1:
            return self.item
        if self.answers is None:
            raise ConfigError(
                "Expected answers=FILE for turn=2, got none: the second turn follows a first "
                "answer, which must be the same for every arm. Record one with turn=1."
            )
        known = {
            str(row["question_id"]): row["text"] for row in read_jsonl(Path(self.answers)).rows
        }
        return lambda row, index: self._second(row, index, known)

    def _second(self, row: Mapping[str, Any], index: int, known: Mapping[str, str]) -> Item:
        first, second = turns_of(row)[:2]
        key = question_id(row, index)
        if key not in known:
            raise ConfigError(
                f"Expected a first answer to question {key} in {self.answers}, got none."
            )
        messages: tuple[Message, ...] = (user(first), assistant(known[key]), user(second))
        return Item(
            id=f"mt_bench/{key}/2",
            messages=messages,
            reference=reference_of(row, 2),
            family=str(row.get("category", "all")),
            about=f"{first}\n{second}",
        )


def turns_of(row: Mapping[str, Any]) -> list[str]:
    """Return the turns of a row, under the name of the file or of the hub's dataset."""
    turns = row["turns"] if "turns" in row else row["prompt"]
    if not isinstance(turns, list) or not turns:
        raise ValueError(f"a list of turns was expected, got {turns!r}")
    return [str(turn) for turn in turns]


def reference_of(row: Mapping[str, Any], turn: int) -> str | None:
    """Return a good answer to a turn of a row, for a judge; none where the row has none."""
    references = row.get("reference")
    if not isinstance(references, list) or len(references) < turn:
        return None
    return str(references[turn - 1]) or None


def question_id(row: Mapping[str, Any], index: int) -> str:
    """Return the id of a row, or its place."""
    return str(row.get("question_id", row.get("prompt_id", index)))
