"""Wall time by stage. A stage entered inside another pauses it, so that stages add up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Literal

from lenity.types import StageSeconds

Stage = Literal["draft", "target", "verify", "commit"]


class Clock:
    """Seconds spent in each stage of one round."""

    def __init__(self) -> None:
        """Start with nothing spent."""
        self._spent: dict[Stage, float] = {}
        self._stack: list[Stage] = []
        self._since = perf_counter()

    @contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        """Count the time inside as ``name``, less any stage entered within."""
        self._settle()
        self._stack.append(name)
        try:
            yield
        finally:
            self._settle()
            self._stack.pop()

    def _settle(self) -> None:
        now = perf_counter()
        if self._stack:
            name = self._stack[-1]
            self._spent[name] = self._spent.get(name, 0.0) + now - self._since
        self._since = now

    def seconds(self) -> StageSeconds:
        """Return what was spent so far, the stages still open included."""
        self._settle()
        return StageSeconds(**self._spent)
