"""``lenity report``: a recorded run's report again, or two runs side by side; from disk alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    against: Annotated[
        Path | None,
        typer.Option(help="Another run, put beside the first: arm by arm, paired by prompt"),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help='Compare runs that differ in more; the report says "not comparable"'
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write report.html, summary.json and tables of a recorded run; no model is loaded.

    A finished run is read-only, so that the report goes beside it. Two runs are compared only if
    target, dtype, template, prompts and counters are the same: exit 2 names what differs.
    """
    from lenity.workbench.report.write import write_report
    from lenity.workbench.rundir import RunDir

    if force and against is None:
        raise ConfigError(
            "Expected --against RUN with --force, got --force alone. Name the run to compare with."
        )
    run = RunDir.open(folder)
    place = _named(folder)
    if against is None:
        made, name = make_report(run), f"{place.name}-report"
    else:
        from lenity.workbench.side_by_side import compare_runs

        made = compare_runs(run, RunDir.open(against), force=force)
        name = f"{place.name}-against-{_named(against).name}"
    page = write_report(made, to or place.with_name(name))
    if as_json:
        told = {"report": str(page), "run_id": run.manifest.run_id}
        print_document(told | ({} if against is None else _comparison(made)))
        return
    for reason in made.disclosure.not_comparable:
        out().print(f"Not comparable: {reason}")
    print_tables(made.own_tables)
    out().print(f"Report: {page}")


def _named(folder: Path) -> Path:
    """Return a folder by a path that ends in its name: what stands beside ``.`` has none."""
    return folder if folder.name.strip(".") else folder.resolve()


def _comparison(made: ReportData) -> dict[str, Any]:
    """Return what a comparison adds to the document."""
    assert made.tasks is not None
    keys = [column.key for column in made.tasks.columns]
    rows = made.tasks.model_dump(mode="json")["rows"]
    return {
        "run_ids": list(made.disclosure.run_ids),
        "is_comparable": not made.disclosure.not_comparable,
        "differences": list(made.disclosure.not_comparable),
        "arms": [dict(zip(keys, row, strict=True)) for row in rows],
    }


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
