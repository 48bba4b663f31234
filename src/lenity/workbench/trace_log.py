"""The traces of a run while it is on its way: each request's once, however often it was begun."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from lenity.workbench.lines import LineLog
from lenity.workbench.rundir import RunDir
from lenity.workbench.trace import TRACES, RequestTrace, append_traces, read_traces


class TraceLog:
    """The trace file of a run, open for appending.

    A trace is written before its request's record, so that no recorded request lacks one. A kill
    between the two leaves a trace without a record; the request is then decoded again, and its
    second trace, equal to the first, is left out.
    """

    def __init__(self, run: RunDir, *, divergence: bool = False, name: str = TRACES) -> None:
        """Open or begin the file; ``divergence`` asks for the laws of both models to be compared.

        Raises RunDirError for a run that cannot be written to, and for a damaged file.
        """
        self.divergence = divergence
        self._log: LineLog = run.log_artefact(name)
        self._keys = {trace.key for trace in read_traces(self._log.path)}

    @property
    def path(self) -> Path:
        """Return where the traces are."""
        return self._log.path

    def append(self, traces: Iterable[RequestTrace]) -> None:
        """Write the traces of requests that have none yet. Raises RunDirError."""
        new = [trace for trace in traces if trace.key not in self._keys]
        append_traces(self._log, new)
        self._keys |= {trace.key for trace in new}

    def close(self) -> None:
        """Close the file."""
        self._log.close()

    def __enter__(self) -> Self:
        """Return the log."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self.close()
