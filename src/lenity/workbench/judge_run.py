"""A judge at work: every answer graded, every two different answers compared in both orders.

What is recorded is not asked again, failed opinions included. Whatever decoded the answers, they
are read from the run, so that a judge may be asked about any run with two arms.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lenity.errors import ConfigError
from lenity.tasks import Item, Task
from lenity.tasks.base import user, without_thinking
from lenity.workbench.endpoint import Client, RequestFailedError
from lenity.workbench.judge_prompts import (
    JudgeSettings,
    compare_prompt,
    grade_prompt,
    read_better,
    read_grade,
)
from lenity.workbench.judgements import (
    JUDGEMENTS,
    Judgement,
    Key,
    answer_of,
    hash_answer,
    read_judgements,
)
from lenity.workbench.manifest import is_finished
from lenity.workbench.pairing import Pairs
from lenity.workbench.rundir import RunDir

if TYPE_CHECKING:
    from lenity.workbench.protocols import Deadline, Progress


CHECK = "Say OK."
CHECK_TOKENS = 16
"""Of the reply to the check: the least that engines known to have a least one take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Who is asked, how, and about which items: task and item id -> what was asked."""

    settings: JudgeSettings
    client: Client
    items: Mapping[tuple[str, str], Item]


def judge_for(
    settings: JudgeSettings | None,
    tasks: Iterable[tuple[Task, Iterable[Item]]],
    key_variable: str | None = None,
) -> Judge | None:
    """Return who judges some tasks, or none; ``key_variable`` names where the judge's key is.

    Nothing is sent. Raises ConfigError where no task is to be judged or the key is missing.
    """
    if settings is None:
        return None
    every = list(tasks)
    chosen = [(own, items) for own, items in every if settings.every_task or not own.has_scorer]
    if not chosen:
        names = ", ".join(own.label for own, _ in every)
        raise ConfigError(
            f"Expected a task without right answers for the judge, got {names}, scored by rules. "
            f"Have scored tasks judged too (--judge-all), or ask for no judge."
        )
    client = Client(endpoint=settings.endpoint, key_variable=key_variable)
    client.check_key()
    items = {(own.label, item.id): item for own, members in chosen for item in members}
    return Judge(settings=settings, client=client, items=items)


def check_judge(judge: Judge | None, folder: Path) -> None:
    """Ask a judge one short thing before anything is decoded for it in a run's folder.

    Nobody is asked for a finished run, which needs no judge any more. Raises ConfigError where no
    answer comes: after one try, so that nobody waits for a wrong URL.
    """
    if judge is None or is_finished(folder):
        return
    client = replace(judge.client, retries=0)
    try:
        client.ask((user(CHECK),), CHECK, CHECK_TOKENS)
    except ConfigError as error:
        raise ConfigError(f"{error} That is the judge; nothing was decoded for it.") from None
    except RequestFailedError as error:
        raise ConfigError(
            f"Expected an answer of the judge {client.endpoint.model!r} at "
            f"{client.endpoint.address} before anything is decoded for it, got: "
            f"{str(error).rstrip('.')}. Look at the URL and the model's name, try again later, or "
            f"leave the judge out."
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """One thing to ask a judge."""

    key: Key
    prompt: str


def ask_judge(
    run: RunDir,
    arms: tuple[str, str],
    judge: Judge | None,
    *,
    deadline: Deadline | None = None,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Ask about the answers of two arms of a run, strict first; return what time left out.

    That is the opinions missing, under "the judge". Only prompts that both arms answered are
    judged. An opinion that failed is recorded as failed. Without a judge nothing is done.
    Raises ConfigError for a judge that is not there or will answer nothing; the run can be gone on
    with.
    """
    if judge is None:
        return {}
    known = {one.key for one in read_judgements(run)}
    asks = {ask.key: ask for ask in _asks(run, arms, judge)}
    todo = [ask for key, ask in asks.items() if key not in known]
    started = time.perf_counter()
    with run.log_artefact(JUDGEMENTS, sync=True) as log:
        for index, ask in enumerate(todo):
            if deadline is not None and deadline.seconds_left <= 0:
                return {"the judge": len(todo) - index}
            log.append([_judge(ask, judge).model_dump_json()])
            if progress is not None:
                done = len(asks) - len(todo) + index + 1
                progress(done, len(asks), time.perf_counter() - started)
    return {}


def _asks(run: RunDir, arms: tuple[str, str], judge: Judge) -> Iterator[_Ask]:
    """Yield what there is to ask, in the order of the records."""
    both = [run.records(arm) for arm in arms]
    for strict, relaxed in Pairs.of(*both).pairs:
        item = judge.items.get((strict.task, strict.item_id))
        if item is None:
            continue
        task, name = strict.task, strict.item_id
        texts = {hash_answer(record): answer_of(record) for record in (strict, relaxed)}
        for answer, text in texts.items():
            yield _Ask(key=(task, name, (answer,)), prompt=grade_prompt(item, text))
        if judge.settings.compare and len(texts) > 1:
            one, other = texts
            for first, second in ((one, other), (other, one)):
                prompt = compare_prompt(item, texts[first], texts[second])
                yield _Ask(key=(task, name, (first, second)), prompt=prompt)


def _judge(ask: _Ask, judge: Judge) -> Judgement:
    """Return the judge's opinion, or a failed one with its reason."""
    task, item_id, answers = ask.key
    about: dict[str, Any] = {"task": task, "item_id": item_id, "answers": answers}
    began = time.perf_counter()
    try:
        said = judge.client.ask((user(ask.prompt),), ask.prompt, judge.settings.max_new_tokens)
    except RequestFailedError as error:
        return Judgement(**about, status="failed", error=str(error))
    about |= {"reply": said.text, "seconds": time.perf_counter() - began}
    opinion = without_thinking(said.text)
    is_grade = len(answers) == 1
    read: object = read_grade(opinion) if is_grade else read_better(opinion)
    if read is None:
        form = "GRADE: 1 to 10" if is_grade else "BETTER: A, B or SAME"
        ended = f", finish reason {said.finish_reason}" if said.finish_reason != "stop" else ""
        told = f"expected a line '{form}' in the reply, got none{ended}"
        return Judgement(**about, status="failed", error=told)
    return Judgement(**about, **{"grade" if is_grade else "better": read})
