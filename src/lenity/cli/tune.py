"""``lenity tune``: choose rule, knobs and gamma on discovery prompts; write an operating point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lenity.cli.options import DEMO_MODEL, Device, Dtype, Json, Model
from lenity.cli.studies import (
    UNFINISHED,
    AllowCode,
    Batch,
    Data,
    MaxMinutes,
    MaxTokens,
    Out,
    Prompts,
    Tasks,
    WorkTokens,
    close_run,
    make_study,
    print_tables,
    progress_bar,
    say_missing,
)
from lenity.cli.terminal import err, out, print_document, working

if TYPE_CHECKING:
    from lenity.workbench.tune import TuneSettings


def tune(
    folder: Out,
    tasks: Tasks,
    drafter: Annotated[str, typer.Option(help="Spec of the drafter")],
    model: Model = DEMO_MODEL,
    gamma: Annotated[
        list[int] | None, typer.Option(help="Draft lengths to choose from; repeatable")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Rules to choose from; repeatable (default: a grid of asd and priced)"),
    ] = None,
    data: Data = None,
    prompts: Prompts = 32,
    trace_prompts: Annotated[int, typer.Option(min=1, help="Prompts that are traced")] = 16,
    finalists: Annotated[int, typer.Option(min=1, help="Rules that are measured")] = 4,
    rungs: Annotated[int, typer.Option(min=1, help="Rounds of halving")] = 2,
    work_tokens: WorkTokens = 64,
    max_new_tokens: MaxTokens = None,
    margin: Annotated[float, typer.Option(help="Of quality, in the score: 0.01 is a point")] = 0.01,
    batch_size: Batch = 1,
    max_minutes: MaxMinutes = None,
    allow_code: AllowCode = False,
    dtype: Dtype = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Choose an operating point: traces, replay, measured finalists; or off, if nothing pays."""
    _run(locals())


def _run(asked: dict[str, Any]) -> None:
    settings, folder = _settings(asked), asked["folder"]
    with working(f"Loading {asked['model']}"):
        from lenity.models.loading import load

        target = load(asked["model"], dtype=asked["dtype"], device=asked["device"])
    from lenity.workbench.operating_point import load_operating_point
    from lenity.workbench.tune_report import tune_report
    from lenity.workbench.tune_run import POINT_FILE, run_tune

    with progress_bar("Tune") as tell:
        run, point, missing = run_tune(make_study(target, asked, tell), settings)
    if point is None and not run.is_finished:
        run.pause(missing)
        err().print("Time was up before anything could be chosen.")
        say_missing(missing, folder)
        raise typer.Exit(UNFINISHED)
    report = tune_report(run, missing)
    page = close_run(run, report, missing)
    file = folder / POINT_FILE
    point = point or load_operating_point(file)
    if asked["as_json"]:
        print_document(
            {
                "operating_point": point.model_dump(mode="json"),
                "digest": point.digest,
                "file": str(file),
                "run_id": run.manifest.run_id,
                "report": str(page),
            }
        )
        return
    print_tables(report.own_tables)
    out().print(report.verdict.words if report.verdict else "")
    out().print(f"Operating point: {file}\nReport: {page}")


def _settings(asked: dict[str, Any]) -> TuneSettings:
    from lenity.workbench.config import FixedWork, NaturalEos
    from lenity.workbench.select import Questions
    from lenity.workbench.tune import TuneSettings

    more = {}
    if asked["gamma"]:
        more["gammas"] = tuple(asked["gamma"])
    return TuneSettings(
        questions=Questions(tasks=tuple(asked["tasks"]), num_prompts=asked["prompts"]),
        drafter=asked["drafter"],
        policies=tuple(asked["policy"] or ()),
        trace_prompts=asked["trace_prompts"],
        finalists=asked["finalists"],
        rungs=asked["rungs"],
        fixed=FixedWork(new_tokens=asked["work_tokens"], repeats=1),
        natural=NaturalEos(max_new_tokens=asked["max_new_tokens"]),
        margin=asked["margin"],
        batch_size=asked["batch_size"],
        **more,
    )
