"""What a judge is told, and which replies count."""

import pytest

from lenity.tasks.base import Item, assistant, user
from lenity.workbench.endpoint import Endpoint
from lenity.workbench.judge_prompts import (
    JudgeSettings,
    compare_prompt,
    grade_prompt,
    read_better,
    read_grade,
)

ITEM = Item(id="1", messages=(user("What is {2 + 2}?"),), reference=("four", "", 4))


def test_a_judge_reads_question_reference_and_answer():
    told = grade_prompt(ITEM, "  It is {4}.\n")
    assert "<question>\nWhat is {2 + 2}?\n</question>" in told
    assert "<reference>\nfour\n</reference>" in told
    assert "<answer>\nIt is {4}.\n</answer>" in told
    assert told.endswith("GRADE: number")


def test_an_item_without_a_text_as_reference_has_none():
    bare = Item(id="1", prompt="Say hello.", reference={"tests": "x"})
    assert "reference" not in grade_prompt(bare, "hello")
    assert "<question>\nSay hello.\n</question>" in grade_prompt(bare, "hello")


def test_a_conversation_is_shown_turn_by_turn():
    turns = (user("Add 1 and 2."), assistant("3"), user("Double it."))
    told = grade_prompt(Item(id="1", messages=turns), "6")
    assert "[user]\nAdd 1 and 2.\n\n[assistant]\n3\n\n[user]\nDouble it." in told


def test_two_answers_stand_in_the_order_given():
    told = compare_prompt(ITEM, "one", "two")
    assert told.index("<answer A>\none") < told.index("<answer B>\ntwo")
    assert told.endswith("BETTER: letter")


@pytest.mark.parametrize(
    ("reply", "grade"),
    [
        ("Right.\nGRADE: 9", 9),
        ("GRADE: 3\nOn second thoughts:\n**Grade: 7.5/10**", 7.5),
        ("GRADE: 10\n", 10),
        ("I would say GRADE: 4 here", None),
        ("GRADE: 11", None),
        ("GRADE: 0", None),
        ("good", None),
        ("", None),
    ],
)
def test_a_grade_is_read_off_its_line(reply, grade):
    assert read_grade(reply) == grade


@pytest.mark.parametrize(
    ("reply", "better"),
    [
        ("BETTER: A", "first"),
        ("Both miss it.\nBetter: **B**", "second"),
        ("BETTER: A\nNo:\nBETTER: same", "neither"),
        ("better: Answer B.", "second"),
        ("A is better", None),
        ("BETTER: C", None),
    ],
)
def test_the_better_one_is_read_off_its_line(reply, better):
    assert read_better(reply) == better


@pytest.mark.parametrize(
    "piece", ["\n", " \n", ":", "grade:", "better: ", "grade: 7 ", "better:\n", "\n-", "7"]
)
@pytest.mark.parametrize("start", ["", "grade", "grade:", "better: answer ", "grade: 7"])
def test_a_reply_of_one_piece_over_and_over_is_read_in_one_go(start, piece):
    """Were a piece given back and tried again, this would take many minutes."""
    reply = start + piece * (200_000 // len(piece)) + "x"
    assert read_grade(reply) in (None, 7.0)
    assert read_better(reply) is None


def test_settings_are_what_they_were_once_stored():
    settings = JudgeSettings(endpoint=Endpoint(url="http://h", model="j"), every_task=True)
    assert JudgeSettings.model_validate_json(settings.model_dump_json()) == settings
