"""Tasks: prompts, and scorers where there is a right answer; and their registry."""

from __future__ import annotations

from typing import Any

from lenity.registry import Registry
from lenity.tasks.base import Item, Score, Task

TASKS = Registry(
    "task",
    {
        "alpaca": "lenity.tasks.alpaca:Alpaca",
        "gsm8k": "lenity.tasks.gsm8k:Gsm8k",
        "humaneval": "lenity.tasks.humaneval:HumanEval",
        "jsonl": "lenity.tasks.jsonl:Jsonl",
        "math500": "lenity.tasks.math500:Math500",
        "mbpp": "lenity.tasks.mbpp:Mbpp",
        "mmlu": "lenity.tasks.mmlu:Mmlu",
        "mt_bench": "lenity.tasks.mt_bench:MtBench",
        "own_prompts": "lenity.tasks.own_prompts:OwnPrompts",
        "small_exact": "lenity.tasks.small_exact:SmallExact",
        "spec_bench": "lenity.tasks.spec_bench:SpecBench",
    },
)


def task(spec: str | Task, **knobs: Any) -> Task:
    """Return the task a spec names, e.g. ``task("gsm8k:few_shot=0")``.

    Knobs may also be given by keyword. Raises RegistryError for an unknown name and ConfigError
    for an unknown or unusable knob.
    """
    return TASKS.build(Task, spec, knobs)


__all__ = ["TASKS", "Item", "Score", "Task", "task"]
