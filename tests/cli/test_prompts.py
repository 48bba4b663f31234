import io
import sys

import pytest

from lenity.cli.prompts import read_prompts
from lenity.errors import ConfigError

USER = {"role": "user", "content": "hi"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def read(prompt=None, file=None, chat=False, system=None):
    return read_prompts(prompt, file, chat=chat, system=system)


def test_a_prompt_is_taken_as_it_stands():
    assert read(" hi\n") == [" hi\n"]


def test_chat_makes_a_conversation():
    assert read("hi", chat=True) == [[USER]]


def test_a_system_message_implies_chat():
    assert read("hi", system="Be brief.") == [[{"role": "system", "content": "Be brief."}, USER]]


@pytest.mark.parametrize("file", [None, "-"])
def test_standard_input_is_one_prompt(monkeypatch, file):
    monkeypatch.setattr(sys, "stdin", io.StringIO("two\nlines\n"))
    assert read(file=file) == ["two\nlines"]


def test_a_text_file_is_one_prompt(write):
    assert read(file=write("poem.txt", "two\n\nlines\r\n")) == ["two\n\nlines"]


def test_a_jsonl_file_is_a_prompt_a_line(write):
    lines = '{"prompt": "a"}\n\n{"messages": [{"role": "user", "content": "hi"}]}\n'
    assert read(file=write("many.jsonl", lines)) == ["a", [USER]]
    assert read(file=write("many.jsonl", lines), system="s")[1] == [USER]  # taken as it stands


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("{", "expected JSON"),
        ('{"promt": "a"}', "Did you mean 'prompt'"),
        ('{"prompt": 3}', "Correct the line"),
        ("[" * 100_000, "expected JSON"),
        ("9" * 5000, "expected JSON"),
        ('{"prompt": "a", "messages": []}', "expected"),
        ('{"messages": []}', "expected"),
        ('{"messages": [{"role": "user"}]}', "expected"),
        ("[]", "expected"),
        ("{}", "expected"),
    ],
)
def test_a_bad_line_is_refused_by_number(write, line, hint):
    file = write("bad.jsonl", '{"prompt": "a"}\n' + line)
    with pytest.raises(ConfigError, match=r"bad\.jsonl, line 2: ") as refusal:
        read(file=file)
    assert hint in str(refusal.value)


def test_an_empty_file_of_lines_is_refused(write):
    with pytest.raises(ConfigError, match="got none"):
        read(file=write("none.jsonl", "\n"))


def test_a_missing_file_is_refused():
    with pytest.raises(ConfigError, match=r"nowhere\.txt"):
        read(file="nowhere.txt")


def test_two_prompts_are_refused():
    with pytest.raises(ConfigError, match="got both"):
        read("hi", file="-")


def test_no_prompt_on_a_terminal_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "stdin", Terminal())
    with pytest.raises(ConfigError, match="got none"):
        read()


@pytest.mark.parametrize(("file", "said"), [(None, "got none"), ("-", "got a closed one")])
def test_a_closed_standard_input_is_refused(monkeypatch, file, said):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ConfigError, match=f"Expected a prompt.*{said}"):
        read(file=file)


def test_a_standard_input_that_cannot_be_read_is_refused(monkeypatch, tmp_path):
    with open(tmp_path / "written", "w") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        with pytest.raises(ConfigError, match="not readable"):
            read(file="-")


def test_what_is_no_file_says_why(tmp_path):
    with pytest.raises(ConfigError, match=r"got .*: Is a directory\. Correct --file"):
        read(file=str(tmp_path))
