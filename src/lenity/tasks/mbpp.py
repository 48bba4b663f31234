"""MBPP+: short functions from one sentence, judged against a reference solution on many inputs.

Austin et al. 2021 (arXiv 2108.07732); inputs of EvalPlus (Liu et al. 2023, arXiv 2305.01210).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from lenity.tasks.base import Item, Score, user
from lenity.tasks.code_blocks import solution
from lenity.tasks.humaneval import CodeTask
from lenity.tasks.mbpp_values import MATCHING, UNORDERED, agree, example_calls, shaped
from lenity.tasks.sandbox import Part
from lenity.tasks.sources import Table

_CALL_REFERENCE = """
import copy as _copy
inf, nan = float("inf"), float("nan")
_inputs = {inputs!r}
_wanted = [{name}(*_copy.deepcopy(_arguments)) for _arguments in _inputs]
"""

_COMPARE = """
import copy

{agree}

reference, solution = namespaces["reference"], namespaces["solution"]
for arguments, wanted in zip(reference["_inputs"], reference["_wanted"], strict=True):
    got = solution[{name!r}](*copy.deepcopy(arguments))
    assert agree(got, wanted, {tolerance!r}, {how!r}), (
        f"{name}{{repr(tuple(arguments))[:80]}}: {{got!r:.60}} instead of {{wanted!r:.60}}"
    )
"""


class Mbpp(CodeTask):
    """Short functions; outputs are compared with those of the reference solution."""

    idea: ClassVar[str] = "short functions from one sentence, compared with a reference solution"
    paper: ClassVar[str] = "MBPP, arXiv 2108.07732; EvalPlus, arXiv 2305.01210"
    source: ClassVar[str] = "evalplus/mbppplus_release"
    licence: ClassVar[str] = "Apache-2.0 (MBPP: CC-BY-4.0)"
    table: ClassVar[Table] = Table(files=("MbppPlus.jsonl", "MbppPlus.jsonl.gz", "mbpp_plus.jsonl"))

    type: Literal["mbpp"] = "mbpp"
    max_new_tokens: int = Field(default=384, ge=1)
    """New tokens an answer may have where nobody says otherwise"""
    memory_mb: int = Field(default=4096, ge=128)
    """Address space of the process that runs an answer, MiB; one reference needs more than 1024"""
    plus: bool = True
    """Whether to try EvalPlus's additional inputs too, and not the original ones only"""

    def item(self, row: Mapping[str, Any], index: int) -> Item:
        """Return the item of a row."""
        stub, name = row["prompt"], row["entry_point"]
        inputs = [*row["base_input"], *(row["plus_input"] if self.plus else [])]
        sentence = stub.strip().strip('"').strip()
        ask = (
            f"{sentence}\n\nReply with the Python function {name} in one Python code block. It "
            f"must pass the assertion above."
        )
        return Item(
            id=str(row["task_id"]),
            messages=(user(ask),),
            prompt=stub,
            reference={
                "entry_point": name,
                "canonical": row["canonical_solution"],
                "inputs": shaped(inputs, example_calls(row["assertion"], name)),
                "tolerance": float(row["atol"]),
            },
            about=sentence,
        )

    def judge(self, item: Item, answer: str) -> Score:
        """Return 1 where every output agrees with the reference solution's."""
        reference = item.reference
        name = reference["entry_point"]
        how = "set" if name in UNORDERED else "match" if name in MATCHING else "equal"
        inputs = _CALL_REFERENCE.format(inputs=reference["inputs"], name=name)
        compare = _COMPARE.format(
            agree=inspect.getsource(agree), name=name, tolerance=reference["tolerance"], how=how
        )
        return self.run(
            [
                Part(
                    label="reference",
                    code=reference["canonical"] + "\n" + inputs,
                    namespace="reference",
                    is_reference=True,
                ),
                Part(label="solution", code=solution(answer, entry_point=name)),
                Part(label="tests", code=compare, namespace="tests"),
            ]
        )
