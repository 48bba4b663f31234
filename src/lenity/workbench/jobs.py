"""What an arm is given: rendered prompts by name, and who scores the answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lenity.errors import ProtocolError
from lenity.tasks import Item, Score, Task
from lenity.tasks.chat import RenderOptions, TextEncoder, render
from lenity.workbench.comparable import hash_prompts
from lenity.workbench.records import SampleRecord

Scorer = Callable[[SampleRecord], Score | None]
"""The score of an answer, read from its record; none where its task has no scorer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One prompt of a task, rendered. ``max_new_tokens`` is what the task allows for an answer.

    ``family`` is the kind of prompt within its task, where it has kinds.
    """

    task: str
    item_id: str
    prompt_ids: tuple[int, ...]
    max_new_tokens: int = 256
    family: str | None = None

    @property
    def name(self) -> str:
        """Task and item, for messages."""
        return f"{self.task} {self.item_id}"


def make_jobs(
    task: Task,
    items: Iterable[Item],
    tokenizer: TextEncoder,
    options: RenderOptions | None = None,
) -> tuple[list[Job], str]:
    """Return a task's items as jobs, and the hash of the template they were rendered with.

    Items of one task may differ in form (some are text only); the hash then stands for all of
    them. Raises ConfigError for an item that cannot be rendered as asked.
    """
    jobs, hashes = [], []
    for item in items:
        rendered = render(item, tokenizer, options)
        hashes.append(rendered.template_hash)
        jobs.append(
            Job(
                task=task.label,
                item_id=item.id,
                prompt_ids=rendered.prompt_ids,
                max_new_tokens=task.max_new_tokens,
                family=item.family,
            )
        )
    return jobs, combine_hashes(hashes)


def combine_hashes(hashes: Iterable[str]) -> str:
    """Return one hash for several: itself where all are equal."""
    distinct = sorted(set(hashes))
    if len(distinct) == 1:
        return distinct[0]
    return hashlib.sha256("\n".join(distinct).encode()).hexdigest()[:16]


def prompts_digest(jobs: Iterable[Job]) -> str:
    """Return 16 hex digits over every prompt's ids, whatever their order; for a run's settings."""
    return hash_prompts({(job.task, job.item_id): job.prompt_ids for job in jobs})


def scorer_of(*tasks: tuple[Task, Sequence[Item]]) -> Scorer:
    """Return the scorer of the items of some tasks, once each task says that it can score.

    The same scorer scores a recorded run again. Raises what ``Task.check_scorer`` raises.
    """
    for task, _ in tasks:
        task.check_scorer()
    known = {(task.label, item.id): (task, item) for task, items in tasks for item in items}

    def score(record: SampleRecord) -> Score | None:
        found = known.get((record.task, record.item_id))
        if found is None:
            raise ProtocolError(
                f"Expected a record of one of the items given to the scorer, got {record.task} "
                f"{record.item_id}. Give it the task and items the run was made with."
            )
        task, item = found
        return task.score(item, record.text or "")

    return score
