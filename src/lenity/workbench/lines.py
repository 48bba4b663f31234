"""A file that grows by whole lines: what a killed run leaves behind is read without its torn end.

A line counts once its newline is there. Lines are appended by one write, so that a kill can tear
the last one only, and whoever appends next drops what was torn.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from lenity.errors import RunDirError

_BLOCK = 1 << 16
"""Bytes read at a time while looking for the last newline."""


class LineLog:
    """A file open for appending lines; ``sync`` waits until each write is on the disk."""

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        """Open or begin the file, without its torn last line if it has one."""
        self.path, self._sync = path, sync
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        os.ftruncate(self._file, _whole_bytes(self._file))

    def append(self, lines: Sequence[str]) -> None:
        """Add lines, all or none. Raises RunDirError when the disk takes them no more."""
        assert not any("\n" in line for line in lines), "a line has no newline in it"
        data = "".join(f"{line}\n" for line in lines).encode()
        size = os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
            if self._sync:
                os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, size)
            raise RunDirError(
                f"Expected to append to {self.path}, got: {error}. Free some space and start the "
                f"run again; it goes on behind the last whole line."
            ) from None

    def close(self) -> None:
        """Close the file; twice does no harm."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        """Return the log itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self.close()


def _whole_bytes(file: int) -> int:
    """Return how many bytes stand before and at the last newline."""
    end = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the whole lines of a file with their numbers from 1, one at a time.

    A file that is not there has none; a torn last line is left out.
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield number, line[:-1].decode(errors="replace")
