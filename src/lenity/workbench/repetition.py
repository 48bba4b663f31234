"""Whether a text goes round in circles, and how long texts get.

Relaxed text that repeats itself is easy to draft and looks fast, so a run is judged by this too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lenity.workbench.records import Frozen, SampleRecord

NGRAM = 4
"""Tokens of an n-gram: shorter ones repeat in any text, longer ones miss loops with a twist."""
TRUNCATED = ("length", "context")
"""Finish reasons of a text that did not end by itself."""


def repeated_ngram_rate(token_ids: Sequence[int], n: int = NGRAM) -> float | None:
    """Return (n-grams - distinct n-grams) / n-grams; none for fewer than n tokens."""
    count = len(token_ids) - n + 1
    if count < 1:
        return None
    distinct = len({tuple(token_ids[i : i + n]) for i in range(count)})
    return (count - distinct) / count


def longest_loop(token_ids: Sequence[int]) -> int:
    """Return the tokens of the longest stretch that says one thing at least twice in a row.

    The largest L such that for some period p, 2 p <= L, tokens i and i - p agree over the whole
    stretch from its p-th token on; 0 where nothing is said twice in a row.
    """
    ids = np.asarray(token_ids, dtype=np.int64)
    best = 0
    for period in range(1, len(ids) // 2 + 1):
        run = _longest_run(ids[period:] == ids[:-period])
        if run >= period:
            best = max(best, run + period)
    return best


def _longest_run(is_same: np.ndarray) -> int:
    """Return the length of the longest stretch of True."""
    ends = np.flatnonzero(np.concatenate([[True], ~is_same, [True]]))
    return int(np.diff(ends).max()) - 1


def longest_loop_share(token_ids: Sequence[int]) -> float | None:
    """Return tokens of the longest loop / tokens; none for an empty text."""
    return longest_loop(token_ids) / len(token_ids) if len(token_ids) else None


def is_truncated(record: SampleRecord) -> bool:
    """Return whether the text was cut by the token budget or the context."""
    return record.finish_reason in TRUNCATED


class TextSummary(Frozen):
    """Length and repetition of an arm's texts: means over requests.

    Failed and interrupted requests are in none of the means.
    """

    num_requests: int
    """Requests in the means"""
    num_excluded: int
    """Failed and interrupted ones"""
    mean_tokens: float | None
    """New tokens / requests"""
    truncation_rate: float | None
    """Requests that ended by length or context / requests"""
    repeated_ngram_rate: float | None
    """Mean of the texts' own rates; texts of fewer than 4 tokens are excluded"""
    longest_loop_share: float | None
    """Mean of longest loop / tokens; empty texts are excluded"""


def is_complete(record: SampleRecord) -> bool:
    """Return whether a request ended by itself or by its limits, so that its text can be judged."""
    return record.status == "ok" and record.finish_reason != "interrupted"


def summarise_texts(records: Iterable[SampleRecord]) -> TextSummary:
    """Return length, truncation and repetition of an arm's texts."""
    everything = list(records)
    kept = [record for record in everything if is_complete(record)]
    return TextSummary(
        num_requests=len(kept),
        num_excluded=len(everything) - len(kept),
        mean_tokens=_mean([len(r.token_ids) for r in kept]),
        truncation_rate=_mean([float(is_truncated(r)) for r in kept]),
        repeated_ngram_rate=_mean([repeated_ngram_rate(r.token_ids) for r in kept]),
        longest_loop_share=_mean([longest_loop_share(r.token_ids) for r in kept]),
    )


def _mean(values: Sequence[float | int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
