"""Where output goes: results to standard output, everything else to standard error.

Whoever reads may go away, as head does after its lines: that ends a command quietly. A stream that
was closed before the command began is written to in vain, as Python's own print does.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

HUNG_UP = 141
"""Exit status where the reader of standard output went away: 128 + SIGPIPE, as of any filter."""


class _Console(Console):
    """Leaves a broken pipe to the command line, which has one exit status for it."""

    def on_broken_pipe(self) -> None:
        """Raise what rich is handling."""
        raise


def out() -> Console:
    """Return the console of results."""
    return _Console(highlight=False)


def err() -> Console:
    """Return the console of messages and progress."""
    return _Console(stderr=True, highlight=False)


def open_closed() -> None:
    """Put the null device where standard output or standard error was closed from the start."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (stays open)


def hang_up() -> None:
    """Let what is still buffered go nowhere, so that Python does not complain at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def complain(message: str) -> None:
    """Print an error in red on standard error."""
    err().print(Text(message, style="red"), soft_wrap=True)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner while something takes long, where somebody can see it."""
    console = err()
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


@contextmanager
def stage(what: str) -> Iterator[None]:
    """Show a spinner on a terminal and say a line elsewhere: for what takes minutes in all."""
    say(what)
    with working(what):
        yield


def say(what: str) -> None:
    """Print a line of progress on standard error where no terminal shows a moving one."""
    console = err()
    if not console.is_terminal:
        console.print(Text(what), soft_wrap=True)


def print_document(document: Mapping[str, Any]) -> None:
    """Write one JSON document; an infinite number is written as "inf", as in a spec."""
    sys.stdout.write(json.dumps(_spelled(document), ensure_ascii=False, indent=2) + "\n")


def _spelled(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _spelled(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled(item) for item in value]
    return value
