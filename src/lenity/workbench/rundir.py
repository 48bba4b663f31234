"""A run directory: what was asked, where it ran, one line per request; immutable once finished.

    manifest.json   kind, settings, provenance, state; replaced by one rename
    records.jsonl   one SampleRecord a line; grows by whole lines
    ...             artefacts: traces, summary.json, report.html, tables

A killed run goes on where it was: what is recorded is not done again, a torn last line is dropped,
and each (arm, repeat, task, item) is recorded once. One process writes a run at a time. A finished
run is read-only, and its manifest holds a hash of every file. Reading needs no torch.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO, TypeVar

from pydantic import BaseModel

from lenity.errors import RunDirError
from lenity.workbench.lines import LineLog, read_lines
from lenity.workbench.manifest import (
    MANIFEST,
    Manifest,
    Part,
    check_same,
    is_finished,
    parse,
    read_manifest,
    read_settings,
    utc_now,
)
from lenity.workbench.records import SCHEMA_VERSION, SampleRecord

RECORDS, LOCK = "records.jsonl", ".lock"
_Model = TypeVar("_Model", bound=BaseModel)

Key = tuple[str, int, str, str]
"""Arm, repeat, task, item."""


class RunDir:
    """A run on disk: made or gone on with by ``create``, read by ``open``."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Hold a run for reading; use ``create`` or ``open``."""
        self.path, self.manifest = path, manifest
        self._log: LineLog | None = None
        self._lock: TextIO | None = None
        self._keys: set[Key] | None = None

    @classmethod
    def create(cls, path: str | Path, manifest: Manifest, *, sync: bool = True) -> RunDir:
        """Begin a run, or go on with one of the same kind and settings.

        A finished run of the same settings is returned for reading. ``sync`` waits until every
        record is on the disk. Raises RunDirError for a folder that holds something else, other
        settings, another target, or a run another process is writing.
        """
        run = cls(Path(path), manifest)
        run._make_folder()
        run._lock = _take_lock(run.path)
        try:
            run._join(manifest)
            if not run.is_finished:
                run._log = LineLog(run.path / RECORDS, sync=sync)
        finally:
            if run._log is None:
                run.close()
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunDir:
        """Return a run for reading, finished or not. Raises RunDirError."""
        return cls(Path(path), read_manifest(Path(path)))

    @property
    def is_finished(self) -> bool:
        """Whether the run can no longer change."""
        return self.manifest.is_finished

    def settings(self, key: str, model: type[_Model]) -> _Model:
        """Return what the run keeps under a key of its settings.

        Raises RunDirError naming file and field.
        """
        return read_settings(self.manifest, self.path, key, model)

    def records(
        self, arm: str | None = None, *, where: Callable[[SampleRecord], bool] | None = None
    ) -> Iterator[SampleRecord]:
        """Yield what was recorded, in order, one at a time. Raises RunDirError at a damaged line.

        ``arm`` and ``where`` keep some; a line torn by a kill is left out.
        """
        file = self.path / RECORDS
        for number, line in read_lines(file):
            record = parse(SampleRecord, line, f"{file}, line {number}", SCHEMA_VERSION)
            if (arm is None or record.arm == arm) and (where is None or where(record)):
                yield record

    @property
    def keys(self) -> frozenset[Key]:
        """What is recorded: arm, repeat, task, item."""
        return frozenset(self._known())

    def __contains__(self, key: object) -> bool:
        """Return whether this (arm, repeat, task, item) is recorded."""
        return key in self._known()

    def append(self, *records: SampleRecord) -> None:
        """Record requests, all or none of them. Raises RunDirError.

        A key that is recorded already is refused, as is any record once the run is finished.
        """
        log, known = self._writable(RECORDS), self._known()
        keys = [record.key for record in records]
        for index, key in enumerate(keys):
            if key in known or key in keys[:index]:
                arm, repeat, task, item = key
                raise RunDirError(
                    f"Expected each request once in {self.path}, got arm {arm}, repeat {repeat}, "
                    f"{task} {item} again. Skip what `key in run` says is there, or count it as "
                    f"another repeat."
                )
        log.append([record.model_dump_json() for record in records])
        known.update(keys)

    def write_artefact(self, name: str, content: str | bytes) -> Path:
        """Write a file of the run, whole or not at all; return its path. Raises RunDirError."""
        self._writable(name)
        path = self._place(name)
        _write(path, content.encode() if isinstance(content, str) else content)
        return path

    def log_artefact(self, name: str, *, sync: bool = False) -> LineLog:
        """Return a file of the run to append lines to, such as a trace; the caller closes it."""
        self._writable(name)
        return LineLog(self._place(name), sync=sync)

    def artefact(self, name: str) -> Path:
        """Return the path of a file of the run. Raises RunDirError when it is not there."""
        path = self.path / name
        if not path.is_file():
            raise RunDirError(
                f"Expected {name} in {self.path}, got no such file. The run holds "
                f"{', '.join(self.files()) or 'nothing'}."
            )
        return path

    def files(self) -> tuple[str, ...]:
        """Return the names of the run's files but its manifest, sorted."""
        found = (p.relative_to(self.path) for p in self.path.rglob("*") if p.is_file())
        return tuple(sorted(p.as_posix() for p in found if p.name[0] != "." and str(p) != MANIFEST))

    def pause(self, missing: Mapping[str, int] | None = None) -> None:
        """Note what is still missing, by arm, and let go of the run; it can be gone on with."""
        self._writable(MANIFEST)
        self._update(missing=dict(missing or {}))
        self.close()

    def finish(self, missing: Mapping[str, int] | None = None) -> None:
        """End the run for good: hash its files, make them read-only, let go of it."""
        self._writable(RECORDS).close()
        files = {name: _sha256(self.path / name) for name in self.files()}
        self._update(
            state="finished", finished_at=utc_now(), missing=dict(missing or {}), files=files
        )
        for name in (*files, MANIFEST):
            (self.path / name).chmod(0o444)
        (self.path / LOCK).unlink()
        self.close()

    def verify(self) -> None:
        """Check a finished run against its hashes. Raises RunDirError naming what changed."""
        for name, expected in self.manifest.files.items():
            path = self.path / name
            got = _sha256(path) if path.is_file() else "no such file"
            if got != expected:
                raise RunDirError(
                    f"Expected {path} as the run left it ({expected[:12]}), got {got[:12]}. Its "
                    f"numbers cannot be trusted; restore the file or run again."
                )

    def close(self) -> None:
        """Let go of the run without ending it; twice does no harm."""
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._lock is not None:
            self._lock.close()  # the kernel's lock goes with it
            self._lock = None

    @contextmanager
    def held(self) -> Iterator[Self]:
        """Let go of the run where the work inside ends with an error; it stays open otherwise."""
        try:
            yield self
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Return the run."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go of the run; what is recorded stays."""
        self.close()

    def _known(self) -> set[Key]:
        if self._keys is None:
            self._keys = {record.key for record in self.records()}
        return self._keys

    def _writable(self, what: str) -> LineLog:
        """Return the log of a run this process may write to. Raises RunDirError."""
        if self._log is None:
            is_over = self.is_finished
            raise RunDirError(
                f"Expected a run to write {what} to, but {self.path} is "
                f"{'finished and cannot change' if is_over else 'open for reading only'}. "
                f"{'Choose another directory.' if is_over else 'Go on with it by create().'}"
            )
        return self._log

    def _place(self, name: str) -> Path:
        path = self.path / name
        is_inside = path.resolve().is_relative_to(self.path.resolve())
        if not is_inside or path.is_dir() or name in (MANIFEST, RECORDS) or path.name[0] == ".":
            raise RunDirError(
                f"Expected the name of an artefact inside the run, got {name!r}. Choose a name "
                f"other than {MANIFEST} and {RECORDS} that does not begin with a dot."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _make_folder(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise RunDirError(
                f"Expected a folder for the run, got the file {self.path}. Choose another name."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunDirError(
                f"Expected a folder for the run, got: {error}. Choose another name."
            ) from None
        strangers = sorted(p.name for p in self.path.iterdir() if p.name[0] != ".")
        if strangers and MANIFEST not in strangers:
            raise RunDirError(
                f"Expected an empty folder or a run in {self.path}, got {strangers[0]!r} and no "
                f"{MANIFEST}. Choose another directory."
            )

    def _join(self, manifest: Manifest) -> None:
        """Write the manifest of a new run, or go on with the one that is there."""
        if not (self.path / MANIFEST).is_file():
            self._update()
            return
        self.manifest = read_manifest(self.path)
        check_same(self.path, self.manifest, manifest)
        if not self.is_finished:
            part = Part(started_at=manifest.started_at, provenance=manifest.provenance)
            self._update(resumed=(*self.manifest.resumed, part))

    def _update(self, **changes: Any) -> None:
        self.manifest = self.manifest.model_copy(update=changes)
        text = self.manifest.model_dump_json(indent=1) + "\n"
        _write(self.path / MANIFEST, text.encode())


def _take_lock(path: Path) -> TextIO | None:
    """Return the lock of a run, held; none of a finished one. Raises RunDirError."""
    import fcntl  # such a lock dies with its process, whatever ends it

    if is_finished(path):
        return None
    lock = (path / LOCK).open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        lock.close()
        raise RunDirError(
            f"Expected nobody else to be writing {path}, but process {owner} is. Wait until it "
            f"ends, or choose another directory."
        ) from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write(path: Path, data: bytes) -> None:
    """Write a file by one rename, so that it is never half there."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
