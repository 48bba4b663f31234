r"""MATH-500: competition problems with a LaTeX answer (Hendrycks et al. 2021, arXiv 2103.03874).

The 500 problems are the held-out ones of Lightman et al. 2023 (arXiv 2305.20050). Answers are
compared by math-verify: as expressions, not as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from lenity.tasks.base import DataTask, Item, Score, user
from lenity.tasks.final_number import last_boxed
from lenity.tasks.math_answers import check_installed, comparer
from lenity.tasks.sources import Hub, Table

_ASK = r"Reason step by step, and put the final answer into \boxed{}."


class Math500(DataTask):
    """Competition mathematics; the boxed answer is compared as an expression."""

    idea: ClassVar[str] = "competition mathematics, boxed answer compared by math-verify"
    paper: ClassVar[str] = "MATH, arXiv 2103.03874; the 500 of arXiv 2305.20050"
    source: ClassVar[str] = "openai/prm800k"
    licence: ClassVar[str] = "MIT"
    table: ClassVar[Table] = Table(
        files=("math500_test.jsonl", "math500.jsonl", "math500/test.jsonl"),
        hub=Hub(name="HuggingFaceH4/MATH-500"),
    )

    type: Literal["math500"] = "math500"
    max_new_tokens: int = Field(default=768, ge=1)
    """New tokens an answer may have where nobody says otherwise"""

    def item(self, row: Mapping[str, Any], index: int) -> Item:
        """Return the item of a row."""
        problem = row["problem"]
        return Item(
            id=f"math500/{row.get('unique_id', index)}",
            messages=(user(f"{problem}\n\n{_ASK}"),),
            prompt=f"Problem: {problem}\n{_ASK}\nSolution:",
            reference=str(row["answer"]),
            family=str(row.get("subject", "all")),
            about=problem,
        )

    def check_scorer(self) -> None:
        """Raise MissingExtraError without math-verify."""
        check_installed()

    def judge(self, item: Item, answer: str) -> Score:
        """Return 1 where the boxed answer, or without one the last formula, equals the gold."""
        return judge_answer(answer, item.reference)


def judge_answer(answer: str, gold: str) -> Score:
    """Return whether an answer's last box (else its last formula) means the same as ``gold``."""
    boxed = last_boxed(answer)
    text = answer if boxed is None else f"\\boxed{{{boxed}}}"
    said = "last formula" if boxed is None else f"boxed {boxed}"
    if boxed is not None and _plain(boxed) == _plain(gold):
        return Score(value=1.0, detail=f"{said} (same text)", answer=boxed)
    verdict = comparer().compare(gold, text)
    detail = f"{said} ({verdict.detail})"
    if not verdict.is_equal:
        detail += f"; expected {gold}"
    return Score(value=float(verdict.is_equal), detail=detail, answer=boxed or verdict.read)


def _plain(latex: str) -> str:
    """Return LaTeX without spaces, sizes of brackets and styles of fractions."""
    for noise in (" ", "\\!", "\\,", "\\left", "\\right", "$"):
        latex = latex.replace(noise, "")
    return latex.replace("dfrac", "frac").replace("tfrac", "frac")
