"""What a sweep measures of an arm, beside the strict arm on the same drafts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from lenity.errors import ProtocolError
from lenity.workbench.intervals import (
    Interval,
    bootstrap_gain,
    bootstrap_mean,
    bootstrap_ratio,
    cluster_sums,
)
from lenity.workbench.metrics import (
    Agreement,
    Counts,
    agreement_lengths,
    rates,
    relative_blocks,
    relative_calls,
)
from lenity.workbench.pairing import Pairs, mean_logprob, score
from lenity.workbench.records import SampleRecord
from lenity.workbench.repetition import summarise_texts
from lenity.workbench.sweep import Step, reference_of
from lenity.workbench.tables import (
    GAIN,
    NATS,
    NATS_APART,
    PERCENT,
    PLAIN,
    POINTS,
    TOKENS_PER_SECOND,
    Unit,
)

Records: TypeAlias = Sequence[SampleRecord]
Found: TypeAlias = Interval | float | None
Measure: TypeAlias = Callable[[Records, Records], Found]
"""(an arm's records, its strict arm's) -> what is plotted."""
CALLS = "relative_calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One measure: the name of its files, its label, its unit, how it is read off records."""

    key: str
    title: str
    unit: Unit
    of: Measure


def quantities(
    rng: np.random.Generator, resamples: int, *, with_times: bool = False
) -> list[Quantity]:
    """Return what is measured; throughput instead of coverage where nothing watched the rounds."""
    between = _times(rng, resamples) if with_times else _COVERAGE
    known = [*_counts(rng, resamples), *between, *_quality(rng, resamples)]
    return [Quantity(key=key, title=title, unit=unit, of=of) for key, title, unit, of in known]


_Entry: TypeAlias = tuple[str, str, Unit, Measure]

_COVERAGE: list[_Entry] = [
    ("coverage", "Requests relaxed", PERCENT, lambda o, s: rates(o)["coverage"].pooled)
]


def _counts(rng: np.random.Generator, resamples: int) -> list[_Entry]:
    return [
        (
            "tokens_per_pass",
            "Tokens per target pass",
            PLAIN,
            lambda own, strict: passes(own, rng, resamples),
        ),
        (
            CALLS,
            "Target passes per token / strict's",
            PLAIN,
            lambda own, strict: relative(own, strict, "target_passes", rng, resamples),
        ),
        (
            "relative_blocks",
            "Draft blocks per token / strict's",
            PLAIN,
            lambda own, strict: relative(own, strict, "draft_passes", rng, resamples),
        ),
        (
            "regret_spent",
            "Regret per request",
            NATS,
            lambda own, strict: rates(own)["regret_per_request"].pooled,
        ),
    ]


def _times(rng: np.random.Generator, resamples: int) -> list[_Entry]:
    return [
        (
            "throughput",
            "Throughput",
            TOKENS_PER_SECOND,
            lambda own, strict: throughput(own, rng, resamples),
        ),
        ("gain", "Throughput, arm / strict − 1", GAIN, lambda o, s: gain(o, s, rng, resamples)),
    ]


def _quality(rng: np.random.Generator, resamples: int) -> list[_Entry]:
    return [
        (
            "strict_token",
            "Committed draft tokens that strict accepts",
            PERCENT,
            lambda own, strict: strict_token(own, rng, resamples),
        ),
        (
            "full_prefix",
            "Committed prefixes that strict accepts whole",
            PERCENT,
            lambda own, strict: full_prefix(own, rng, resamples),
        ),
        (
            "score",
            "Score, arm − strict",
            POINTS,
            lambda own, strict: difference(own, strict, "score", rng, resamples),
        ),
        (
            "logprob",
            "Log-probability per token, arm − strict",
            NATS_APART,
            lambda own, strict: difference(own, strict, "logprob", rng, resamples),
        ),
        (
            "repetition",
            "Repeated 4-grams",
            PERCENT,
            lambda own, strict: summarise_texts(own).repeated_ngram_rate,
        ),
    ]


Values: TypeAlias = Mapping[str, Mapping[str, Interval | float]]
"""Quantity -> arm -> what was found; an arm without the quantity is not in it."""


def measured(
    known: Sequence[Quantity], steps: Sequence[Step], records: Mapping[str, Records]
) -> Values:
    """Return every quantity of every step that has it."""
    out: dict[str, dict[str, Interval | float]] = {}
    for quantity in known:
        out[quantity.key] = {}
        for step in steps:
            strict = records.get(reference_of(step, steps).arm.name, ())
            value = quantity.of(records[step.arm.name], strict)
            if value is not None:
                out[quantity.key][step.arm.name] = value
    return out


def _sound(records: Records) -> list[SampleRecord]:
    return [r for r in records if r.status == "ok" and r.token_ids]


def _ratio(
    records: Records,
    columns: Sequence[tuple[float | int, float | int]],
    rng: np.random.Generator,
    resamples: int,
) -> Found:
    """Return sum / sum with its interval over prompts; the bare ratio where there is none."""
    if not columns or not sum(below for _, below in columns):
        return None
    sums = cluster_sums(columns, [(r.task, r.item_id) for r in records])
    try:
        return bootstrap_ratio(sums[:, 0], sums[:, 1], rng, resamples=resamples)
    except ProtocolError:
        return float(sums[:, 0].sum() / sums[:, 1].sum())


def passes(own: Records, rng: np.random.Generator, resamples: int) -> Found:
    """Return new tokens / target passes, the prompt's pass excluded; None below two prompts."""
    sound = _sound(own)
    if len({r.item_id for r in sound}) < 2:
        return None
    tokens = [len(r.token_ids) for r in sound]
    counted = [max(sum(c.target_passes for c in r.rounds), 1) for r in sound]
    return bootstrap_ratio(tokens, counted, rng, resamples=resamples)


def relative(
    own: Records,
    strict: Records,
    counter: Literal["target_passes", "draft_passes"],
    rng: np.random.Generator,
    resamples: int,
) -> Found:
    """Return passes a token / strict's (metrics.relative_calls, relative_blocks), by prompt.

    Of all requests without an interval, where there are too few pairs.
    """
    found = _paired(own, strict, lambda c: (getattr(c, counter), c.emitted), rng, resamples)
    if found is not None:
        moved = {name: getattr(found, name) + 1 for name in ("estimate", "low", "high")}
        return found.model_copy(update=moved)
    pooled = relative_calls if counter == "target_passes" else relative_blocks
    return pooled(Counts.of(own), Counts.of(strict))


def strict_token(own: Records, rng: np.random.Generator, resamples: int) -> Found:
    """Return sum min(K, L) / sum K over rounds that commit a draft token (metrics.Agreement).

    None where tokens were skipped that no shadow verifier looked at.
    """
    return _agreement(own, lambda found: (found.agreed, found.kept), rng, resamples)


def full_prefix(own: Records, rng: np.random.Generator, resamples: int) -> Found:
    """Return the share of those rounds with K <= L."""
    return _agreement(own, lambda found: (found.full, found.rounds), rng, resamples)


def _agreement(
    own: Records,
    parts: Callable[[Agreement], tuple[int, int]],
    rng: np.random.Generator,
    resamples: int,
) -> Found:
    sound = _sound(own)
    try:
        columns = [parts(Agreement.of_lengths(*agreement_lengths(record))) for record in sound]
    except ProtocolError:  # no shadow verifier
        return None
    return _ratio(sound, columns, rng, resamples)


def throughput(own: Records, rng: np.random.Generator, resamples: int) -> Found:
    """Return new tokens / seconds of the four stages, the machine's share of each request.

    Neither the prompt's pass is in it, nor the shadow verifier, nor anything between rounds.
    """
    sound = _sound(own)
    columns = [(float(len(r.token_ids)), Counts.of([r]).decode_seconds) for r in sound]
    return _ratio(sound, columns, rng, resamples)


def gain(own: Records, strict: Records, rng: np.random.Generator, resamples: int) -> Found:
    """Return throughput / strict's - 1, paired by prompt; None below two pairs."""
    return _paired(own, strict, lambda c: (c.emitted, c.decode_seconds), rng, resamples)


def _paired(
    own: Records,
    strict: Records,
    rate: Callable[[Counts], tuple[float | int, float | int]],
    rng: np.random.Generator,
    resamples: int,
) -> Interval | None:
    """Return a rate / strict's - 1 over the prompts of both; None without an interval."""
    pairs = [(s, o) for s, o in Pairs.of(strict, own).pairs if s.token_ids and o.token_ids]
    if len(pairs) < 2:
        return None
    prompts = [(s.task, s.item_id) for s, _ in pairs]
    before, after = (
        cluster_sums([rate(Counts.of([record])) for record in side], prompts)
        for side in zip(*pairs, strict=True)
    )
    try:
        return bootstrap_gain(after, before, rng, resamples=resamples)
    except ProtocolError:
        return None


def difference(
    own: Records, strict: Records, measure: str, rng: np.random.Generator, resamples: int
) -> Found:
    """Return the mean difference of score or log-probability, paired by prompt; None without."""
    try:
        pairs = Pairs.of(strict, own)
        values = pairs.values(score if measure == "score" else mean_logprob, measure)
        return bootstrap_mean(values.differences, rng, resamples=resamples)
    except ProtocolError:
        return None
