"""A folder as `lenity train survival` leaves it, of blocks that are easy or hard as a whole."""

import json
from pathlib import Path

import numpy as np

from lenity.workbench.diagnostics import write_blocks
from tests.workbench.test_diagnostics import correlated


def survival_run(folder: Path, *, gamma: int = 6, num: int = 300) -> Path:
    folder.mkdir()
    for seed, signal in enumerate(("raw", "marginal", "conditional")):
        blocks = correlated(signal, num=num, gamma=gamma, seed=seed)
        columns = (np.round(blocks.scores, 6).tolist(), blocks.accepted.tolist())
        write_blocks(
            folder / f"{signal}.jsonl",
            (
                {
                    "signal": signal,
                    "prompt": f"p{row}",
                    "fold": row % 5,
                    "accepted": accepted,
                    "scores": scores,
                }
                for row, (scores, accepted) in enumerate(zip(*columns, strict=True))
            ),
        )
    (folder / "blocks").mkdir()
    about = {"version": 1, "target": "toy:target", "drafter": "toy:drafter", "gamma": gamma}
    (folder / "blocks" / "blocks.json").write_text(json.dumps(about))
    return folder
