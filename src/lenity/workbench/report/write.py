"""A report on disk: report.html, summary.json and tables/*.csv in one folder."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from lenity.errors import MissingExtraError, RunDirError
from lenity.workbench.manifest import MANIFEST, parse, read_manifest
from lenity.workbench.report.data import REPORT_VERSION, ReportData
from lenity.workbench.report.plot_tables import tables_of
from lenity.workbench.tables import csv_text

PAGE, SUMMARY, TABLES = "report.html", "summary.json", "tables"
NEEDED = ("jinja2", "markupsafe", "matplotlib")
"""What the extra ``report`` brings."""


def write_report(data: ReportData, folder: Path) -> Path:
    """Write the page, the document behind it and its tables; return the path of report.html.

    The same document gives the same bytes. What an earlier report left in ``tables`` under other
    names stays. Raises MissingExtraError without jinja2 or matplotlib, before anything is
    written, and RunDirError where ``folder`` is a finished run, whose files do not change, or
    cannot be made.
    """
    page = _html(data)
    if (folder / MANIFEST).is_file() and read_manifest(folder).is_finished:
        raise RunDirError(
            f"Expected a folder for a report, got the finished run {folder}, which cannot change. "
            f"Choose another folder."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirError(
            f"Expected a folder for a report, got: {error}. Choose another folder."
        ) from None
    for table in tables_of(data):
        _write(folder / TABLES / f"{table.name}.csv", csv_text(table))
    _write(folder / SUMMARY, data.model_dump_json(indent=1) + "\n")
    _write(folder / PAGE, page)
    return folder / PAGE


def read_report(folder: Path) -> ReportData:
    """Return the document behind a report. Raises RunDirError."""
    file = folder / SUMMARY
    if not file.is_file():
        raise RunDirError(
            f"Expected a report with a {SUMMARY}, got {folder}. Give the folder that a report was "
            f"written to."
        )
    text = file.read_text(encoding="utf-8", errors="replace")
    return parse(ReportData, text, str(file), REPORT_VERSION)


def _html(data: ReportData) -> str:
    try:
        from lenity.workbench.report.page import html
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in NEEDED:
            raise
        raise _missing(package) from None
    return html(data)


def check_installed() -> None:
    """Raise MissingExtraError without the extra ``report``: asked before long work, not after."""
    for package in NEEDED:
        if find_spec(package) is None:
            raise _missing(package)


def _missing(package: str) -> MissingExtraError:
    return MissingExtraError(
        f"A report needs jinja2 and matplotlib, of which {package} is not installed. "
        f"Run: pip install 'lenity[report]'"
    )


def _write(path: Path, text: str) -> None:
    """Write a file by one rename, so that it is never half there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8", newline="\n")
    os.replace(partial, path)
