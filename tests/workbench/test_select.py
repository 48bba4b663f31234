"""Which prompts are asked: sides that never meet, tasks and families taking turns."""

import pytest

from lenity.errors import ConfigError
from lenity.tasks import Item, task
from lenity.tasks.splits import split
from lenity.workbench.select import Questions, families_in_turn, select
from tests.cases.rig import CharTokenizer
from tests.workbench.studies import questions_file


@pytest.fixture
def data(tmp_path):
    return questions_file(tmp_path)


def ids(selection):
    return [job.item_id for job in selection.jobs]


def test_sides_never_meet_and_together_are_all(data):
    asked = Questions(tasks=("jsonl",), num_prompts=40)
    sides = [select(asked, CharTokenizer(), side, data=data) for side in ("discovery", "audit")]
    assert not set(ids(sides[0])) & set(ids(sides[1]))
    assert len(ids(sides[0])) + len(ids(sides[1])) == 40
    assert not set(sides[0].hashes) & set(sides[1].hashes)
    assert sides[0].digest != sides[1].digest
    assert sides[0].template_hash == sides[1].template_hash


def test_another_seed_is_another_split(data):
    first, second = (
        select(
            Questions(tasks=("jsonl",), num_prompts=40, seed=seed),
            CharTokenizer(),
            "audit",
            data=data,
        )
        for seed in (0, 1)
    )
    assert ids(first) != ids(second)
    assert first.data_split.digest != second.data_split.digest


def test_families_take_turns():
    items = [Item(id=f"{f}{i}", prompt=f"{f}{i}", family=f) for f in "abc" for i in range(3)]
    assert [item.id for item in families_in_turn(items)][:4] == ["a0", "b0", "c0", "a1"]
    assert len(families_in_turn(items)) == 9


def test_tasks_take_turns_and_a_short_one_leaves_its_turn(data):
    asked = Questions(tasks=("jsonl", "small_exact:families=sum,per_family=8"), num_prompts=12)
    found = select(asked, CharTokenizerForText(), "audit", data=data)
    assert len(found.jobs) == 12
    assert found.jobs[0].task != found.jobs[1].task
    assert found.scorer is not None


class CharTokenizerForText(CharTokenizer):
    def encode(self, text):
        return [ord(character) % 64 for character in text]


def test_no_items_on_a_side_is_said(tmp_path):
    data = questions_file(tmp_path, count=1)
    asked = Questions(tasks=("jsonl",), num_prompts=4)
    (item,) = task("jsonl").load(data)
    is_discovery = bool(split([item]).discovery)
    with pytest.raises(ConfigError, match="got none of its 1"):
        select(asked, CharTokenizer(), "audit" if is_discovery else "discovery", data=data)


def test_a_task_without_answers_has_no_scorer(data):
    asked = Questions(tasks=("jsonl",))
    assert select(asked, CharTokenizer(), "audit", data=data).scorer is None
