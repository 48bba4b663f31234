"""Running code that a model wrote, within limits. It is opt-in, and no security boundary.

The process has a folder of its own, a fresh environment, no standard input, limits on time, memory,
files and output, and no network; ``sandbox_child`` sets up what the system permits and says what
that was. Its whole process group is killed at the end, however it ends. A determined attacker gets
out of this; use a virtual machine against one.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from lenity.errors import ConfigError

ENVIRONMENT = "LENITY_ALLOW_CODE_EXECUTION"
"""Set to 1, it allows what the knob allow_code_execution allows."""

SLACK = 4.0
"""A part may take this many times what the reference took, if that is longer than its limit."""

_CHILD = Path(__file__).with_name("sandbox_child.py")
_START_SECONDS = 60.0
_REFERENCE_SECONDS = 120.0
_LEAVE_SECONDS = 2.0

Outcome = Literal["passed", "failed", "error", "exited", "timeout", "output", "crashed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run may take. Bytes are of the whole process, seconds of one part."""

    seconds: float = 10.0
    memory_bytes: int = 1 << 30
    file_bytes: int = 1 << 20
    output_bytes: int = 1 << 16
    processes: int = 16
    open_files: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Code to run, after the parts before it, in a namespace that parts may share.

    ``is_reference``: code of the data, not of the model; it must run through, and what it takes
    sets the pace of the others. The namespace "tests" sees all of the run as ``namespaces``.
    """

    label: str
    code: str
    namespace: str = "solution"
    is_reference: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How a run ended: ``failed`` is an assertion, ``error`` any other exception.

    ``exited``: the code left before the end. ``output``: it wrote too much. ``where`` is the part.
    """

    outcome: Outcome
    where: str = ""
    detail: str = ""
    output: str = ""
    isolation: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """Return the outcome in a few words."""
        if self.outcome == "passed":
            return "passed"
        return f"{self.outcome} in {self.where or 'start'}" + (
            f": {self.detail}" if self.detail else ""
        )


def check_allowed(is_allowed: bool) -> None:
    """Raise ConfigError unless code may be run (by knob or environment) and can be limited."""
    if not (is_allowed or os.environ.get(ENVIRONMENT) == "1"):
        raise ConfigError(
            "Expected permission to run code that a model wrote, got none. If you accept that, set "
            f"allow_code_execution=true on the task, or {ENVIRONMENT}=1; docs/tasks.md says what "
            f"the sandbox limits and what it does not."
        )
    if not hasattr(os, "waitid"):
        raise ConfigError(
            f"Expected a system with process groups and limits to run code on, got {sys.platform}. "
            f"Score on Linux (or macOS with Python 3.13); records can be scored later."
        )


def run_parts(parts: Sequence[Part], limits: Limits | None = None) -> Execution:
    """Return how the parts ran, one after the other. Callers see to ``check_allowed`` first.

    Raises ConfigError when a reference part does not run through: then nothing is known about the
    code that was to be judged.
    """
    limits = limits or Limits()
    folder = Path(tempfile.mkdtemp(prefix="lenity-run-"))
    try:
        execution = _Run(parts, limits, folder).finish()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    failed = {part.label for part in parts if part.is_reference}
    if execution.outcome != "passed" and execution.where in failed:
        raise ConfigError(
            f"Expected the reference solution of the data to run, got {execution.summary}. Raise "
            f"timeout_seconds or memory_mb, or leave this item out."
        )
    return execution


@dataclass(slots=True)
class _Progress:
    """What the child has told so far."""

    where: str = ""
    started: float = 0.0
    deadline: float = 0.0
    reference_seconds: float = 0.0
    isolation: tuple[str, ...] = ()
    ending: dict[str, Any] | None = None
    output: bytearray = field(default_factory=bytearray)


class _Run:
    """One child process, from its start to its end."""

    def __init__(self, parts: Sequence[Part], limits: Limits, folder: Path) -> None:
        self.parts = {part.label: part for part in parts}
        self.limits, self.folder = limits, folder
        # only who holds it can report; it reaches the child before any code of the model's
        self.nonce = secrets.token_hex(16)
        self.progress = _Progress(deadline=time.monotonic() + _START_SECONDS)
        self.buffer = b""

    def finish(self) -> Execution:
        """Run the child to its end and return what came of it."""
        begun = time.monotonic()
        reader, writer = os.pipe()
        try:
            process = self._start(writer)
        finally:
            os.close(writer)
        try:
            stopped = self._watch(process, reader)
            if stopped is None and self.progress.ending is None:
                _let_leave(process)
        finally:
            _kill_group(process)
            os.close(reader)
        return self._execution(stopped, process.returncode, time.monotonic() - begun)

    def _start(self, writer: int) -> subprocess.Popen[bytes]:
        job = {
            "nonce": self.nonce,
            "report": writer,
            "limits": asdict(self.limits),
            "cpu_seconds": int(_REFERENCE_SECONDS + (1 + SLACK) * self.limits.seconds),
            "parts": [asdict(part) for part in self.parts.values()],
        }
        work = self.folder / "work"
        work.mkdir()
        job_file = self.folder / "job.json"
        job_file.write_text(json.dumps(job), encoding="utf-8")
        # Like -I, but for PYTHONHASHSEED: the order of a set must be the same in every run.
        return subprocess.Popen(
            [sys.executable, "-s", "-P", "-B", "-X", "utf8", str(_CHILD), str(job_file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=work,
            env=_environment(work),
            pass_fds=(writer,),
            start_new_session=True,
        )

    def _watch(self, process: subprocess.Popen[bytes], reader: int) -> Outcome | None:
        """Read until the child has ended or has to be; return why it has to, or None."""
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(reader, selectors.EVENT_READ)
            selector.register(process.stdout.fileno(), selectors.EVENT_READ)
            while selector.get_map():
                left = self.progress.deadline - time.monotonic()
                ready = selector.select(max(left, 0))
                if not ready and self.progress.deadline <= time.monotonic():
                    return "timeout"
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        selector.unregister(key.fd)
                    elif key.fd == reader:
                        self._hear(data)
                    else:
                        self.progress.output += data
                if len(self.progress.output) > self.limits.output_bytes:
                    return "output"
                if self.progress.ending is not None:
                    return None
        return None

    def _hear(self, data: bytes) -> None:
        """Take what the child reports: lines that begin with the nonce, others do not count."""
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            nonce, _, body = line.partition(b" ")
            if nonce.decode(errors="replace") != self.nonce:
                continue
            said = json.loads(body)
            if "isolation" in said:
                self.progress.isolation = tuple(said["isolation"])
            elif "start" in said:
                self._enter(said["start"])
            else:
                self.progress.ending = said

    def _enter(self, label: str) -> None:
        now, state = time.monotonic(), self.progress
        before = self.parts.get(state.where)
        if before is not None and before.is_reference:
            state.reference_seconds += now - state.started
        state.where, state.started = label, now
        if self.parts[label].is_reference:
            allowed = _REFERENCE_SECONDS
        else:
            allowed = max(self.limits.seconds, SLACK * state.reference_seconds)
        state.deadline = now + allowed

    def _execution(self, stopped: Outcome | None, status: int, seconds: float) -> Execution:
        state, limits = self.progress, self.limits
        output = bytes(state.output[: limits.output_bytes]).decode(errors="replace")
        outcome, detail = stopped, ""
        if stopped == "timeout":
            detail = f"no end within {state.deadline - state.started:.3g} s"
        elif stopped == "output":
            detail = f"more than {limits.output_bytes} bytes written"
        elif state.ending is not None:
            outcome, detail = state.ending["outcome"], state.ending["detail"]
        elif status < 0:
            outcome, detail = "crashed", f"signal {-status} ({_signal_name(-status)})"
        else:
            outcome, detail = "exited", f"status {status}, before the tests were done"
        assert outcome is not None
        return Execution(
            outcome=outcome,
            where=state.where,
            detail=detail[:300],
            output=output,
            isolation=state.isolation,
            seconds=seconds,
        )


def _environment(work: Path) -> dict[str, str]:
    """Return a fresh environment: nothing of ours, in which there may be secrets."""
    one_thread = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    home = {"HOME": str(work), "TMPDIR": str(work), "PATH": os.defpath, "LANG": "C.UTF-8"}
    return {**home, "PYTHONHASHSEED": "0", **dict.fromkeys(one_thread, "1")}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it started, then take its status."""
    if process.stdout is not None:
        process.stdout.close()
    # before it is waited for: until then its number, which is the group's, cannot be another's
    with suppress(ProcessLookupError, PermissionError):  # nobody is left
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _let_leave(process: subprocess.Popen[bytes]) -> None:
    """Wait a moment for a child that closed its pipes to leave with a status of its own."""
    until = time.monotonic() + _LEAVE_SECONDS
    # WNOWAIT leaves it to be waited for, so that its group can still be killed
    ask = os.WEXITED | os.WNOWAIT | os.WNOHANG
    while os.waitid(os.P_PID, process.pid, ask) is None and time.monotonic() < until:
        time.sleep(0.005)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
