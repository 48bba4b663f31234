"""Prompts from the command line, a file or standard input.

A text, a text file and standard input are one prompt each, whole. A ``.jsonl`` file holds one per
line: ``{"prompt": "…"}`` or ``{"messages": [{"role": "user", "content": "…"}, …]}``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lenity.errors import ConfigError
from lenity.registry import did_you_mean

Messages = list[dict[str, str]]


def read_prompts(
    prompt: str | None, file: str | None, *, chat: bool, system: str | None
) -> list[str | Messages]:
    """Return the prompts asked for; with ``chat`` or ``system``, a text becomes a user's message.

    Conversations in a file are taken as they stand. Raises ConfigError.
    """
    if prompt is not None and file is not None:
        raise ConfigError("Expected a prompt or --file, got both. Leave one out.")
    found: list[str | Messages] = [prompt] if prompt is not None else _of_file(file)
    if not (chat or system is not None):
        return found
    return [_conversation(item, system) if isinstance(item, str) else item for item in found]


def _conversation(text: str, system: str | None) -> Messages:
    opening = [] if system is None else [{"role": "system", "content": system}]
    return [*opening, {"role": "user", "content": text}]


def _of_file(file: str | None) -> list[str | Messages]:
    if file is None and (sys.stdin is None or sys.stdin.isatty()):
        raise ConfigError(
            "Expected a prompt, got none. Write it behind `lenity generate`, name a --file, or "
            "pipe it in."
        )
    if file is None or file == "-":
        text = _one_line_end_less(_read_stdin())
        if not text:
            raise ConfigError(
                "Expected a prompt on standard input, got nothing. Pipe it in, or write it behind "
                "`lenity generate`."
            )
        return [text]
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"Expected a readable UTF-8 file, got {file}: {reason}. Correct --file, or convert "
            f"the file."
        ) from None
    if Path(file).suffix != ".jsonl":
        return [_one_line_end_less(text)]
    lines = [(at, line) for at, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise ConfigError(
            f'Expected lines such as {{"prompt": "…"}} in {file}, got none. Write one a prompt.'
        )
    return [_of_line(line, f"{file}, line {at}") for at, line in lines]


def _read_stdin() -> str:
    if sys.stdin is None:
        raise ConfigError(
            "Expected a prompt on standard input, got a closed one. Pipe it in, write it behind "
            "`lenity generate`, or name a --file."
        )
    try:
        return sys.stdin.read()
    except (UnicodeDecodeError, OSError) as error:
        raise ConfigError(
            f"Expected UTF-8 on standard input, got {error}. Pipe in a text, or name a --file."
        ) from None


def _one_line_end_less(text: str) -> str:
    """Drop the line end that editors and echo add; it would be a token of the prompt."""
    return text.removesuffix("\n").removesuffix("\r")


def _of_line(line: str, where: str) -> str | Messages:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{where}: expected JSON, got {line[:40]!r} ({error}). Write one object a line, or "
            f"give the file another ending to take it as one prompt."
        ) from None
    if isinstance(item, dict) and len(item) == 1:
        if isinstance(item.get("prompt"), str):
            return item["prompt"]
        if _is_conversation(item.get("messages")):
            return item["messages"]
    known = ("prompt", "messages")
    stranger = next((key for key in item if key not in known), "") if isinstance(item, dict) else ""
    hint = (did_you_mean(stranger, known) if stranger else "") or " Correct the line."
    raise ConfigError(
        f'{where}: expected {{"prompt": "…"}} or {{"messages": [{{"role": "user", "content": '
        f'"…"}}]}}, got {line[:60]!r}.{hint}'
    )


def _is_conversation(messages: Any) -> bool:
    return (
        isinstance(messages, list)
        and bool(messages)
        and all(
            isinstance(message, dict)
            and isinstance(message.get("role"), str)
            and isinstance(message.get("content"), str)
            for message in messages
        )
    )
