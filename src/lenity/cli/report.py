"""``lenity report``: a recorded run's report again, from its directory alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lenity.cli.options import Json
from lenity.cli.studies import print_tables
from lenity.cli.terminal import out, print_document
from lenity.errors import ConfigError

if TYPE_CHECKING:
    from lenity.workbench.report.data import ReportData
    from lenity.workbench.rundir import RunDir


def report(
    folder: Annotated[Path, typer.Argument(help="Run directory")],
    to: Annotated[
        Path | None, typer.Option("--to", help="Folder to write to (default: RUN-report)")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write report.html, summary.json and tables of a recorded run; no model is loaded.

    A finished run is read-only, so that the report goes beside it.
    """
    from lenity.workbench.report.write import write_report
    from lenity.workbench.rundir import RunDir

    run = RunDir.open(folder)
    made = make_report(run)
    page = write_report(made, to or folder.with_name(f"{folder.name}-report"))
    if as_json:
        print_document({"report": str(page), "run_id": run.manifest.run_id})
        return
    print_tables(made.own_tables)
    out().print(f"Report: {page}")


def make_report(run: RunDir) -> ReportData:
    """Return the report of a run of any kind. Raises ConfigError for one without."""
    if run.manifest.kind == "audit":
        from lenity.workbench.audit import judge
        from lenity.workbench.audit_report import audit_report
        from lenity.workbench.served import is_served, judge_served
        from lenity.workbench.served_report import served_report

        if is_served(run):
            return served_report(run, judge_served(run))
        return audit_report(run, judge(run))
    if run.manifest.kind == "tune":
        from lenity.workbench.tune_report import tune_report

        return tune_report(run)
    if run.manifest.kind == "sweep":
        from lenity.workbench.sweep_report import sweep_report

        return sweep_report(run)
    raise ConfigError(
        f"Expected a run of tune, audit or sweep in {run.path}, got one of kind "
        f"{run.manifest.kind!r}. It has traces: see `lenity replay`."
    )
