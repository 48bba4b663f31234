"""Tiny rows in the form of each published set, written for these tests."""

import json
from pathlib import Path

GSM8K = [
    {"question": "Mia has 3 hens and buys 4. How many?", "answer": "3+4=<<3+4=7>>7\n#### 7"},
    {
        "question": "A lot sells for 1,200 dollars. Two?",
        "answer": "2*1200=<<2400>>2400\n#### 2,400",
    },
]
MATH = [
    {
        "problem": "Halve $1$.",
        "solution": r"It is $\boxed{\frac{1}{2}}$.",
        "answer": r"\frac{1}{2}",
        "subject": "Algebra",
        "level": 1,
        "unique_id": "test/algebra/1.json",
    }
]
MMLU = [
    {
        "question": "Which is a metal?",
        "type": "chemistry",
        "choices": ["Iron", "Neon", "Sulphur", "Argon"],
        "answer": 0,
    }
]
TURNS = [
    {"question_id": 81, "category": "writing", "turns": ["Write a poem.", "Now a shorter one."]},
    {"question_id": 82, "category": "maths", "turns": ["Add 1 and 2.", "Double it."]},
]
ALPACA = [
    {
        "id": "seed_task_0",
        "instruction": "Name the mood.",
        "instances": [{"input": "What a day!", "output": "happy"}],
        "is_classification": True,
    },
    {"instruction": "Invent a word.", "input": "", "output": "blorp"},
]
HUMANEVAL = [
    {
        "task_id": "Tiny/0",
        "prompt": 'from typing import List\n\n\ndef total(xs: List[int]) -> int:\n    """Sum."""\n',
        "entry_point": "total",
        "canonical_solution": "    return sum(xs)\n",
        "test": "def check(candidate):\n    assert candidate([1, 2]) == 3\n",
    }
]
MBPP = [
    {
        "task_id": "Mbpp/0",
        "prompt": '"""\nWrite a function to swap a pair.\nassert swap((1, 2)) == (2, 1)\n"""\n',
        "entry_point": "swap",
        "canonical_solution": "\ndef swap(pair):\n    a, b = pair\n    return (b, a)\n",
        "base_input": [[[1, 2]]],
        "plus_input": [[["a", "b"]]],
        "atol": 0,
        "contract": "\n    assert isinstance(pair, tuple)\n",
        "assertion": "\nassert swap((1, 2)) == (2, 1)\n",
    }
]

FILES = {
    "gsm8k": ("gsm8k_test.jsonl", GSM8K),
    "math500": ("math500_test.jsonl", MATH),
    "mmlu": ("mmlu_test.jsonl", MMLU),
    "mt_bench": ("mt_bench_question.jsonl", TURNS),
    "spec_bench": ("spec_bench_question.jsonl", TURNS),
    "alpaca": ("alpaca_seed_tasks.jsonl", ALPACA),
    "humaneval": ("HumanEval.jsonl", HUMANEVAL),
    "mbpp": ("MbppPlus.jsonl", MBPP),
}
"""Name of the file and its rows, by task."""


def write(folder: Path, name: str, rows: list[dict]) -> Path:
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def write_all(folder: Path) -> Path:
    for name, rows in FILES.values():
        write(folder, name, rows)
    return folder
