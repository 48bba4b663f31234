"""Opinions at rest, and what they add up to."""

import json

import pytest
from pydantic import ValidationError

from lenity.errors import RunDirError
from lenity.workbench.intervals import paired_difference_interval
from lenity.workbench.judgements import (
    JUDGEMENTS,
    Judgement,
    answer_of,
    hash_answer,
    judge_table,
    read_judgements,
    summarise_judgements,
)
from lenity.workbench.pairing import Pairs
from lenity.workbench.rundir import RunDir
from tests.workbench.handmade import text
from tests.workbench.made import manifest


def said(record, grade, **changes):
    return Judgement(
        task=record.task,
        item_id=record.item_id,
        answers=(hash_answer(record),),
        **{"grade": grade, **changes},
    )


def compared(first, second, better):
    answers = (hash_answer(first), hash_answer(second))
    return Judgement(task=first.task, item_id=first.item_id, answers=answers, better=better)


def arms(count, task="toy@1"):
    """Two arms that say different things, but for the last prompt."""
    strict = [text(1, arm="s", item_id=str(i), text=f"s{i}", task=task) for i in range(count)]
    relaxed = [text(1, arm="r", item_id=str(i), text=f"r{i}", task=task) for i in range(count)]
    relaxed[-1] = relaxed[-1].model_copy(update={"text": strict[-1].text})
    return strict, relaxed


def test_thinking_is_no_answer():
    record = text(1, text="<think>4?</think> 5\n")
    assert answer_of(record) == "5"
    assert hash_answer(record) == hash_answer(text(1, text="5"))
    assert answer_of(text(1, text=None)) == ""


def test_grades_are_paired_by_prompt():
    strict, relaxed = arms(4)
    lines = [said(record, 8) for record in strict]
    lines += [said(record, grade) for record, grade in zip(relaxed, (8, 5, 2), strict=False)]
    (found,) = summarise_judgements(Pairs.of(strict, relaxed), lines)
    assert (found.task, found.num_graded) == ("toy@1", 4)
    assert found.strict_grade == 8
    assert found.relaxed_grade == pytest.approx((8 + 5 + 2 + 8) / 4)
    assert found.difference.estimate == pytest.approx(-9 / 4)
    unit = paired_difference_interval([0, -1 / 3, -2 / 3, 0])
    assert found.difference.low == pytest.approx(9 * unit.low)
    assert found.difference.high == pytest.approx(9 * unit.high)
    assert "-2.25" in found.words


def test_a_failed_opinion_is_in_no_mean():
    strict, relaxed = arms(4)
    lines = [said(r, 8) for r in strict] + [said(relaxed[0], 6)]
    lines.append(said(relaxed[1], None, status="failed", error="HTTP 400"))
    (found,) = summarise_judgements(Pairs.of(strict, relaxed), lines)
    assert found.num_graded == 2  # the first, and the one both said alike
    assert found.relaxed_grade == 7


def test_a_judge_that_only_failed_has_no_opinion_of_equal_answers_either():
    strict, _ = arms(3)
    lines = [said(r, None, status="failed", error="HTTP 400") for r in strict[:2]]
    (found,) = summarise_judgements(Pairs.of(strict, strict), [*lines, said(strict[2], 5)])
    assert (found.num_graded, found.num_compared, found.tied) == (1, 1, 1)
    (silent,) = summarise_judgements(Pairs.of(strict, strict), lines)
    assert silent.words == "too few prompts judged to say anything"


def test_a_preference_counts_only_in_both_orders():
    strict, relaxed = arms(8)
    verdicts = [
        ("second", "first"),  # won
        ("first", "second"),  # lost
        ("first", "first"),  # by place
        ("neither", "first"),  # not in both orders
        ("neither", "neither"),
        ("second", "second"),  # by place
        ("second", "neither"),
    ]
    lines = [said(strict[-1], 5)]
    for s, r, (one, other) in zip(strict, relaxed, verdicts, strict=False):
        lines += [compared(s, r, one), compared(r, s, other)]
    (found,) = summarise_judgements(Pairs.of(strict, relaxed), lines)
    assert (found.won, found.lost, found.tied, found.by_place) == (1, 1, 6, 2)
    assert found.num_compared == 8  # equal answers tie
    assert found.preference.estimate == 0
    assert "1 won, 6 tied, 1 lost" in found.words
    (alone,) = summarise_judgements(Pairs.of(strict, relaxed), lines[:2])
    assert alone.num_compared == 1  # one order is no comparison
    assert alone.preference is None
    (off,) = summarise_judgements(Pairs.of(strict, relaxed), lines, compare=False)
    assert off.num_compared == 0
    assert off.words == "too few prompts judged to say anything"


def test_several_tasks_have_a_row_each_and_one_for_all():
    one, other = arms(3), arms(3, "more@1")
    strict, relaxed = one[0] + other[0], one[1] + other[1]
    lines = [said(r, 6) for r in strict] + [said(r, 4) for r in relaxed[:2] + relaxed[3:5]]
    found = summarise_judgements(Pairs.of(strict, relaxed), lines)
    assert [s.task for s in found] == ["all", "toy@1", "more@1"]
    assert [s.num_graded for s in found] == [6, 3, 3]
    table = judge_table(found, ("Baseline", "Candidate"))
    assert [row[0] for row in table.rows] == ["all", "toy@1", "more@1"]
    assert "Baseline grade" in [column.label for column in table.columns]
    assert summarise_judgements(Pairs.of(strict, relaxed), []) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"answers": ("a",), "better": "first"},
        {"answers": ("a", "b"), "grade": 3},
        {"answers": ("a",)},
        {"answers": ("a",), "status": "failed"},
        {"answers": ("a",), "status": "failed", "error": "x", "grade": 3},
        {"answers": ("a",), "grade": 11},
        {"answers": ()},
    ],
)
def test_a_line_says_one_thing(wrong):
    with pytest.raises(ValidationError):
        Judgement(task="t", item_id="1", **wrong)


def test_a_damaged_line_is_named(tmp_path):
    with RunDir.create(tmp_path / "run", manifest()) as run:
        assert read_judgements(run) == []
        line = Judgement(task="t", item_id="1", answers=("a",), grade=3).model_dump_json()
        with run.log_artefact(JUDGEMENTS) as log:
            log.append([line, json.dumps({"task": "t"})])
        with pytest.raises(RunDirError, match=r"judgements\.jsonl, line 2"):
            read_judgements(run)
