"""Where output goes: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text


def out() -> Console:
    """Return the console of results."""
    return Console(highlight=False)


def err() -> Console:
    """Return the console of messages and progress."""
    return Console(stderr=True, highlight=False)


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
