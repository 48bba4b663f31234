import pytest

from lenity.errors import ConfigError
from lenity.tasks.base import (
    Item,
    Score,
    Task,
    assistant,
    loaded,
    made,
    user,
    without_thinking,
)
from lenity.tasks.sources import Rows


class Echo(Task):
    type: str = "echo"

    def judge(self, item, answer):
        return Score(value=float(answer == item.reference), detail=answer)


def test_the_content_hash_is_of_what_is_asked():
    item = Item(id="a", messages=(user("Hi"),), prompt="Hi:")
    assert item.content_hash == Item(id="b", messages=(user("Hi"),), prompt="Hi:").content_hash
    assert len(item.content_hash) == 16
    others = [
        Item(id="a", messages=(user("Hi "),), prompt="Hi:"),
        Item(id="a", messages=(assistant("Hi"),), prompt="Hi:"),
        Item(id="a", messages=(user("Hi"),)),
        Item(id="a", prompt="Hi:"),
    ]
    assert len({item.content_hash, *(other.content_hash for other in others)}) == 5


def test_the_split_hash_is_of_the_question_and_not_of_the_wording_around_it():
    bare = Item(id="a", prompt="Question: 2+2?", about="What is 2+2?")
    shots = Item(id="a", prompt="Question: 1+1? 2. Question: 2+2?", about="what is  2+2?\n")
    assert bare.split_hash == shots.split_hash
    assert bare.content_hash != shots.content_hash
    assert bare.split_hash != Item(id="a", prompt="x", about="What is 2+3?").split_hash
    assert (
        Item(id="a", prompt="A b").split_hash == Item(id="c", messages=(user("a  B"),)).split_hash
    )


def test_an_item_needs_something_to_ask_in_unicode():
    with pytest.raises(ConfigError, match="got neither"):
        Item(id="empty")
    with pytest.raises(ConfigError, match="item 'bad', got a lone surrogate"):
        Item(id="bad", prompt="\ud800")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("7", "7"),
        ("<think>2+2 is 5?</think>4", "4"),
        ("so it is 5?</think>4", "4"),  # the template opened the thinking
        ("<think>a</think>b</think>c", "c"),
        ("  <think>never ends 9", ""),
        ("the <think> tag", "the <think> tag"),
    ],
)
def test_what_is_thought_is_no_answer(text, answer):
    assert without_thinking(text) == answer


def test_score_reads_only_what_follows_the_thinking():
    item = Item(id="a", prompt="?", reference="4")
    assert Echo().score(item, "<think>5</think>4").value == 1.0
    assert Echo().score(item, "<think>4").value == 0.0


def test_ids_may_stand_once():
    rows = Rows(rows=[{"id": "x"}, {"id": "x"}], origin="file.jsonl", revision="r")
    with pytest.raises(ConfigError, match=r"file.jsonl, row 2: the id 'x' stands twice"):
        loaded(rows, lambda row, index: Item(id=row["id"], prompt="?"))


def test_the_revision_of_made_items_covers_questions_and_answers():
    items = [Item(id="a", prompt="1?", reference="1")]
    same = made([Item(id="a", prompt="1?", reference="1")], "here")
    assert made(items, "here").revision == same.revision
    assert made([Item(id="a", prompt="1?", reference="2")], "here").revision != same.revision
    assert made([Item(id="a", prompt="2?", reference="1")], "here").revision != same.revision


def test_bounds_of_knobs():
    with pytest.raises(ValueError, match="max_new_tokens"):
        Echo(max_new_tokens=0)
    assert Echo(max_new_tokens=3).spec == "echo:max_new_tokens=3"
