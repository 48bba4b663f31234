"""MMLU, asked for a letter: no log-likelihoods (Hendrycks et al. 2020, arXiv 2009.03300)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from lenity.tasks.base import DataTask, Item, Score, user
from lenity.tasks.sources import Hub, Table

_LETTERS = "ABCD"
_WRAP = r"[\s(\[*_\"'$]*(?:\\(?:boxed|text|mathrm|textbf|mathbf)\s*\{[\s(]*)*"
# in this order; within one, the last match counts
_RULES = (
    ("boxed", re.compile(r"\\(?:boxed|fbox)\s*\{\s*(?:\\\w+\s*\{\s*)?\(?([A-D])\b")),
    (
        "answer is",
        re.compile(
            rf"(?i:\b(?:answer|choice|option))\b(?i:\s+is|\s*:|\s+would\s+be)(?i:\s*:|\s+option)?"
            rf"{_WRAP}([A-D])(?![\w'’])"
        ),
    ),
)
_FIRST = re.compile(r"^[\s(\[*_\"']*([A-D])(?:[)\].:,*_\"]|'(?!\w)|\s*$|\s*\n)")
_LINE = re.compile(r"^[\s(\[*_\"']*([A-D])[)\].:*_\"']*\s*$", re.MULTILINE)
_BRACKET = re.compile(r"\(([A-D])\)")


class Mmlu(DataTask):
    """Multiple choice, four options in the order of the file; the letter is compared."""

    idea: ClassVar[str] = "multiple choice, the letter that is written is compared"
    paper: ClassVar[str] = "Measuring Massive Multitask Language Understanding, arXiv 2009.03300"
    source: ClassVar[str] = "hendrycks/test"
    licence: ClassVar[str] = "MIT"
    table: ClassVar[Table] = Table(
        files=("mmlu_test.jsonl", "mmlu_stem_test.jsonl", "mmlu/test.jsonl"),
        hub=Hub(name="cais/mmlu", config="all"),
    )

    type: Literal["mmlu"] = "mmlu"
    max_new_tokens: int = Field(default=256, ge=1)
    """New tokens an answer may have where nobody says otherwise"""
    reasoning: bool = False
    """Whether to ask for reasoning before the letter"""

    def item(self, row: Mapping[str, Any], index: int) -> Item:
        """Return the item of a row; ``answer`` counts from 0."""
        choices = [str(choice) for choice in row["choices"]]
        if len(choices) != len(_LETTERS):
            raise ValueError(f"{len(choices)} choices, 4 are expected")
        options = "\n".join(
            f"{letter}. {text}" for letter, text in zip(_LETTERS, choices, strict=True)
        )
        body = f"{row['question']}\n\n{options}"
        return Item(
            id=f"mmlu/{index}",
            messages=(user(f"{body}\n\n{self._ask()}"),),
            prompt=f"Question: {body}\nAnswer:",
            reference={"letter": _LETTERS[int(row["answer"])], "choices": choices},
            family=str(row.get("type") or row.get("subject") or "all"),
            about=body,
        )

    def _ask(self) -> str:
        if self.reasoning:
            return "Reason step by step, then end with: The answer is (letter)."
        return "Reply with the letter of the right option only."

    def judge(self, item: Item, answer: str) -> Score:
        """Return 1 where the letter is the reference's."""
        wanted = item.reference["letter"]
        found = letter_of(answer, item.reference["choices"])
        if found is None:
            return Score(value=0.0, detail=f"no letter; expected {wanted}")
        letter, rule = found
        is_right = letter == wanted
        detail = f"{letter} ({rule})" + ("" if is_right else f"; expected {wanted}")
        return Score(value=float(is_right), detail=detail, answer=letter)


def letter_of(text: str, choices: Sequence[str] = ()) -> tuple[str, str] | None:
    """Return the letter a reply chose and the rule that found it.

    In this order: in a box; behind "answer is"; at the very start; alone on a line; in brackets,
    if there is only one such letter; the words of one choice. "A" as an article is no letter.
    """
    for rule, pattern in _RULES:
        if matches := pattern.findall(text):
            return matches[-1], rule
    if first := _FIRST.match(text):
        return first[1], "first"
    if lines := _LINE.findall(text):
        return lines[-1], "own line"
    if len(bracketed := set(_BRACKET.findall(text))) == 1:
        return bracketed.pop(), "brackets"
    said = text.strip().rstrip(".").casefold()
    same = [
        letter
        for letter, choice in zip(_LETTERS, choices, strict=False)
        if choice.strip().rstrip(".").casefold() == said
    ]
    return (same[0], "words") if len(same) == 1 else None
