import pytest

from lenity.errors import ConfigError
from lenity.tasks import task
from tests.tasks.rows import write


def load(tmp_path, rows, spec="jsonl"):
    chosen = task(spec)
    return chosen, chosen.load(write(tmp_path, "mine.jsonl", rows))


def test_prompts_and_conversations(tmp_path):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    chosen, (text, chat) = load(
        tmp_path, [{"prompt": "Once upon"}, {"messages": messages, "id": "c", "family": "chats"}]
    )
    assert (text.id, text.prompt, text.messages) == ("jsonl/0", "Once upon", ())
    assert (chat.id, chat.prompt, list(chat.messages)) == ("c", None, messages)
    assert chat.family == "chats"
    assert not chosen.has_scorer
    assert chosen.score(text, "a time") is None


def test_a_prompt_becomes_a_message_where_asked(tmp_path):
    _, (item,) = load(tmp_path, [{"prompt": "Hi"}], "jsonl:chat=true")
    assert (item.prompt, item.messages) == (None, ({"role": "user", "content": "Hi"},))


def test_the_file_may_stand_in_the_spec(tmp_path):
    file = write(tmp_path, "mine.jsonl", [{"prompt": "Hi"}])
    assert task(f"jsonl:file={file}").load()[0].prompt == "Hi"
    with pytest.raises(ConfigError, match="got none"):
        task("jsonl").load()
    with pytest.raises(ConfigError, match="which is no file"):
        task("jsonl").load(tmp_path)


@pytest.mark.parametrize(
    ("scorer", "reference", "text", "value"),
    [
        ("exact", "New York", " new  york\n", 1.0),
        ("exact", "New York", "New York!", 0.0),
        ("exact", ["a", "b"], "B", 1.0),
        ("contains", "New York", "It is new york.", 1.0),
        ("contains", "1", "12", 0.0),
        ("contains", "1", "1, I say", 1.0),
        ("contains", ["x", "C++"], "use C++ here", 1.0),
        ("math", "1/2", r"\boxed{0.5}", 1.0),
        ("math", ["7", "1/2"], r"so $\frac{2}{4}$", 1.0),
        ("math", "7", "8", 0.0),
    ],
)
def test_scorers(tmp_path, scorer, reference, text, value):
    chosen, (item,) = load(
        tmp_path, [{"prompt": "?", "reference": reference}], f"jsonl:scorer={scorer}"
    )
    assert chosen.has_scorer
    chosen.check_scorer()
    score = chosen.score(item, text)
    assert score.value == value
    assert value or "expected" in score.detail


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"promt": "Hi"}, "unknown field 'promt'. Did you mean 'prompt'"),
        ({"id": "x"}, "either prompt or messages"),
        ({"prompt": "Hi", "messages": [{"role": "user", "content": "x"}]}, "either prompt or"),
        ({"prompt": 3}, "prompt: a text is expected, got 3"),
        ({"messages": [{"role": "user"}]}, "role and content are expected"),
        ({"messages": [{"role": "user", "content": 3}]}, "texts are expected"),
    ],
)
def test_lines_that_do_not_fit_are_refused(tmp_path, row, said):
    with pytest.raises(ConfigError, match=f"mine.jsonl, row 1: .*{said}"):
        load(tmp_path, [row])


def test_a_scorer_needs_references(tmp_path):
    with pytest.raises(ConfigError, match="a reference is expected"):
        load(tmp_path, [{"prompt": "?"}], "jsonl:scorer=exact")
