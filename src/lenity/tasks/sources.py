"""Rows of a task, from a file where there is one, else from a dataset of a hub.

A file is looked for by name in the folder given, then in the folder that ``LENITY_DATA`` names.
The revision of a file is its SHA-256; that of a dataset is what the hub was asked for and the
SHA-256 of the rows it gave.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lenity.errors import ConfigError, MissingExtraError

ENVIRONMENT = "LENITY_DATA"
"""The variable that names a folder of data files, or one file."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """A dataset of a hub, as ``datasets.load_dataset`` takes it."""

    name: str
    config: str | None = None
    split: str = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Under which names the rows of a task are found."""

    files: tuple[str, ...]
    hub: Hub | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows, where they come from, and the revision of that."""

    rows: list[Row]
    origin: str
    revision: str


def hash_text(text: str) -> str:
    """Return 16 hex digits that stand for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_rows(table: Table, data: str | Path | None = None, revision: str | None = None) -> Rows:
    """Return the rows of a table.

    ``data`` is a file, or a folder that holds one of ``table.files``. With a ``revision`` only the
    hub is asked. Raises ConfigError, which says both ways when neither leads anywhere.
    """
    if revision is not None:
        return _of_hub(table, revision, "")
    file, looked = _find_file(table.files, data)
    if file is not None:
        return read_jsonl(file)
    return _of_hub(table, None, looked)


def _find_file(names: tuple[str, ...], data: str | Path | None) -> tuple[Path | None, str]:
    """Return the file, or None and where it was looked for, in words."""
    asked = [(Path(data), "the data given")] if data is not None else []
    if variable := os.environ.get(ENVIRONMENT):
        asked.append((Path(variable), ENVIRONMENT))
    for place, owner in asked:
        if not place.exists():
            raise ConfigError(
                f"Expected a file or folder as {owner}, got {place}, which is not there."
            )
        if place.is_file():
            return place, ""
        for name in names:
            if (place / name).is_file():
                return place / name, ""
    where = " and ".join(str(place) for place, _ in asked)
    if not where:
        return None, f"no folder of data was named (--data or {ENVIRONMENT})"
    return None, f"none of {', '.join(names)} is in {where}"


def read_jsonl(file: Path) -> Rows:
    """Return the objects of a JSONL file, gzipped or not. Raises ConfigError."""
    try:
        raw = file.read_bytes()
        text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ConfigError(f"Expected a readable UTF-8 JSONL file, got {file}: {error}.") from None
    rows = [
        _row(line, f"{file.name}, line {number}")
        # not splitlines(): U+2028 and its like may stand inside a JSON string
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]
    if not rows:
        raise ConfigError(f"Expected one JSON object a line in {file}, found none.")
    digest = hashlib.sha256(raw).hexdigest()
    return Rows(rows=rows, origin=file.name, revision=f"sha256:{digest}")


def _row(line: str, where: str) -> Row:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: expected JSON, got {line[:60]!r} ({error}).") from None
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: expected a JSON object, got {line[:60]!r}.")
    return row


def _of_hub(table: Table, revision: str | None, looked: str) -> Rows:
    by_file = f"put one of {', '.join(table.files)} into a folder and name it (--data)"
    if table.hub is None:
        reason = looked or "a revision of a dataset was asked for"
        raise ConfigError(
            f"Expected the task's data, but {reason}, and no dataset of a hub has it in this form. "
            f"Instead {by_file}."
        )
    hub = table.hub
    try:
        import datasets
    except ImportError:
        if revision is not None:
            raise MissingExtraError(
                f"Revision {revision} of {hub.name} needs the package datasets. Install it with: "
                f'pip install "lenity[tasks]"'
            ) from None
        raise ConfigError(
            f"Expected the task's data, but {looked}, and the package datasets, which would fetch "
            f'{hub.name}, is not installed. Either {by_file}, or: pip install "lenity[tasks]"'
        ) from None
    try:
        rows: list[Row] = [dict(row) for row in _load(datasets, hub, revision)]
    except Exception as error:  # whatever datasets, its hub client or the network raise
        raise ConfigError(
            f"Expected the task's data, but {looked or 'files were not asked for'}, and {hub.name} "
            f"(revision {revision or 'main'}) could not be loaded: {type(error).__name__}: "
            f"{str(error)[:200]}. Either {by_file}, or go online."
        ) from None
    content = "\n".join(json.dumps(row, sort_keys=True, default=str) for row in rows)
    digest = hashlib.sha256(content.encode()).hexdigest()
    origin = hub.name + (f"/{hub.config}" if hub.config else "") + f":{hub.split}"
    return Rows(rows=rows, origin=origin, revision=f"hub:{revision or 'main'},rows:{digest}")


def _load(datasets: Any, hub: Hub, revision: str | None) -> Any:
    return datasets.load_dataset(hub.name, hub.config, split=hub.split, revision=revision)
