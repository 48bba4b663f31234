"""Wall time by stage. A stage entered inside another pauses it, so that stages add up."""

from __future__ import annotations

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

    def stage(self, name: Stage) -> _Stage:
        """Count the time inside as ``name``, less any stage entered within."""
        return _Stage(self, name)

    def enter(self, name: Stage) -> None:
        """Count as ``name`` from now on."""
        self._settle()
        self._stack.append(name)

    def leave(self) -> None:
        """Go back to the stage before."""
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


class _Stage:
    """A stage as a context; a class, for a generator costs several times as much."""

    __slots__ = ("_clock", "_name")

    def __init__(self, clock: Clock, name: Stage) -> None:
        self._clock, self._name = clock, name

    def __enter__(self) -> None:
        self._clock.enter(self._name)

    def __exit__(self, *raised: object) -> None:
        self._clock.leave()
