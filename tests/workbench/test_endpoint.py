import socket

import pytest
from pydantic import ValidationError

from lenity.errors import ConfigError
from lenity.workbench.endpoint import Answer, Client, Endpoint, RequestFailedError
from tests.workbench.engine import serving

ASKED = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    """Reach this machine without a proxy."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def client(url, waits=None, **changes):
    api = changes.pop("api", "chat")
    wait = [].append if waits is None else waits.append
    return Client(endpoint=Endpoint(url=url, model="m", api=api), wait=wait, **changes)


def test_a_chat_is_asked_greedily_and_answered():
    with serving(lambda model, prompt: f"{model} says {prompt}") as engine:
        answer = client(engine.url).ask(ASKED, "unused", 12)
    assert answer == Answer(text="m says hello", finish_reason="stop")
    assert engine.paths == ["/v1/chat/completions"]
    assert engine.requests == [
        {"model": "m", "temperature": 0, "max_tokens": 12, "stream": False, "messages": ASKED}
    ]
    assert "Authorization" not in engine.headers[0]


def test_a_completion_is_asked_with_the_plain_prompt():
    with serving(lambda model, prompt: {"text": prompt[:2], "finish_reason": "length"}) as engine:
        answer = client(engine.url, api="completions").ask((), "héllo", 3)
    assert answer == Answer(text="hé", finish_reason="length")
    assert engine.paths == ["/v1/completions"]


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://h:8000", "http://h:8000/v1"),
        ("http://h:8000/v1/", "http://h:8000/v1"),
        ("https://h/api/v2/chat/completions", "https://h/api/v2"),
        ("https://h/v1/completions", "https://h/v1"),
    ],
)
def test_a_base_is_read_from_what_people_paste(given, base):
    assert Endpoint(url=given, model="m").url == base


@pytest.mark.parametrize(
    "url",
    [
        "h:8000",
        "ftp://h/v1",
        "http://me:pw@h/v1",
        "http://h/v1?key=x",
        "http://h:99999/v1",
        "http://h:port/v1",
        "http://h:0/v1",
        "http://a..b/v1",
        "http://[::1/v1",
        "http://h h/v1",
        "http://h/é",
        "http://h/\nv1",
    ],
)
def test_a_url_that_is_none_or_carries_a_secret_is_refused(url):
    with pytest.raises(ValidationError, match="expected"):
        Endpoint(url=url, model="m")


def test_a_key_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "s3cret")
    with serving(lambda *_: "yes") as engine:
        asking = client(engine.url, key_variable="SOME_KEY")
        asking.ask(ASKED, "", 1)
    assert engine.headers[0]["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in repr(asking)
    monkeypatch.delenv("SOME_KEY")
    with pytest.raises(ConfigError, match="SOME_KEY"):
        asking.ask(ASKED, "", 1)


def test_white_space_around_a_key_is_none_of_it(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "s3cret\r\n")
    with serving(lambda *_: "yes") as engine:
        client(engine.url, key_variable="SOME_KEY").ask(ASKED, "", 1)
    assert engine.headers[0]["Authorization"] == "Bearer s3cret"


@pytest.mark.parametrize("key", ["s3\ncret", "s3crét", "ключ", " \n"])
def test_a_key_that_no_header_can_hold_is_refused_unseen(key, monkeypatch):
    monkeypatch.setenv("SOME_KEY", key)
    with pytest.raises(ConfigError, match="SOME_KEY") as refused:
        client("http://h", key_variable="SOME_KEY").check_key()
    assert "s3" not in str(refused.value)


def test_a_busy_engine_is_asked_again():
    replies = iter([503, 429, "at last"])
    waits: list[float] = []
    with serving(lambda *_: next(replies)) as engine:
        assert client(engine.url, waits).ask(ASKED, "", 1).text == "at last"
    assert waits == [1.0, 7.0]  # doubling, but what the engine asks for goes first


def test_patience_ends():
    waits: list[float] = []
    with serving(lambda *_: 503) as engine, pytest.raises(RequestFailedError, match="HTTP 503"):
        client(engine.url, waits, retries=2).ask(ASKED, "", 1)
    assert waits == [1.0, 2.0]
    assert len(engine.requests) == 3


def test_a_request_the_engine_refuses_is_not_repeated():
    with serving(lambda *_: 400) as engine, pytest.raises(RequestFailedError, match="as told"):
        client(engine.url).ask(ASKED, "", 1)
    assert len(engine.requests) == 1


@pytest.mark.parametrize("status", [401, 404])
def test_an_engine_that_answers_nothing_ends_everything(status):
    with serving(lambda *_: status) as engine, pytest.raises(ConfigError, match=f"HTTP {status}"):
        client(engine.url).ask(ASKED, "", 1)
    assert len(engine.requests) == 1


def test_a_redirect_is_not_followed():
    with serving(lambda *_: 302) as engine, pytest.raises(RequestFailedError, match="HTTP 302"):
        client(engine.url).ask(ASKED, "", 1)
    assert len(engine.requests) == 1


def test_nobody_there_ends_everything():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"  # bound, and nobody listens
        waits: list[float] = []
        with pytest.raises(ConfigError, match="Expected an engine at"):
            client(url, waits, retries=1).ask(ASKED, "", 1)
    assert waits == [1.0]


def test_a_reply_that_takes_too_long_fails():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with pytest.raises(RequestFailedError, match="timed out"):
            client(url, retries=0, timeout_seconds=0.05).ask(ASKED, "", 1)


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (404, ConfigError, "HTTP 404"),
        (400, RequestFailedError, "HTTP 400"),
        (500, RequestFailedError, "HTTP 500"),
    ],
)
def test_a_refusal_that_breaks_off_is_one_all_the_same(status, error, said):
    with serving(lambda *_: status, withheld=100) as engine, pytest.raises(error, match=said):
        client(engine.url, retries=0).ask(ASKED, "", 1)


def test_a_reply_that_breaks_off_is_asked_for_again():
    waits: list[float] = []
    with serving(lambda *_: "yes", withheld=100) as engine:
        asking = client(engine.url, waits, retries=1)
        with pytest.raises(RequestFailedError, match="IncompleteRead"):
            asking.ask(ASKED, "", 1)
    assert waits == [1.0]


def test_a_reply_without_end_fails(monkeypatch):
    monkeypatch.setattr("lenity.workbench.endpoint.MAX_REPLY_BYTES", 100)
    with serving(lambda *_: "yes" * 40) as engine, pytest.raises(RequestFailedError, match="most"):
        client(engine.url).ask(ASKED, "", 1)
    with serving(lambda *_: "yes") as engine:
        assert client(engine.url).ask(ASKED, "", 1).text == "yes"


def test_half_a_character_is_written_as_none():
    """JSON may hold a lone surrogate, and no file may."""
    reply = rb'{"choices": [{"message": {"content": "a\ud800b"}, "finish_reason": "st\udfffop"}]}'
    with serving(lambda *_: reply) as engine:
        answer = client(engine.url).ask(ASKED, "", 1)
    assert answer == Answer(text="a?b", finish_reason="st?op")


@pytest.mark.parametrize(
    "reply",
    [b"<html>", b"[]", b"[" * 200_000, {"finish_reason": "stop"}, {"message": {"content": 3}}],
)
def test_a_reply_of_another_form_fails(reply):
    with serving(lambda *_: reply) as engine, pytest.raises(RequestFailedError, match="repl"):
        client(engine.url).ask(ASKED, "", 1)


def test_no_text_is_an_empty_answer():
    with serving(lambda *_: {"message": {"content": None}, "finish_reason": "length"}) as engine:
        answer = client(engine.url).ask(ASKED, "", 1)
    assert answer == Answer(text="", finish_reason="length")
