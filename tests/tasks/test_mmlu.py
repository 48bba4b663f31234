import pytest

from lenity.errors import ConfigError
from lenity.tasks import task
from lenity.tasks.mmlu import letter_of
from tests.tasks.rows import MMLU, write

CHOICES = ["Iron", "Neon", "Sulphur", "Argon"]


def test_items_keep_the_order_of_the_file(data):
    (item,) = task("mmlu").load(data)
    assert "A. Iron\nB. Neon\nC. Sulphur\nD. Argon" in item.messages[0]["content"]
    assert (
        item.prompt
        == "Question: Which is a metal?\n\nA. Iron\nB. Neon\nC. Sulphur\nD. Argon\nAnswer:"
    )
    assert (item.reference["letter"], item.family) == ("A", "chemistry")


def test_reasoning_asks_otherwise_about_the_same(data):
    short, long = task("mmlu").load(data)[0], task("mmlu:reasoning=true").load(data)[0]
    assert short.content_hash != long.content_hash
    assert short.split_hash == long.split_hash


def test_the_hubs_name_of_the_subject_is_read(tmp_path):
    row = {k: v for k, v in MMLU[0].items() if k != "type"} | {"subject": "physics"}
    (item,) = task("mmlu").load(write(tmp_path, "x.jsonl", [row]))
    assert item.family == "physics"


def test_another_number_of_choices_is_refused(tmp_path):
    file = write(tmp_path, "x.jsonl", [MMLU[0] | {"choices": ["a", "b"]}])
    with pytest.raises(ConfigError, match="2 choices, 4 are expected"):
        task("mmlu").load(file)


@pytest.mark.parametrize(
    ("text", "letter", "rule"),
    [
        ("The answer is (B).", "B", "answer is"),
        ("The correct answer is: **C**", "C", "answer is"),
        ("Answer: D", "D", "answer is"),
        ("the answer is A", "A", "answer is"),
        ("The answer is A, no, the answer is B.", "B", "answer is"),
        ("I think the right option is option C.", "C", "answer is"),
        (r"The answer is $\boxed{D}$", "D", "boxed"),
        (r"\boxed{\text{B}}", "B", "boxed"),
        (r"The answer is \text{(C)}.", "C", "answer is"),
        ("B", "B", "first"),
        ("B. Neon", "B", "first"),
        ("(C) Sulphur, because A and B are not", "C", "first"),
        ("**D**\n", "D", "first"),
        ("B\nA is wrong.", "B", "first"),
        ("Let me think.\nB is out.\n\nC", "C", "own line"),
        ("It must be (D), I am sure.", "D", "brackets"),
        ("neon.", "B", "words"),
    ],
)
def test_the_letter_is_found_wherever_it_was_put(text, letter, rule):
    assert letter_of(text, CHOICES) == (letter, rule)


@pytest.mark.parametrize(
    "text",
    [
        "A metal conducts electricity.",  # an article
        "The answer is a metal.",
        "The answer is Argon or Iron.",
        "It could be (A) or (B).",
        "A's claim holds",
        "",
        "E",
    ],
)
def test_where_no_letter_was_chosen_there_is_none(text):
    assert letter_of(text, CHOICES) is None


def test_scores(data):
    mmlu = task("mmlu")
    (item,) = mmlu.load(data)
    assert mmlu.score(item, "The answer is (A).").value == 1.0
    wrong = mmlu.score(item, "B")
    assert (wrong.value, wrong.answer) == (0.0, "B")
    assert "expected A" in wrong.detail
    assert mmlu.score(item, "no idea").detail == "no letter; expected A"
