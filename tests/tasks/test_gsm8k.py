import pytest

from lenity.errors import ConfigError
from lenity.tasks import task
from tests.tasks.rows import GSM8K, write

TRAIN = [
    {"question": "One and one?", "answer": "1+1=<<1+1=2>>2\n#### 2"},
    {"question": "Two and two?", "answer": "2+2=<<2+2=4>>4\n#### 4"},
]


def test_items(data):
    first, second = task("gsm8k").load(data)
    assert first.id == "gsm8k/0"
    assert first.reference == "7"
    assert second.reference == "2400"
    assert first.family == "1-2 steps"
    (message,) = first.messages
    assert message["role"] == "user"
    assert message["content"].startswith(GSM8K[0]["question"])
    assert "####" in message["content"]
    assert first.prompt == f"Question: {GSM8K[0]['question']}\nAnswer:"


def test_examples_come_before_the_question_without_calculator_notes(data):
    write(data, "gsm8k_train.jsonl", TRAIN)
    zero, two = task("gsm8k").load(data)[0], task("gsm8k:few_shot=2").load(data)[0]
    assert [m["role"] for m in two.messages] == ["user", "assistant"] * 2 + ["user"]
    assert two.messages[1]["content"] == "1+1=2\n#### 2"
    assert two.messages[-1] == zero.messages[-1]
    assert two.prompt.startswith("Question: One and one?\nAnswer: 1+1=2\n#### 2\n\nQuestion: Two")
    assert two.prompt.endswith(zero.prompt)
    assert two.split_hash == zero.split_hash
    assert two.content_hash != zero.content_hash


def test_a_single_file_leaves_the_examples_to_the_folder_of_the_environment(data, monkeypatch):
    write(data, "gsm8k_train.jsonl", TRAIN)
    monkeypatch.setenv("LENITY_DATA", str(data))
    assert len(task("gsm8k:few_shot=1").load(data / "gsm8k_test.jsonl")[0].messages) == 3


def test_too_few_examples_are_refused(data):
    write(data, "gsm8k_train.jsonl", TRAIN)
    with pytest.raises(ConfigError, match="Expected 3 training examples, got 2"):
        task("gsm8k:few_shot=3").load(data)


def test_a_row_without_a_gold_number_is_refused(tmp_path):
    file = write(tmp_path, "x.jsonl", [{"question": "?", "answer": "about 7"}, *GSM8K])
    assert task("gsm8k").load(file)[0].reference == "7"  # a bare answer is a number, too
    file = write(tmp_path, "x.jsonl", [{"question": "?", "answer": "seven"}])
    with pytest.raises(ConfigError, match="'#### number' at the end of the answer, got 'seven'"):
        task("gsm8k").load(file)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2*1200=2400\n#### 2,400", 1.0),
        ("That makes $2,400.00.", 1.0),
        ("#### 2400.0", 1.0),
        ("#### 240", 0.0),
        ("#### -2400", 0.0),
        ("It is 2400.\n\nQuestion: Another?\nAnswer: #### 9", 1.0),
        ("<think>9</think>#### 2400", 1.0),
        ("I do not know", 0.0),
    ],
)
def test_scores(data, text, value):
    item = task("gsm8k").load(data)[1]
    score = task("gsm8k").score(item, text)
    assert score.value == value
    assert ("expected 2400" in score.detail) == (value == 0.0)


def test_the_gold_solution_is_right(data):
    gsm8k = task("gsm8k")
    for item, row in zip(gsm8k.load(data), GSM8K, strict=True):
        score = gsm8k.score(item, row["answer"])
        assert (score.value, score.answer) == (1.0, item.reference)
