"""One OpenAI-compatible endpoint: a prompt there, its answer or the reason for none back.

Only the standard library is used. A key stands in no record: it is read from an environment
variable, and a URL that carries one is refused.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, field_validator

from lenity.errors import ConfigError, LenityError
from lenity.workbench.records import Frozen

Api = Literal["chat", "completions"]
PATHS: dict[Api, str] = {"chat": "chat/completions", "completions": "completions"}
UNUSABLE = (401, 403, 404, 405)
"""Statuses of an endpoint that will answer nothing, whatever it is asked."""
WORTH_ANOTHER_TRY = (408, 425, 429, 500, 502, 503, 504)
LONGEST_WAIT = 60.0
"""Seconds between two tries at most."""
MAX_TOLD = 300
"""Characters of an engine's own words that an error keeps."""
MAX_REPLY_BYTES = 16 << 20
"""Of one reply: far more than the longest answer, far less than what would fill the memory."""


class Endpoint(Frozen):
    """Where an engine answers, and under which name; stored with the run, without a key."""

    url: str
    """Base, such as http://localhost:8000/v1"""
    model: str = Field(min_length=1)
    """As the engine calls it"""
    api: Api = "chat"
    """chat: messages, which the engine renders; completions: the plain text of the prompt"""

    @field_validator("url")
    @classmethod
    def _is_a_base(cls, value: str) -> str:
        parts = _split(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"expected http://… or https://…, got {value!r}; say which host")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError(
                "expected a URL without user, password, query and fragment, for it is stored with "
                "the run, got one with; name the variable that holds the key instead"
            )
        base = value.rstrip("/")
        for path in PATHS.values():
            base = base.removesuffix(f"/{path}")
        return base if urlsplit(base).path else f"{base}/v1"

    @property
    def address(self) -> str:
        """Return the URL that prompts are sent to."""
        return f"{self.url}/{PATHS[self.api]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an engine said. ``finish_reason`` is its own word: stop, length or another one."""

    text: str
    finish_reason: str | None


def _split(url: str) -> SplitResult:
    """Return the parts of a URL that a request can be sent to. Raises ValueError."""
    is_plain = url.isascii() and url.isprintable() and " " not in url
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        is_plain = is_plain and parts.port != 0  # a port that is no number, or too large, raises
    except ValueError:
        is_plain = False
    if not is_plain:
        raise ValueError(
            "expected a URL of plain characters without spaces, with a port up to 65535 if it has "
            "one, got another; correct it, and write other characters of a path as %20"
        )
    return parts


class RequestFailedError(LenityError):
    """One request that got no answer; the next one may."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST loses its body, and takes its key to another host."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none: the status then counts as an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Asks an endpoint. ``wait`` is given the seconds between two tries."""

    endpoint: Endpoint
    timeout_seconds: float = 120.0
    retries: int = 3
    key_variable: str | None = None
    wait: Callable[[float], None] = time.sleep

    def ask(
        self, messages: Sequence[Mapping[str, str]], prompt: str, max_new_tokens: int
    ) -> Answer:
        """Return the greedy answer to a prompt, in the form the endpoint takes.

        Raises RequestFailedError where this request got none, ConfigError where none will.
        """
        asked: dict[str, Any] = {
            "model": self.endpoint.model,
            "temperature": 0,
            "max_tokens": max_new_tokens,
            "stream": False,
        }
        if self.endpoint.api == "chat":
            asked["messages"] = [dict(message) for message in messages]
        else:
            asked["prompt"] = prompt
        return self._read(self._send(json.dumps(asked).encode()))

    def check_key(self) -> None:
        """Raise ConfigError where a key is to be sent and its variable holds none."""
        self._headers()

    def _send(self, body: bytes) -> bytes:
        """Return the engine's reply, after as many tries as it may take."""
        request = urllib.request.Request(self.endpoint.address, data=body, headers=self._headers())
        opener = urllib.request.build_opener(_NoRedirects())
        for attempt in range(self.retries + 1):
            is_last = attempt == self.retries
            try:
                with opener.open(request, timeout=self.timeout_seconds) as reply:
                    return _body(reply)
            except urllib.error.HTTPError as error:
                self._refused(error, is_last)
                pause = _asked_pause(error)
            except (OSError, HTTPException) as error:  # URLError and timeouts are OSErrors
                self._unreached(error, is_last)
                pause = None
            self.wait(min(LONGEST_WAIT, 2.0**attempt if pause is None else pause))
        raise AssertionError("the last try returns or raises")

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self.key_variable is not None:
            key = os.environ.get(self.key_variable, "").strip()
            if not key or not (key.isascii() and key.isprintable()):
                got = "one with characters that no key has" if key else "none"
                raise ConfigError(
                    f"Expected a key in the environment variable {self.key_variable}, got {got}. "
                    f"Set it, or leave the option out for an engine that takes no key."
                )
            headers["Authorization"] = f"Bearer {key}"
        return headers

    def _refused(self, error: urllib.error.HTTPError, is_last: bool) -> None:
        """Raise what an HTTP status means, unless another try is worth it."""
        told = _shortened(_told(error).decode(errors="replace"))
        if error.code in UNUSABLE:
            raise ConfigError(
                f"Expected answers from {self.endpoint.address}, got HTTP {error.code}: {told}. "
                f"Look at the URL, the model's name ({self.endpoint.model}) and the key."
            ) from None
        if is_last or error.code not in WORTH_ANOTHER_TRY:
            raise RequestFailedError(f"HTTP {error.code}: {told}") from None

    def _unreached(self, error: Exception, is_last: bool) -> None:
        """Raise what no reply means, unless another try is worth it."""
        if not is_last:
            return
        reason = getattr(error, "reason", error)
        if isinstance(reason, ConnectionRefusedError) or _is_unknown_host(reason):
            raise ConfigError(
                f"Expected an engine at {self.endpoint.address}, got: {reason}. Start it, and the "
                f"same command goes on; with another URL, choose another directory."
            ) from None
        raise RequestFailedError(f"{type(reason).__name__}: {reason}") from None

    def _read(self, body: bytes) -> Answer:
        """Return the answer in a reply. Raises RequestFailedError for a reply of another form."""
        try:
            choice = json.loads(body)["choices"][0]
            text = choice["message"]["content"] if self.endpoint.api == "chat" else choice["text"]
            reason = choice.get("finish_reason")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            told = _shortened(body.decode(errors="replace"))
            raise RequestFailedError(f"no answer in the reply: {told}") from None
        if not isinstance(text, str | None) or not isinstance(reason, str | None):
            raise RequestFailedError(f"expected text in the reply, got {type(text).__name__}")
        # null: all was spent on thinking
        return Answer(
            text=_whole(text or ""), finish_reason=None if reason is None else _whole(reason)
        )


def _body(reply: HTTPResponse) -> bytes:
    """Return a reply's body. Raises RequestFailedError for one of no end, IncompleteRead."""
    found = reply.read(MAX_REPLY_BYTES + 1)
    if len(found) > MAX_REPLY_BYTES:
        raise RequestFailedError(f"expected a reply of at most {MAX_REPLY_BYTES} bytes, got more")
    if reply.length:  # read does not mind a body shorter than was announced
        raise IncompleteRead(found, reply.length)
    return found


def _told(error: urllib.error.HTTPError) -> bytes:
    """Return what an engine said beside an HTTP status, or nothing where it did not come."""
    try:
        return error.read(MAX_REPLY_BYTES)
    except (OSError, HTTPException):
        return b""


def _whole(text: str) -> str:
    """Return a text that can be written: half a surrogate pair, which JSON may hold, is none."""
    return text.encode(errors="replace").decode()


def _is_unknown_host(reason: object) -> bool:
    return type(reason).__name__ == "gaierror"


def _asked_pause(error: urllib.error.HTTPError) -> float | None:
    """Return the seconds an engine asks to wait; none where it does not, or names a date."""
    value = error.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else None


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_TOLD else line[: MAX_TOLD - 1] + "…"
