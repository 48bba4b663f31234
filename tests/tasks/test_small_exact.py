import re
from dataclasses import replace

import pytest

from lenity.errors import ConfigError
from lenity.tasks import task
from lenity.tasks.small_exact import FAMILIES

ITEMS = task("small_exact:per_family=150").load()


def items_of(family):
    return [item for item in ITEMS if item.family == family]


def test_every_family_has_so_many_different_questions():
    assert len(ITEMS) == 150 * len(FAMILIES)
    assert len({item.split_hash for item in ITEMS}) == len(ITEMS)


@pytest.mark.parametrize("item", ITEMS[::15], ids=lambda item: item.id)
def test_the_answer_by_construction_is_right_and_silence_is_not(item):
    small = task("small_exact")
    assert small.score(item, f" {item.reference}\n").value == 1.0
    assert small.score(item, "").value == 0.0
    assert small.score(item, "I do not know that.").value == 0.0


def test_sums_are_right():
    for item in items_of("sum"):
        a, b = map(int, re.findall(r"\d+", item.about))
        assert int(item.reference) == a + b


def test_word_problems_are_right():
    for item in items_of("word_problem"):
        a, b = map(int, re.findall(r"\d+", item.about))
        gains = any(word in item.about for word in (" finds ", " adds "))
        assert int(item.reference) == (a + b if gains else a - b) > 0


def test_what_is_to_be_copied_or_extracted_stands_in_the_question():
    for item in (*items_of("copy"), *items_of("email")):
        assert item.reference in item.about


@pytest.mark.parametrize(
    ("family", "reference", "text", "value"),
    [
        ("capital", "Paris", "The capital of France is Paris.", 1.0),
        ("capital", "Paris", "paris", 1.0),
        ("capital", "Paris", "Paris or Rome", 0.0),
        ("capital", "Paris", "Parisian", 0.0),
        ("capital", "Kyiv", "Kiev, also spelled Kyiv", 1.0),
        ("sum", "7", "3 + 4 = 7.", 1.0),
        ("sum", "7", "7.0", 1.0),
        ("sum", "7", "The sum of 3 and 4 is 7.\n\nQuestion 2 has 5 parts", 1.0),
        ("sum", "7", "7, or 8", 0.0),
        ("sum", "10", "10\nQuestion: What is 5 + 6?\nAnswer: 11", 1.0),
        ("sum", "0", "0", 1.0),
        ("copy", "The fox ran.", '"The fox ran."', 1.0),
        ("copy", "The fox ran.", "the fox ran.", 0.0),
        ("copy", "The fox ran.", "The fox ran. The end.", 0.0),
        ("email", "a.b@example.com", "It is A.B@example.com.", 1.0),
        ("email", "a.b@example.com", "b@example.com", 0.0),
        ("email", "a.b@example.com", "a.b@example.com or c@example.com", 0.0),
        ("word_problem", "3", "She has 5 - 2 = 3 left.", 1.0),
    ],
)
def test_how_each_family_is_read(family, reference, text, value):
    item = replace(items_of(family)[0], reference=reference)
    score = task("small_exact").score(item, text)
    assert score.value == value
    assert value or "expected" in score.detail


def test_questions_are_a_function_of_family_seed_and_index():
    few, many = task("small_exact:per_family=10"), task("small_exact:per_family=20")
    known = {item.id: item for item in many.load()}
    assert all(known[item.id] == item for item in few.load())
    assert few.open().revision == few.open().revision
    other = task("small_exact:per_family=10,seed=1")
    assert other.open().revision != few.open().revision


def test_families_are_chosen_by_name():
    chosen = task("small_exact:per_family=3,families=sum+email+sum").load()
    assert [item.family for item in chosen] == ["sum"] * 3 + ["email"] * 3
    with pytest.raises(ConfigError, match=r"Unknown family 'sums'\. Did you mean 'sum'"):
        task("small_exact:families=sums").load()
