"""Which prompts a study asks: tasks, the side of the split, how many; rendered, with what they are.

Discovery and audit are told apart by what an item asks, so that nothing chosen on one side was ever
asked on the other, whatever else is loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from lenity.errors import ConfigError
from lenity.tasks import Item, Task, task
from lenity.tasks.chat import RenderOptions, TextEncoder
from lenity.tasks.splits import split
from lenity.workbench.jobs import Job, Scorer, combine_hashes, make_jobs, prompts_digest, scorer_of
from lenity.workbench.operating_point import DataSplit
from lenity.workbench.records import Frozen

Side = Literal["discovery", "audit"]


class Questions(Frozen):
    """What is asked, at rest: stored with every study."""

    tasks: tuple[str, ...] = Field(min_length=1)
    """Specs of tasks, such as gsm8k or small_exact:families=copy"""
    num_prompts: int = Field(default=32, ge=1)
    """Prompts at most, tasks taking turns"""
    seed: int = Field(default=0, ge=0)
    """Of the split between discovery and audit"""
    share: float = Field(default=0.5, gt=0, lt=1)
    """Of all prompts that are for discovery"""
    render: RenderOptions = RenderOptions()
    """How items become prompts"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Prompts chosen, rendered, in order; and where they come from."""

    questions: Questions
    side: Side
    tasks: tuple[tuple[Task, tuple[Item, ...]], ...]
    jobs: tuple[Job, ...]
    template_hash: str
    revisions: dict[str, str]

    @property
    def scorer(self) -> Scorer | None:
        """Return what scores answers; None where no task has right answers."""
        scored = [(own, items) for own, items in self.tasks if own.has_scorer]
        if not scored:
            return None
        judge, known = scorer_of(*scored), {own.label for own, _ in scored}
        return lambda record: judge(record) if record.task in known else None

    @property
    def digest(self) -> str:
        """Return 16 hex digits over the rendered prompts, whatever their order."""
        return prompts_digest(self.jobs)

    @property
    def hashes(self) -> tuple[str, ...]:
        """Return what each item asks, hashed and sorted: no audit may share one."""
        return tuple(sorted(item.split_hash for _, items in self.tasks for item in items))

    @property
    def data_split(self) -> DataSplit:
        """Return what an operating point chosen on these prompts says of them."""
        joined = "\n".join(self.hashes)
        return DataSplit(
            tasks=tuple(own.label for own, _ in self.tasks),
            revision=hashlib.sha256(repr(sorted(self.revisions.items())).encode()).hexdigest()[:16],
            seed=self.questions.seed,
            share=self.questions.share,
            num_prompts=len(self.jobs),
            digest=hashlib.sha256(joined.encode()).hexdigest()[:16],
        )


def select(
    questions: Questions,
    tokenizer: TextEncoder,
    side: Side,
    *,
    data: str | Path | None = None,
    options: dict[str, bool] | None = None,
) -> Selection:
    """Return the prompts of one side, tasks taking turns.

    ``options`` are knobs given to every task that has them, such as allow_code_execution. Raises
    ConfigError where a task has no data, or no item on this side.
    """
    chosen: list[tuple[Task, list[Item]]] = []
    revisions: dict[str, str] = {}
    for spec in questions.tasks:
        own = _with_options(task(spec), options or {})
        loaded = own.open(data)
        revisions[own.label] = loaded.revision
        sides = split(loaded.items, seed=questions.seed, share=questions.share)
        items = sides.discovery if side == "discovery" else sides.audit
        if not items:
            raise ConfigError(
                f"Expected items of {own} for {side}, got none of its {len(loaded.items)}. Change "
                f"the share or the seed of the split, or take a task with more items."
            )
        chosen.append((own, families_in_turn(items)))
    tasks = _take_turns(chosen, questions.num_prompts)
    jobs, hashes = _render(tasks, tokenizer, questions.render)
    return Selection(
        questions=questions,
        side=side,
        tasks=tasks,
        jobs=jobs,
        template_hash=combine_hashes(hashes),
        revisions=revisions,
    )


def families_in_turn(items: Iterable[Item]) -> list[Item]:
    """Return items with their families taking turns, so that a few of them are a bit of all."""
    families: dict[str, list[Item]] = {}
    for item in items:
        families.setdefault(item.family, []).append(item)
    rows = list(families.values())
    return [row[i] for i in range(max(map(len, rows))) for row in rows if i < len(row)]


def _with_options(own: Task, options: dict[str, bool]) -> Task:
    known = {name: value for name, value in options.items() if name in type(own).model_fields}
    return own.model_copy(update=known) if known else own


def _take_turns(
    chosen: Sequence[tuple[Task, list[Item]]], count: int
) -> tuple[tuple[Task, tuple[Item, ...]], ...]:
    """Return at most ``count`` items, as evenly from every task as they go."""
    quota = [0] * len(chosen)
    while sum(quota) < count:
        open_tasks = [i for i, (_, items) in enumerate(chosen) if quota[i] < len(items)]
        if not open_tasks:
            break
        quota[min(open_tasks, key=lambda i: (quota[i], i))] += 1
    return tuple(
        (own, tuple(items[:size])) for (own, items), size in zip(chosen, quota, strict=True) if size
    )


def _render(
    tasks: Iterable[tuple[Task, tuple[Item, ...]]], tokenizer: TextEncoder, options: RenderOptions
) -> tuple[tuple[Job, ...], list[str]]:
    rows: list[list[Job]] = []
    hashes: list[str] = []
    for own, items in tasks:
        jobs, digest = make_jobs(own, items, tokenizer, options)
        rows.append(jobs)
        hashes.append(digest)
    longest = max(map(len, rows))
    mixed = [row[i] for i in range(longest) for row in rows if i < len(row)]
    return tuple(mixed), hashes
