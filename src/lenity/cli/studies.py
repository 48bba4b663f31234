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
from lenity.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import JustifyMethod

    from lenity.models.base import LanguageModel
    from lenity.workbench.audit_run import Study
    from lenity.workbench.judge_prompts import JudgeSettings
    from lenity.workbench.judgements import JudgeSummary
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
JudgeUrl = Annotated[
    str | None,
    typer.Option(help="Base of a judge of open answers, such as http://localhost:9000/v1"),
]
JudgeModel = Annotated[str | None, typer.Option(help="The judge's name there")]
JudgeKey = Annotated[
    str | None,
    typer.Option(
        "--judge-api-key-env", help="Environment variable with the judge's key; never stored"
    ),
]
JudgeAll = Annotated[
    bool, typer.Option("--judge-all", help="Judge tasks with right answers too, not open ones only")
]

MOST_TURNED = 4
"""Rows of a table that still fit beside each other once they are columns."""
UNFINISHED = 1
"""Exit status where time was up before the run was complete."""


def make_study(target: LanguageModel, asked: Mapping[str, Any], progress: Any) -> Study:
    """Return what a study runs with, of the options that all of them have.

    Raises MissingExtraError where the report at its end could not be written.
    """
    from lenity.workbench.audit_run import Study
    from lenity.workbench.protocols import Deadline
    from lenity.workbench.report.write import check_installed

    check_installed()
    return Study(
        target=target,
        folder=asked["folder"],
        data=asked["data"],
        task_options={"allow_code_execution": True} if asked["allow_code"] else {},
        deadline=Deadline(asked["max_minutes"]),
        progress=progress,
        judge_key_variable=asked.get("judge_key"),
    )


def judge_settings(asked: Mapping[str, Any]) -> JudgeSettings | None:
    """Return the judge that was asked for, if one was. Raises ConfigError for half a judge."""
    url, model = asked["judge_url"], asked["judge_model"]
    if url is None and model is None:
        _check_no_judge(asked)
        return None
    if url is None or model is None:
        raise ConfigError(
            f"Expected --judge-url and --judge-model, got only one of them "
            f"({url or model}). Give both, or neither."
        )
    from lenity.registry import build_knobs
    from lenity.workbench.endpoint import Endpoint
    from lenity.workbench.judge_prompts import JudgeSettings

    endpoint = build_knobs(Endpoint, {"url": url, "model": model}, "judge")
    return JudgeSettings(endpoint=endpoint, every_task=asked["judge_all"])


def _check_no_judge(asked: Mapping[str, Any]) -> None:
    """Refuse options of a judge where none is named."""
    options = {"--judge-all": asked["judge_all"], "--judge-api-key-env": asked["judge_key"]}
    given = [option for option, value in options.items() if value]
    if given:
        raise ConfigError(
            f"Expected --judge-url and --judge-model with {' and '.join(given)}, got neither. Give "
            f"both, or leave {' and '.join(given)} out."
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
    """Print tables as people read them, without the columns that have nothing in them.

    A table of a few rows that is too wide for the terminal is turned: a row becomes a column.
    """
    from rich.table import Table as Drawn

    console = out()
    for table in tables:
        lines, sides = _filled(table)
        if len(lines) <= MOST_TURNED + 1 and _least_width(lines) > console.width:
            lines = [list(line) for line in zip(*lines, strict=True)]
            sides = [*sides[:1], *(sides[-1:] * (len(lines[0]) - 1))]
        drawn = Drawn(title=table.title, title_justify="left", caption=table.note)
        for head, side in zip(lines[0], sides, strict=True):
            drawn.add_column(head, justify=side)
        for row in lines[1:]:
            drawn.add_row(*row)
        console.print(drawn)


def _filled(table: Table) -> tuple[list[list[str]], list[JustifyMethod]]:
    """Return headings and rows, and each column's side; columns without a value are left out."""
    rows = table.texts()
    kept = [
        index
        for index in range(len(table.columns))
        if not rows or any(row[index] is not None for row in table.rows)
    ]
    heads = [column.heading for column in table.columns]
    sides: list[JustifyMethod] = ["right" if table.columns[i].unit else "left" for i in kept]
    return [[line[i] for i in kept] for line in (heads, *rows)], sides


def _least_width(lines: list[list[str]]) -> int:
    """Return the columns a table takes where its headings break between words and no cell does."""
    heads, *rows = lines
    cells = [
        max(*map(len, head.split()), *(len(row[i]) for row in rows), 1)
        for i, head in enumerate(heads)
    ]
    return sum(cells) + 3 * len(cells) + 1


def print_opinion(judged: tuple[JudgeSummary, ...]) -> None:
    """Print what the judge thinks of all tasks, where one was asked."""
    if judged:
        out().print(f"Judge: {judged[0].words}.")


def say_missing(missing: Mapping[str, int], folder: Path) -> None:
    """Say what time did not suffice for, and leave with the status of an unfinished run."""
    if missing:
        listed = ", ".join(f"{count} requests of {arm}" for arm, count in missing.items())
        text = f"Not finished: {listed}. Give the same command to go on with {folder}."
        err().print(text, soft_wrap=True)
        raise typer.Exit(UNFINISHED)
