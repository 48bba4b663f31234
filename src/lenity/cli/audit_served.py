"""``lenity audit-served``: whatever answers behind a URL, judged by its answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lenity.cli.audit import REJECTED
from lenity.cli.options import Json
from lenity.cli.studies import (
    AllowCode,
    Data,
    JudgeAll,
    JudgeKey,
    JudgeModel,
    JudgeUrl,
    MaxMinutes,
    MaxTokens,
    Out,
    Prompts,
    Tasks,
    close_run,
    judge_settings,
    print_opinion,
    print_tables,
    progress_bar,
    say_missing,
)
from lenity.cli.terminal import out, print_document
from lenity.errors import ConfigError

if TYPE_CHECKING:
    from lenity.workbench.endpoint import Endpoint
    from lenity.workbench.served import ServedAudit, ServedSettings, ServedStudy


def audit_served(
    url: Annotated[str, typer.Option(help="Base of the engine judged: http://localhost:8000/v1")],
    model: Annotated[str, typer.Option("--model", "-m", help="Its name there")],
    folder: Out,
    tasks: Tasks,
    baseline_url: Annotated[
        str | None, typer.Option(help="Base of the engine compared with (default: --url)")
    ] = None,
    baseline_model: Annotated[
        str | None, typer.Option(help="Its name there (default: --model)")
    ] = None,
    api: Annotated[
        str, typer.Option(help="chat: /chat/completions; completions: /completions")
    ] = "chat",
    data: Data = None,
    prompts: Prompts = 64,
    max_new_tokens: MaxTokens = None,
    margin: Annotated[
        float, typer.Option(help="Of non-inferiority, in the score: 0.01 is one point")
    ] = 0.01,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds a reply may take")] = 120.0,
    retries: Annotated[int, typer.Option(min=0, help="Further tries of a request")] = 3,
    api_key_env: Annotated[
        str | None,
        typer.Option(help="Environment variable with the key, sent to both engines; never stored"),
    ] = None,
    max_minutes: MaxMinutes = None,
    allow_code: AllowCode = False,
    judge_url: JudgeUrl = None,
    judge_model: JudgeModel = None,
    judge_key: JudgeKey = None,
    judge_all: JudgeAll = False,
    as_json: Json = False,
) -> None:
    """Audit a served engine by prompts and answers: quality and text, no ledger, no speed.

    Any OpenAI-compatible URL. Exits 0 when it is accepted, 1 when it is not or time was up.
    """
    _run(locals())


def _run(asked: dict[str, Any]) -> None:
    from lenity.workbench.served import judge_served, run_served
    from lenity.workbench.served_report import served_report

    settings = _settings(asked)
    with progress_bar("Audit") as tell:
        run, missing = run_served(_study(asked, tell), settings)
    with run.held():
        found = judge_served(run)
        report = served_report(run, found, missing)
        page = close_run(run, report, missing)
    if asked["as_json"]:
        print_document(_document(found, run.manifest.run_id, page, missing))
    else:
        out().print(found.decision.words)
        print_opinion(found.judged)
        print_tables(report.own_tables)
        out().print("A served engine keeps no ledger; its speed is not judged.")
        out().print(f"Report: {page}")
    say_missing(missing, asked["folder"])
    if found.decision.outcome != "accepted":
        raise typer.Exit(REJECTED)


def _study(asked: dict[str, Any], tell: Any) -> ServedStudy:
    from lenity.workbench.report.write import check_installed
    from lenity.workbench.served import ServedStudy

    check_installed()
    deadline = None
    if asked["max_minutes"] is not None:
        from lenity.workbench.protocols import Deadline

        deadline = Deadline(asked["max_minutes"])
    return ServedStudy(
        folder=asked["folder"],
        data=asked["data"],
        task_options={"allow_code_execution": True} if asked["allow_code"] else {},
        deadline=deadline,
        progress=tell,
        timeout_seconds=asked["timeout"],
        retries=asked["retries"],
        key_variable=asked["api_key_env"],
        judge_key_variable=asked["judge_key"],
    )


def _settings(asked: dict[str, Any]) -> ServedSettings:
    from lenity.registry import build_knobs
    from lenity.workbench.select import Questions
    from lenity.workbench.served import ServedSettings

    if asked["baseline_url"] is None and asked["baseline_model"] is None:
        raise ConfigError(
            "Expected --baseline-url or --baseline-model, got neither: there is nothing to compare "
            "with. Serve the same model strictly, under another URL or name. (Giving --url again "
            "as --baseline-url measures what one engine differs from itself by.)"
        )
    asked_questions = Questions(tasks=tuple(asked["tasks"]), num_prompts=asked["prompts"])
    return build_knobs(
        ServedSettings,
        {
            "candidate": _endpoint(asked, asked["url"], asked["model"]),
            "baseline": _endpoint(
                asked,
                asked["baseline_url"] or asked["url"],
                asked["baseline_model"] or asked["model"],
            ),
            "questions": asked_questions,
            "max_new_tokens": asked["max_new_tokens"],
            "margin": asked["margin"],
            "judge": judge_settings(asked),
        },
        "audit",
    )


def _endpoint(asked: dict[str, Any], url: str, model: str) -> Endpoint:
    from lenity.registry import build_knobs
    from lenity.workbench.endpoint import Endpoint

    return build_knobs(Endpoint, {"url": url, "model": model, "api": asked["api"]}, "engine")


def _document(
    found: ServedAudit, run_id: str, page: Path, missing: dict[str, int]
) -> dict[str, Any]:
    quality = found.quality
    return {
        "verdict": found.decision.outcome,
        "words": found.decision.words,
        "gates": [gate.model_dump(mode="json") for gate in found.decision.gates],
        "numbers": {
            "margin": quality.margin,
            "baseline": quality.strict_mean,
            "candidate": quality.relaxed_mean,
            "difference": quality.interval.estimate,
            "difference_low": quality.interval.low,
            "difference_high": quality.interval.high,
            "prompts": quality.num_prompts,
        },
        "ledger": None,
        "run_id": run_id,
        "report": str(page),
        "judge": [one.model_dump(mode="json") for one in found.judged],
        "missing": missing,
    }
