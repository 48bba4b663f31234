"""A run that kills itself, as no handler can see coming: ``python -m tests.workbench.killed_run``.

Arguments: the run's folder, and after how many records to die, half a line behind them.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch

from lenity.workbench.config import FixedWork
from lenity.workbench.protocols import Outcome, fixed_work
from lenity.workbench.records import SampleRecord
from lenity.workbench.rundir import RECORDS, RunDir
from tests.workbench.made import manifest
from tests.workbench.rig import arms_of, jobs_of

SETTINGS = FixedWork(new_tokens=7, repeats=2, block_size=2, warmup_tokens=2)


class Mortal:
    """A run directory whose process dies after so many records."""

    def __init__(self, run: RunDir, lives: int) -> None:
        self._run, self._lives = run, lives

    def __contains__(self, key: object) -> bool:
        return key in self._run

    def append(self, *records: SampleRecord) -> None:
        self._run.append(*records)
        self._lives -= len(records)
        if self._lives <= 0:
            with (self._run.path / RECORDS).open("a") as file:
                file.write('{"schema_version":1,"arm":"stric')
            os.kill(os.getpid(), signal.SIGKILL)


def go(path: Path, lives: int | None = None) -> Outcome:
    """Begin or go on with the run; None lives to the end."""
    with RunDir.create(path, manifest(settings=SETTINGS.model_dump(mode="json"))) as run:
        sink = run if lives is None else Mortal(run, lives)
        return fixed_work(arms_of(batch_size=2), jobs_of(5), SETTINGS, sink)


if __name__ == "__main__":
    torch.set_num_threads(1)
    go(Path(sys.argv[1]), int(sys.argv[2]))
