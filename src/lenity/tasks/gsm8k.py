"""GSM8K: word problems with a whole number as answer (Cobbe et al. 2021, arXiv 2110.14168)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from lenity.errors import ConfigError
from lenity.tasks.base import DataTask, Item, Message, Score, assistant, user
from lenity.tasks.final_number import final_number, numbers
from lenity.tasks.sources import Hub, Table, read_rows

_ASK = "Reason step by step. Write the answer, a number, on a last line of its own: #### number"
_CALCULATION = re.compile(r"<<.*?>>")
_NEXT_QUESTION = re.compile(r"\n\s*Question:")


class Gsm8k(DataTask):
    """Grade-school word problems; the last number of the answer is compared."""

    idea: ClassVar[str] = "grade-school word problems, final number compared"
    paper: ClassVar[str] = "Training Verifiers to Solve Math Word Problems, arXiv 2110.14168"
    source: ClassVar[str] = "openai/grade-school-math"
    licence: ClassVar[str] = "MIT"
    table: ClassVar[Table] = Table(
        files=("gsm8k_test.jsonl", "gsm8k/test.jsonl"), hub=Hub(name="openai/gsm8k", config="main")
    )
    training_table: ClassVar[Table] = Table(
        files=("gsm8k_train.jsonl", "gsm8k/train.jsonl"),
        hub=Hub(name="openai/gsm8k", config="main", split="train"),
    )

    type: Literal["gsm8k"] = "gsm8k"
    max_new_tokens: int = Field(default=384, ge=1)
    """New tokens an answer may have where nobody says otherwise"""
    few_shot: int = Field(default=0, ge=0, le=32)
    """Solved examples before the question: the first of the training file"""

    def item_builder(self, data: str | Path | None) -> Callable[[Mapping[str, Any], int], Item]:
        """Return what puts the examples before each question."""
        examples = self._examples(data)
        return lambda row, index: build(row, index, examples)

    def _examples(self, data: str | Path | None) -> list[tuple[str, str]]:
        if not self.few_shot:
            return []
        # a single file given is the test file; examples then come from a folder or the hub
        folder = None if data is not None and Path(data).is_file() else data
        rows = read_rows(self.training_table, folder, self.revision).rows[: self.few_shot]
        if len(rows) < self.few_shot:
            raise ConfigError(
                f"Expected {self.few_shot} training examples, got {len(rows)}. Lower few_shot."
            )
        return [(row["question"], _CALCULATION.sub("", row["answer"])) for row in rows]

    def judge(self, item: Item, answer: str) -> Score:
        """Return 1 where the final number equals the reference's."""
        found = final_number(_NEXT_QUESTION.split(answer)[0])
        if found is None:
            return Score(value=0.0, detail=f"no number; expected {item.reference}")
        is_right = found.value == Decimal(item.reference)
        said = f"{found.text} ({found.rule})"
        detail = said if is_right else f"{said}; expected {item.reference}"
        return Score(value=float(is_right), detail=detail, answer=str(found.value))


def build(row: Mapping[str, Any], index: int, examples: list[tuple[str, str]]) -> Item:
    """Return the item of a row, with solved examples before it."""
    question, solution = row["question"], row["answer"]
    gold = numbers(solution.rpartition("####")[2])
    if not gold:
        raise ConfigError(
            f"Expected '#### number' at the end of the answer, got {solution[-40:]!r}."
        )
    messages: list[Message] = []
    for asked, solved in examples:
        messages += [user(f"{asked}\n\n{_ASK}"), assistant(solved)]
    shots = [f"Question: {asked}\nAnswer: {solved}" for asked, solved in examples]
    steps = solution.count("<<")
    return Item(
        id=f"gsm8k/{index}",
        messages=(*messages, user(f"{question}\n\n{_ASK}")),
        prompt="\n\n".join([*shots, f"Question: {question}\nAnswer:"]),
        reference=str(gold[-1][1]),
        family="1-2 steps" if steps <= 2 else "3-4 steps" if steps <= 4 else "5+ steps",
        about=question,
    )
