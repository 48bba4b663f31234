"""Toy arms and jobs, a sink in memory, and what is equal in two records whatever the clock said."""

from __future__ import annotations

from typing import ClassVar

from lenity.workbench.arms import Arms
from lenity.workbench.config import Arm, triplet
from lenity.workbench.jobs import Job
from lenity.workbench.records import SampleRecord
from tests.toys import ScriptedDrafter, TableModel, cycle_model

RELAXED = Arm(
    name="relaxed", drafter="scripted", policy="asd:budget=2,gate=inf,block_cap=none", gamma=3
)
"""On the cycle model a relaxed token costs half a nat, so that a request relaxes four."""


def skip_by_two(ids, limit):
    """The cycle model's runner-up, again and again."""
    return [(ids[-1] + 2 * (i + 1)) % 16 for i in range(limit)]


class Free(ScriptedDrafter):
    """A scripted drafter whose drafts may be skipped over: it reads tokens alone."""

    is_target_free: ClassVar[bool] = True


def jobs_of(count: int, **changes: object) -> list[Job]:
    """Prompts that differ in their last token."""
    return [
        Job(task="toy@1", item_id=f"q{i}", prompt_ids=(9, i % 16), **changes) for i in range(count)
    ]


def arms_of(
    *arms: Arm, model: TableModel | None = None, script=skip_by_two, batch_size=1, traces=None
) -> Arms:
    """Arms on the cycle model, with a scripted drafter; the usual triplet if none are given."""
    relaxed = RELAXED.renamed("relaxed", batch_size=batch_size)
    return Arms(
        model or cycle_model(),
        arms or triplet(relaxed),
        drafters={"scripted": Free(script=script)},
        traces=traces,
    )


class Memory:
    """A sink that remembers the order, and may be told to break off."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.rows: list[SampleRecord] = []
        self._stop_after = stop_after

    def __contains__(self, key: object) -> bool:
        return any(row.key == key for row in self.rows)

    def append(self, *records: SampleRecord) -> None:
        self.rows += records
        if self._stop_after is not None and len(self.rows) >= self._stop_after:
            raise KeyboardInterrupt


def timeless(record: SampleRecord) -> SampleRecord:
    """The record with every clock at zero."""
    rounds = tuple(
        counts.model_copy(
            update={f"{stage}_seconds": 0.0 for stage in ("draft", "target", "verify", "commit")}
        )
        for counts in record.rounds
    )
    return record.model_copy(update={"rounds": rounds, "prefill_seconds": 0.0, "wall_seconds": 0.0})
