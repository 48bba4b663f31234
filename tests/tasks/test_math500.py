import pytest

from lenity.tasks import task
from lenity.tasks.math500 import judge_answer
from tests.tasks.rows import MATH


def test_items(data):
    (item,) = task("math500").load(data)
    assert item.id == "math500/test/algebra/1.json"
    assert (item.reference, item.family) == (r"\frac{1}{2}", "Algebra")
    assert r"\boxed{}" in item.messages[0]["content"]


def test_the_gold_solution_is_right(data):
    math500 = task("math500")
    score = math500.score(math500.load(data)[0], MATH[0]["solution"])
    assert (score.value, score.answer) == (1.0, r"\frac{1}{2}")


@pytest.mark.parametrize(
    ("answer", "gold", "value"),
    [
        (r"\boxed{\dfrac12}", r"\frac{1}{2}", 1.0),
        (r"\boxed{0.5}", r"\frac{1}{2}", 1.0),
        (r"\boxed{ \left( 3,\frac{\pi}{2} \right) }", r"\left(3, \frac{\pi}{2}\right)", 1.0),
        (r"\boxed{2\sqrt{3}}", r"\sqrt{12}", 1.0),
        (r"\boxed{1} no, \boxed{2}", "1", 0.0),
        (r"\boxed{\frac{1}{3}}", r"\frac{1}{2}", 0.0),
        ("so the answer is $x=5$.", "5", 1.0),
        ("I give up", "5", 0.0),
        ("", "5", 0.0),
    ],
)
def test_answers_are_compared_as_mathematics(answer, gold, value):
    score = judge_answer(answer, gold)
    assert score.value == value
    assert (f"expected {gold}" in score.detail) == (value == 0.0)


def test_equal_text_needs_no_comparison():
    score = judge_answer(r"\boxed{\text{(B)}}", r"\text{(B)}")
    assert "same text" in score.detail
