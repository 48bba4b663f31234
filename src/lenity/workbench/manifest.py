"""What a run is, at rest: kind, settings, provenance, state. One JSON file in its directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from lenity.errors import RunDirError
from lenity.registry import explain_file
from lenity.workbench.provenance import Provenance
from lenity.workbench.records import Frozen

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
"""Of manifest.json; readers refuse a newer one."""

Kind = Literal["tune", "audit", "sweep", "trace"]
_Model = TypeVar("_Model", bound=BaseModel)


class Part(Frozen):
    """One process's share in a run that was gone on with."""

    started_at: str
    """ISO 8601, UTC"""
    provenance: Provenance


class Manifest(Frozen):
    """What a run is. Files are named relative to its directory, times are ISO 8601 in UTC."""

    schema_version: int = MANIFEST_VERSION
    """Of this file"""
    kind: Kind
    """What the run is for"""
    run_id: str
    """Kind, date and a hash; printed beside every number that comes from here"""
    settings: dict[str, JsonValue]
    """All that decides what is recorded; a run is gone on with under equal ones only"""
    provenance: Provenance
    """Of the process that began the run"""
    resumed: tuple[Part, ...] = ()
    """Processes that went on with it"""
    state: Literal["running", "finished"] = "running"
    """A finished run is never written to again"""
    started_at: str
    finished_at: str | None = None
    missing: dict[str, int] = Field(default_factory=dict)
    """Arm -> requests that were left out when the run last stopped; empty when it is complete"""
    files: dict[str, str] = Field(default_factory=dict)
    """File -> SHA-256, of a finished run"""

    @property
    def is_finished(self) -> bool:
        """Whether the run can no longer change."""
        return self.state == "finished"

    @property
    def is_one_machine(self) -> bool:
        """Whether all parts ran alike, so that their times may be compared."""
        first = self.provenance.machine()
        return all(part.provenance.machine() == first for part in self.resumed)


def begin(kind: Kind, settings: Mapping[str, Any], provenance: Provenance) -> Manifest:
    """Return the manifest of a run that starts now."""
    now = utc_now()
    salt = f"{now} {os.getpid()} {os.urandom(8).hex()}"
    stamp = now[:19].replace("-", "").replace(":", "").replace("T", "-")
    made = Manifest(
        kind=kind,
        run_id=f"{kind}-{stamp}-{hashlib.sha256(salt.encode()).hexdigest()[:6]}",
        settings=dict(settings),
        provenance=provenance,
        started_at=now,
    )
    # as it will be read back, so that an infinite budget equals itself
    return Manifest.model_validate_json(made.model_dump_json())


def utc_now() -> str:
    """Return the time, ISO 8601 to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of a run directory. Raises RunDirError."""
    file = path / MANIFEST
    if not file.is_file():
        raise RunDirError(
            f"Expected a run directory with a {MANIFEST}, got {path}"
            f"{'' if path.exists() else ', which does not exist'}. Give the folder that a tune, "
            f"audit, sweep or trace wrote."
        )
    text = file.read_text(encoding="utf-8", errors="replace")
    return parse(Manifest, text, str(file), MANIFEST_VERSION)


def read_settings(manifest: Manifest, path: Path, key: str, model: type[_Model]) -> _Model:
    """Return what a run in ``path`` keeps under a key of its settings. Raises RunDirError."""
    file = path / MANIFEST
    wrote = manifest.provenance.versions.lenity
    reason = f"{file} needs the field settings.{key}."
    if key in manifest.settings:
        try:
            return model.model_validate(manifest.settings[key])
        except ValidationError as error:
            reason = explain_file(error, model, f"{file}: settings.{key}")
    raise RunDirError(
        f"Expected the settings of a run of kind {manifest.kind!r} as this lenity writes them, got "
        f"others. {reason} Lenity {wrote} wrote the run: read it with that one, or restore the "
        f"file."
    )


def is_finished(path: Path) -> bool:
    """Return whether a folder holds a run that can no longer change. Raises RunDirError."""
    return (path / MANIFEST).is_file() and read_manifest(path).is_finished


def parse(model: type[_Model], text: str, where: str, newest: int) -> _Model:
    """Return what a file holds. Raises RunDirError: damaged, or written by a newer lenity."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        version = _version_in(text)
        if version > newest:
            raise RunDirError(
                f"Expected schema version {newest} or older in {where}, got {version}. Read it "
                f"with the lenity that wrote it, or a newer one."
            ) from None
        raise RunDirError(
            f"Expected what a run writes, got something else. {explain_file(error, model, where)} "
            f"The file is damaged; restore it or run again."
        ) from None


class _Head(BaseModel):
    """The one field that every version has."""

    model_config = ConfigDict(extra="ignore")

    schema_version: int = 0


def _version_in(text: str) -> int:
    try:
        return _Head.model_validate_json(text).schema_version
    except ValidationError:
        return 0


def check_same(path: Path, found: Manifest, mine: Manifest) -> None:
    """Refuse to go on with a run that is another one. Raises RunDirError naming what differs."""
    for asked, there in (
        ({"kind": mine.kind}, {"kind": found.kind}),
        (mine.settings, found.settings),
        (mine.provenance.deciding(), found.provenance.deciding()),
    ):
        different = first_difference(asked, there)
        if different is not None:
            name, ours, theirs = different
            raise RunDirError(
                f"Expected a run with {name}={ours!r} in {path}, got one with {theirs!r}. Choose "
                f"another directory, or go on with the run under its own settings."
            )


def first_difference(
    mine: Mapping[str, Any], theirs: Mapping[str, Any], prefix: str = ""
) -> tuple[str, object, object] | None:
    """Return the first key, dotted, under which two nested mappings differ, and both values."""
    for key in sorted({*mine, *theirs}):
        ours, other = mine.get(key), theirs.get(key)
        if isinstance(ours, Mapping) and isinstance(other, Mapping):
            deeper = first_difference(ours, other, f"{prefix}{key}.")
            if deeper is not None:
                return deeper
        elif ours != other:
            return f"{prefix}{key}", ours, other
    return None
