"""Whether two mathematical answers mean the same: math-verify in a process of its own.

math-verify stops long comparisons with SIGALRM, which works in the main thread only and cannot
interrupt one long C call. In its own process it has a main thread, and a comparison that outlives
even the alarm is ended by ending the process; the next one starts another.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from lenity.errors import ConfigError, MissingExtraError

_WORKER = Path(__file__).with_name("math_worker.py")
START_SECONDS = 120.0
"""For importing sympy on a busy machine, before the first answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Whether an answer equals the reference, what was read in it, and a word on it."""

    is_equal: bool
    read: str | None
    detail: str


class Comparer:
    """A process that compares; safe to share between threads, which then take turns."""

    def __init__(self, *, alarm_seconds: int = 5, kill_seconds: float = 20.0) -> None:
        """Set the limits of one step inside math-verify and of a whole comparison."""
        self.alarm_seconds, self.kill_seconds = alarm_seconds, kill_seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def compare(self, gold: str, text: str) -> Comparison:
        """Return whether ``text`` (LaTeX or prose) ends with what equals ``gold``.

        An answer that cannot be compared within the limits counts as unequal and says so. Raises
        MissingExtraError, and ConfigError for a reference that cannot be read.
        """
        check_installed()
        with self._lock:
            line = self._ask(gold, text)
        if not line:
            return Comparison(is_equal=False, read=None, detail="comparison ended: too long")
        said = json.loads(line)
        if "error" in said:
            raise ConfigError(f"Expected a reference in LaTeX: {said['error']}.")
        if "failed" in said:
            return Comparison(is_equal=False, read=None, detail=f"math-verify: {said['failed']}")
        if said["read"] is None:
            return Comparison(is_equal=False, read=None, detail="nothing to compare was found")
        detail = "equal" if said["is_equal"] else "unequal"
        return Comparison(is_equal=said["is_equal"], read=said["read"], detail=detail)

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def _ask(self, gold: str, text: str) -> str:
        """Return the answer line, or nothing when the process died or did not answer in time."""
        seconds = self.kill_seconds
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start()
            seconds += START_SECONDS
        assert self._process is not None
        assert self._process.stdin is not None
        job = {"gold": gold, "text": text, "seconds": self.alarm_seconds}
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=seconds)
        except (OSError, queue.Empty):
            line = ""
        if not line:
            self.close()
        return line

    def _start(self) -> None:
        # -P: the folder of the script is no place to import from
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._lines = queue.SimpleQueue()
        threading.Thread(
            target=_forward, args=(self._process.stdout, self._lines), daemon=True
        ).start()


def _forward(stream: Iterable[str], lines: queue.SimpleQueue) -> None:
    """Hand on every line, and an empty one at the end."""
    try:
        for line in stream:
            lines.put(line)
    except ValueError:
        pass  # closed while it was waiting
    finally:
        lines.put("")


def check_installed() -> None:
    """Raise MissingExtraError without math-verify."""
    if find_spec("math_verify") is None:
        raise MissingExtraError(
            "Comparing mathematical answers needs the package math-verify. Install it with: "
            'pip install "lenity[tasks]"'
        )


@cache
def _comparer(process_id: int) -> Comparer:
    made = Comparer()
    atexit.register(made.close)
    return made


def comparer() -> Comparer:
    """Return the comparer of this process; a forked one gets its own."""
    return _comparer(os.getpid())
