"""HumanEval: functions from their docstrings, judged by running tests (arXiv 2107.03374)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from lenity.tasks.base import DataTask, Item, Score, user
from lenity.tasks.code_blocks import solution
from lenity.tasks.sandbox import Limits, Part, check_allowed, run_parts
from lenity.tasks.sources import Hub, Table


class CodeTask(DataTask):
    """A task whose answers are run. Nothing is run unless that is allowed."""

    allow_code_execution: bool = False
    """Whether answers may be run here, in a subprocess with limits that is no security boundary"""
    timeout_seconds: float = Field(default=10.0, gt=0, le=600)
    """Wall time of the tests of one answer"""
    memory_mb: int = Field(default=1024, ge=128)
    """Address space of the process that runs an answer, MiB"""

    def check_scorer(self) -> None:
        """Raise ConfigError where code may not be run, or cannot be limited."""
        check_allowed(self.allow_code_execution)

    def run(self, parts: list[Part]) -> Score:
        """Return 1 where every part ran through."""
        limits = Limits(seconds=self.timeout_seconds, memory_bytes=self.memory_mb << 20)
        execution = run_parts(parts, limits)
        return Score(
            value=float(execution.outcome == "passed"),
            detail=f"{execution.summary} [{', '.join(execution.isolation)}]",
        )


class HumanEval(CodeTask):
    """Functions to complete from signature and docstring, judged by the set's own tests."""

    idea: ClassVar[str] = "functions from docstrings, judged by running the tests"
    paper: ClassVar[str] = "Evaluating Large Language Models Trained on Code, arXiv 2107.03374"
    source: ClassVar[str] = "openai/human-eval"
    licence: ClassVar[str] = "MIT"
    table: ClassVar[Table] = Table(
        files=("HumanEval.jsonl", "HumanEval.jsonl.gz", "humaneval.jsonl"),
        hub=Hub(name="openai/openai_humaneval"),
    )

    type: Literal["humaneval"] = "humaneval"
    max_new_tokens: int = Field(default=512, ge=1)
    """New tokens an answer may have where nobody says otherwise"""

    def item(self, row: Mapping[str, Any], index: int) -> Item:
        """Return the item of a row."""
        stub = row["prompt"]
        ask = (
            "Complete this Python function. Reply with the whole function in one Python code block."
            f"\n\n```python\n{stub.rstrip()}\n```"
        )
        return Item(
            id=str(row["task_id"]),
            messages=(user(ask),),
            prompt=stub,
            reference={
                "stub": stub,
                "test": row["test"],
                "entry_point": row["entry_point"],
            },
            about=stub,
        )

    def judge(self, item: Item, answer: str) -> Score:
        """Return 1 where the function passes the tests."""
        reference = item.reference
        name = reference["entry_point"]
        code = solution(answer, entry_point=name, stub=reference["stub"])
        test = f"{reference['test']}\ncheck({name})\n"
        return self.run(
            [
                Part(label="solution", code=code),
                Part(label="tests", code=test),
            ]
        )
