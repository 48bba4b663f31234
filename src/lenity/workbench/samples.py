"""Token views of recorded answers: made while the tokenizer is at hand, read without it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lenity.workbench.records import SampleRecord
from lenity.workbench.report.token_data import TokenSample, TokenText

if TYPE_CHECKING:
    from lenity.models.base import Tokenizer

SAMPLES = "samples.json"
"""Name of the file in a run directory."""


def pieces_of(tokenizer: Tokenizer, token_ids: Sequence[int]) -> tuple[str, ...]:
    """Return each token's share of the text; what completes a character gets all of it."""
    pieces, told = [], ""
    for count in range(1, len(token_ids) + 1):
        text = tokenizer.decode(token_ids[:count], skip_special=False)
        whole = text.rstrip("\ufffd") if count < len(token_ids) else text
        pieces.append(whole[len(told) :])
        told = whole if len(whole) > len(told) else told
    return tuple(pieces)


def make_samples(
    records: Iterable[SampleRecord], arms: Sequence[str], tokenizer: Tokenizer, *, count: int = 4
) -> tuple[TokenSample, ...]:
    """Return token views of the requests that gave away most, and of one that gave nothing.

    ``arms`` are shown side by side, the last being the one judged.
    """
    rows: dict[tuple[str, str], dict[str, SampleRecord]] = {}
    for record in records:
        if record.status == "ok" and record.repeat == 0 and record.arm in arms:
            rows.setdefault((record.task, record.item_id), {})[record.arm] = record
    whole = [row for row in rows.values() if len(row) == len(arms)]
    whole.sort(key=lambda row: -row[arms[-1]].regret_spent)
    shown = [(row, "among the largest regrets of the run") for row in whole[: count - 1]]
    if len(whole) >= count:
        shown.append((whole[-1], "the smallest regret of the run"))
    return tuple(_sample(row, arms, tokenizer, note) for row, note in shown)


def _sample(
    row: dict[str, SampleRecord], arms: Sequence[str], tokenizer: Tokenizer, note: str
) -> TokenSample:
    def text_of(token_id: int) -> str:
        return tokenizer.decode([token_id], skip_special=False)

    first = row[arms[0]]
    return TokenSample(
        task=first.task,
        item_id=first.item_id,
        prompt=tokenizer.decode(first.prompt_ids, skip_special=False),
        texts=tuple(
            TokenText.of(row[arm], pieces_of(tokenizer, row[arm].token_ids), text_of)
            for arm in arms
        ),
        note=note,
    )


def samples_text(samples: Iterable[TokenSample]) -> str:
    """Return the content of samples.json."""
    return json.dumps([json.loads(sample.model_dump_json()) for sample in samples])


def read_samples(folder: Path) -> tuple[TokenSample, ...]:
    """Return the token views of a run; none where none were made."""
    path = folder / SAMPLES
    if not path.is_file():
        return ()
    return tuple(TokenSample.model_validate(value) for value in json.loads(path.read_text()))
