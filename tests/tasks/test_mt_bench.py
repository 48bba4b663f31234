import pytest

from lenity.errors import ConfigError
from lenity.tasks import task
from tests.tasks.rows import TURNS, write


def test_the_first_turn(data):
    items = task("mt_bench").load(data)
    assert [item.id for item in items] == ["mt_bench/81", "mt_bench/82"]
    assert items[0].messages == ({"role": "user", "content": "Write a poem."},)
    assert items[1].family == "maths"
    assert not task("mt_bench").has_scorer


def test_the_second_turn_follows_an_answer_that_is_the_same_for_every_arm(data):
    answers = write(
        data,
        "answers.jsonl",
        [{"question_id": 81, "text": "Roses."}, {"question_id": "82", "text": "3"}],
    )
    first, second = task(f"mt_bench:turn=2,answers={answers}").load(data)
    assert [m["role"] for m in first.messages] == ["user", "assistant", "user"]
    assert [m["content"] for m in second.messages] == ["Add 1 and 2.", "3", "Double it."]
    assert first.id == "mt_bench/81/2"


def test_without_first_answers_there_is_no_second_turn(data):
    with pytest.raises(ConfigError, match="answers=FILE for turn=2, got none"):
        task("mt_bench:turn=2").load(data)
    answers = write(data, "answers.jsonl", [{"question_id": 81, "text": "Roses."}])
    with pytest.raises(ConfigError, match="first answer to question 82"):
        task("mt_bench", turn=2, answers=str(answers)).load(data)
    with pytest.raises(ConfigError, match="turn"):
        task("mt_bench:turn=3")


def test_the_hubs_names_are_read(tmp_path):
    rows = [{"prompt_id": 7, "category": "stem", "prompt": TURNS[0]["turns"]}]
    (item,) = task("mt_bench").load(write(tmp_path, "x.jsonl", rows))
    assert (item.id, item.prompt) == ("mt_bench/7", "Write a poem.")


def test_turns_must_be_a_list(tmp_path):
    file = write(tmp_path, "x.jsonl", [{"question_id": 1, "turns": "Write."}])
    with pytest.raises(ConfigError, match=r"a list of turns was expected, got 'Write\.'"):
        task("mt_bench").load(file)


def test_spec_bench_has_ids_of_its_own(data):
    assert [item.id for item in task("spec_bench").load(data)] == ["spec_bench/81", "spec_bench/82"]


def test_a_turn_has_its_own_reference(tmp_path):
    rows = [
        {"question_id": 1, "turns": ["a", "b"], "reference": ["first", ""]},
        {"question_id": 2, "turns": ["c", "d"]},
    ]
    file = write(tmp_path, "x.jsonl", rows)
    assert [item.reference for item in task("mt_bench").load(file)] == ["first", None]
    answers = write(tmp_path, "a.jsonl", [{"question_id": i, "text": "x"} for i in (1, 2)])
    second = task("mt_bench", turn=2, answers=str(answers)).load(file)
    assert [item.reference for item in second] == [None, None]
