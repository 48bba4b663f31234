"""The published sets themselves, where LENITY_DATA names a folder that has them.

Every file loads, and every reference solution scores 1. The running of code is marked slow.
"""

import json
import os
from pathlib import Path

import pytest

from lenity.tasks import task
from lenity.tasks.sources import ENVIRONMENT
from lenity.tasks.splits import split

RIGHT = {
    "gsm8k": lambda row: row["answer"],
    "math500": lambda row: row["solution"],
    "mmlu": lambda row: f"The answer is ({'ABCD'[row['answer']]}).",
    "humaneval": lambda row: row["canonical_solution"],
    "mbpp": lambda row: row["canonical_solution"],
}
RUN = ("humaneval", "mbpp")
SHOWN = ("alpaca", "mt_bench", "spec_bench")


@pytest.fixture
def real_data():
    folder = os.environ.get(ENVIRONMENT)
    if folder is None:
        pytest.skip(f"{ENVIRONMENT} names no folder of data")
    return Path(folder)


def file_of(name, folder):
    for file in task(name).table.files:
        if (folder / file).is_file():
            return folder / file
    pytest.skip(f"none of {task(name).table.files} is there")


@pytest.mark.parametrize("name", [*RIGHT, *SHOWN])
def test_a_file_loads_and_splits(name, real_data):
    file = file_of(name, real_data)
    items = task(name).load(file)
    assert len(items) == len([line for line in file.read_text().split("\n") if line.strip()])
    parts = split(items)
    assert len(parts.discovery) + len(parts.audit) + len(parts.duplicates) == len(items)
    assert min(len(parts.discovery), len(parts.audit)) > len(items) / 4


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in RUN else ()) for n in RIGHT]
)
def test_reference_solutions_are_right(name, real_data):
    file = file_of(name, real_data)
    chosen = task(name, **({"allow_code_execution": True} if name in RUN else {}))
    rows = [json.loads(line) for line in file.read_text().split("\n") if line.strip()]
    wrong = {
        item.id: score.detail
        for item, row in zip(chosen.load(file), rows, strict=True)
        if (score := chosen.score(item, RIGHT[name](row))).value != 1.0
    }
    assert not wrong
