"""What the commands of the workbench share: options, a progress bar, the end of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from lenity.cli.terminal import err, out

if TYPE_CHECKING:
    from lenity.models.base import LanguageModel
    from lenity.workbench.audit_run import Study
    from lenity.workbench.report.data import ReportData
    from lenity.workbench.rundir import RunDir
    from lenity.workbench.tables import Table

Out = Annotated[Path, typer.Option("--out", "-o", help="Run directory, begun or gone on with")]
Tasks = Annotated[
    list[str],
    typer.Option("--task", "-t", help="Task and knobs, such as gsm8k or small_exact; repeatable"),
]
Data = Annotated[
    Path | None, typer.Option(help="File or folder with the tasks' data; or set LENITY_DATA")
]
Prompts = Annotated[int, typer.Option("--prompts", min=2, help="Prompts, tasks taking turns")]
MaxMinutes = Annotated[
    float | None,
    typer.Option(min=0.01, help="End with what there is by then, and say what is missing"),
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-new-tokens", "-n", min=1, help="Of an answer at natural EOS")
]
WorkTokens = Annotated[int, typer.Option(min=1, help="New tokens of a request at fixed work")]
Batch = Annotated[int, typer.Option("--batch-size", min=1, help="Requests decoded together")]
AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code-execution", help="Run code that the model wrote (humaneval, mbpp), sandboxed"
    ),
]

UNFINISHED = 1
"""Exit status where time was up before the run was complete."""


def make_study(target: LanguageModel, asked: Mapping[str, Any], progress: Any) -> Study:
    """Return what a study runs with, of the options that all of them have."""
    from lenity.workbench.audit_run import Study
    from lenity.workbench.protocols import Deadline

    return Study(
        target=target,
        folder=asked["folder"],
        data=asked["data"],
        task_options={"allow_code_execution": True} if asked["allow_code"] else {},
        deadline=Deadline(asked["max_minutes"]),
        progress=progress,
    )


@contextmanager
def progress_bar(what: str) -> Iterator[Any]:
    """Yield what a protocol tells its progress; a bar with the time left, where one is seen."""
    console = err()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)

        def tell(done: int, total: int, seconds: float) -> None:
            bar.update(task, completed=done, total=total)

        yield tell


def close_run(run: RunDir, report: ReportData, missing: Mapping[str, int]) -> Path:
    """Write the report into a run and end it, or leave it to be gone on with; return the page."""
    from lenity.workbench.report.write import PAGE, write_report

    if run.is_finished:
        return run.path / PAGE
    page = write_report(report, run.path)
    if missing:
        run.pause(missing)
    else:
        run.finish()
    return page


def print_tables(tables: tuple[Table, ...]) -> None:
    """Print tables as people read them."""
    from rich.table import Table as Drawn

    for table in tables:
        drawn = Drawn(title=table.title, title_justify="left", caption=table.note)
        for column in table.columns:
            drawn.add_column(column.heading, justify="right" if column.unit else "left")
        for row in table.texts():
            drawn.add_row(*row)
        out().print(drawn)


def say_missing(missing: Mapping[str, int], folder: Path) -> None:
    """Say what time did not suffice for, and leave with the status of an unfinished run."""
    if missing:
        listed = ", ".join(f"{count} requests of {arm}" for arm, count in missing.items())
        text = f"Not finished: {listed}. Give the same command to go on with {folder}."
        err().print(text, soft_wrap=True)
        raise typer.Exit(UNFINISHED)
