"""What holds of every registered task."""

import subprocess
import sys

import pytest

from lenity.errors import ConfigError, RegistryError
from lenity.tasks import TASKS, Task, task
from tests.tasks.rows import FILES, write

NAMES = TASKS.names()


def spec_of(name, folder):
    if name != "jsonl":
        return name
    return f"jsonl:file={write(folder, 'mine.jsonl', [{'prompt': 'Hello'}, {'prompt': 'Bye'}])}"


@pytest.mark.parametrize("name", NAMES)
def test_a_task_says_what_it_is(name):
    kind = TASKS.load(name)
    assert kind.model_fields["type"].default == name
    assert all((kind.idea, kind.paper, kind.source, kind.licence))
    assert kind.version >= 1
    assert task(name).label == f"{name}@{kind.version}"


@pytest.mark.parametrize("name", NAMES)
def test_items_have_ids_of_their_own_and_load_the_same_twice(name, data):
    chosen = task(spec_of(name, data))
    items, again = chosen.load(data), chosen.open(data)
    assert items
    assert list(again.items) == items
    assert len({item.id for item in items}) == len(items)
    assert again.revision.partition(":")[0] in ("sha256", "made")
    assert len(again.revision) > 40


@pytest.mark.parametrize("name", NAMES)
def test_a_task_without_right_answers_gives_no_score(name, data):
    chosen = task(spec_of(name, data))
    if not chosen.has_scorer:
        assert chosen.score(chosen.load(data)[0], "anything") is None


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_row_of_another_set_is_refused_with_its_place(name, tmp_path):
    file = write(tmp_path, FILES[name][0], [{"colour": "red"}])
    with pytest.raises(ConfigError, match=r"row 1: .*fields colour"):
        task(name).load(file)


def test_a_spec_reads_as_it_is_written():
    chosen = task("gsm8k:few_shot=3")
    assert (chosen.few_shot, chosen.spec, str(chosen)) == (3, "gsm8k:few_shot=3", chosen.spec)
    assert task(chosen) is chosen
    assert task("gsm8k").spec == "gsm8k"
    assert task("gsm8k", few_shot=2).spec == "gsm8k:few_shot=2"


def test_unknown_names_and_knobs_are_refused():
    with pytest.raises(RegistryError, match="Did you mean 'gsm8k'"):
        task("gsm8")
    with pytest.raises(ConfigError, match="Did you mean 'few_shot'"):
        task("gsm8k:few_shots=1")


def test_scoring_records_needs_neither_torch_nor_transformers():
    probe = (
        "import sys, lenity.tasks.chat, lenity.tasks.splits\nfrom lenity.tasks import TASKS\n"
        "for name in TASKS.names(): TASKS.load(name)\n"
        "heavy = {'torch', 'transformers', 'sympy', 'datasets'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_task_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        task("mmlu").reasoning = True
    assert isinstance(task("mmlu"), Task)
