"""Tune: from strict traces to a shortlist, from the shortlist to a measured choice.

Replay says in milliseconds what a rule would emit on recorded strict rounds; cost curves say what
such rounds cost here. Together they rank every (rule, gamma). What is kept is measured against
strict, and halved rung by rung as prompts are added. Everything is asked on the discovery side of
the split; the audit side is never looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from lenity.errors import ProtocolError
from lenity.workbench.config import PLAIN, STRICT, FixedWork, NaturalEos
from lenity.workbench.gates import Bounds, text_gates
from lenity.workbench.intervals import Interval, bootstrap_gain
from lenity.workbench.metrics import wall_share
from lenity.workbench.pairing import Pairs
from lenity.workbench.pareto import Choice, Point, choose
from lenity.workbench.quality import judge_pairs
from lenity.workbench.records import Frozen, SampleRecord
from lenity.workbench.select import Questions
from lenity.workbench.verdicts import LOGPROB_MARGIN, MARGIN

if TYPE_CHECKING:
    from lenity.engine.curves import CostCurves
    from lenity.workbench.replay import Replayer

WORK, EOS = "work", "eos"
"""Suffixes of the arms of the two protocols: an arm is c01-work at fixed work."""


class TuneSettings(Frozen):
    """All that decides what a tune tries and how it chooses."""

    questions: Questions
    """Which prompts, of the discovery side"""
    drafter: str
    """Spec of the drafter"""
    gammas: tuple[int, ...] = (1, 2, 3, 4, 5, 7)
    """Draft lengths to choose from; the largest is traced"""
    policies: tuple[str, ...] = ()
    """Specs of rules to choose from; none stands for the built-in grid of asd and priced"""
    trace_prompts: int = Field(default=16, ge=1)
    """Prompts that strict is traced on"""
    finalists: int = Field(default=4, ge=1)
    """Rules that are measured, beside strict and plain"""
    rungs: int = Field(default=2, ge=1)
    """Times the finalists are measured; half of them are left out each time but the last"""
    fixed: FixedWork = FixedWork(new_tokens=64, repeats=1)
    """Throughput of the finalists"""
    natural: NaturalEos = NaturalEos()
    """Quality of the finalists, and the traces"""
    batch_size: int = Field(default=1, ge=1)
    """Requests decoded together: the point is for this batch"""
    margin: float = Field(default=MARGIN, gt=0, lt=1)
    """Of non-inferiority, in the task's score"""
    logprob_margin: float = Field(default=LOGPROB_MARGIN, gt=0)
    """Nats a token, where the task carries no signal"""
    bounds: Bounds = Bounds()
    """What the text may differ by"""
    seed: int = Field(default=0, ge=0)
    """Of the resampling"""
    resamples: int = Field(default=2000, ge=100)
    """Of every bootstrap"""


class Candidate(Frozen):
    """A rule at a draft length, and what replay and cost curves say of it."""

    name: str
    """Of its arms, such as c01"""
    policy: str
    gamma: int
    tokens_per_pass: float
    """Predicted tokens per target pass"""
    regret: float
    """Predicted nats per request"""
    speedup: float
    """Predicted tokens a second / plain decoding's"""


def grid() -> tuple[str, ...]:
    """Return the rules that are tried where nobody says which."""
    asd = [
        f"asd:budget={budget},gate={gate},block_cap={cap}"
        for budget, gate, cap in product(
            (1, 2, 4, 8, 16), (0.05, 0.125, 0.25, 0.5, 1), (1, 2, "none")
        )
    ]
    priced = [
        f"priced:budget={budget},price={price}"
        for budget, price in product((1, 2, 4, 8, 16), (0.5, 1, 2, 4))
    ]
    return (*asd, *priced)


def predict(
    replayer: Replayer,
    curves: CostCurves,
    policies: Iterable[str],
    gammas: Iterable[int],
    *,
    batch_size: int = 1,
) -> list[Candidate]:
    """Return every rule at every draft length, fastest first; ties to less regret.

    speedup = tokens per target pass * T(1) / (T_draft(gamma) + T(gamma + 1)), in the curves'
    times at ``batch_size``.
    """
    plain = curves.pass_seconds(1, batch_size)
    found = []
    for gamma in gammas:
        cost = curves.draft_seconds(gamma, batch_size) + curves.pass_seconds(gamma + 1, batch_size)
        for rule in policies:
            said = replayer.predict(rule, gamma=gamma)
            found.append(
                Candidate(
                    name="",
                    policy=said.policy,
                    gamma=gamma,
                    tokens_per_pass=said.tokens_per_target_pass,
                    regret=said.regret_per_request,
                    speedup=said.tokens_per_target_pass * plain / cost,
                )
            )
    found.sort(key=lambda c: (-c.speedup, c.regret, c.gamma, c.policy))
    return [c.model_copy(update={"name": f"c{i:02d}"}) for i, c in enumerate(found, start=1)]


def shortlist(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    """Return ``count`` rules spread over the predicted frontier of speed against regret.

    On it stands what no other rule beats in both. The fastest is always among them; which regret
    is too much, quality has to say, so the others are cheaper ones at even distances.
    """
    frontier: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: (-c.speedup, c.regret)):
        if not frontier or candidate.regret < frontier[-1].regret:
            frontier.append(candidate)
    if len(frontier) <= count:
        return frontier
    places = np.linspace(0, len(frontier) - 1, count).round().astype(int)
    return [frontier[i] for i in dict.fromkeys(places.tolist())]


def rung_sizes(num_prompts: int, rungs: int) -> list[int]:
    """Return the prompts of each rung: doubling, the last being all."""
    sizes = [max(2, num_prompts // 2**left) for left in range(rungs - 1, -1, -1)]
    return [min(size, num_prompts) for size in sizes]


def survivors(points: Sequence[Point], names: Sequence[str]) -> list[str]:
    """Return the better half: points with no failed gate first, then by gain."""
    ranked = sorted(
        (p for p in points if p.name in names), key=lambda p: (len(p.failed), -p.gain, p.name)
    )
    return [p.name for p in ranked[: max(1, (len(ranked) + 1) // 2)]]


def gain_over(
    records: Mapping[str, Sequence[SampleRecord]],
    arm: str,
    reference: str,
    rng: np.random.Generator,
    resamples: int,
) -> Interval:
    """Return an arm's tokens a second / the reference's - 1, prompts resampled.

    Requests that failed in either are left out of both. Raises ProtocolError below 2 prompts.
    """
    sums = {name: _by_prompt(records.get(name, ())) for name in (arm, reference)}
    shared = [key for key in sums[arm] if key in sums[reference]]
    tables = [np.array([sums[name][key] for key in shared]) for name in (arm, reference)]
    if len(shared) < 2:
        raise ProtocolError(
            f"Expected at least 2 prompts that {arm} and {reference} both decoded, got "
            f"{len(shared)}. Ask for more prompts, or look at the failed requests."
        )
    return bootstrap_gain(tables[0], tables[1], rng, resamples=resamples)


def _by_prompt(records: Iterable[SampleRecord]) -> dict[tuple[str, str], tuple[float, float]]:
    out: dict[tuple[str, str], tuple[float, float]] = {}
    for record in records:
        if record.status == "ok":
            tokens, seconds = out.get((record.task, record.item_id), (0.0, 0.0))
            key = (record.task, record.item_id)
            out[key] = (tokens + len(record.token_ids), seconds + wall_share(record))
    return out


def measure(
    records: Mapping[str, Sequence[SampleRecord]], names: Iterable[str], settings: TuneSettings
) -> tuple[list[Point], Literal["score", "logprob"]]:
    """Return the candidates as measured against strict, and what their quality is."""
    rng = np.random.default_rng(settings.seed)
    points: list[Point] = []
    measure: Literal["score", "logprob"] = "logprob"
    for name in names:
        pairs = Pairs.of(records.get(f"{STRICT}-{EOS}", ()), records.get(f"{name}-{EOS}", ()))
        verdict, _ = judge_pairs(
            pairs,
            rng,
            margin=settings.margin,
            logprob_margin=settings.logprob_margin,
            resamples=settings.resamples,
        )
        measure = verdict.measure
        gates = text_gates(pairs, rng, bounds=settings.bounds, resamples=settings.resamples)
        gain = gain_over(records, f"{name}-{WORK}", f"{STRICT}-{WORK}", rng, settings.resamples)
        points.append(
            Point(
                name=name,
                quality=verdict.interval.estimate,
                quality_interval=verdict.interval,
                gain=gain.estimate,
                gain_interval=gain,
                failed=tuple(gate.name for gate in gates if gate.outcome == "fails"),
            )
        )
    return points, measure


class Chosen(Frozen):
    """What a tune chose: a candidate, strict, or plain decoding."""

    name: str
    """Of the candidate; strict or plain"""
    rule: str
    """In words, with its margin"""
    gain_over_plain: float
    """Tokens a second / plain decoding's - 1, measured"""
    choice: Choice
    """Among the candidates"""


def decide(
    records: Mapping[str, Sequence[SampleRecord]],
    points: Sequence[Point],
    measured: Literal["score", "logprob"],
    settings: TuneSettings,
) -> Chosen:
    """Return the best of the candidates, strict where none is eligible, plain where that is faster.

    Plain decoding is "off": whatever is chosen among the others has to beat it, as measured.
    """
    margin = settings.margin if measured == "score" else settings.logprob_margin
    choice = choose(points, margin=margin)
    name = choice.point.name if choice.point is not None else STRICT
    rng = np.random.default_rng(settings.seed)
    gain = gain_over(records, f"{name}-{WORK}", f"{PLAIN}-{WORK}", rng, settings.resamples).estimate
    rule = f"{choice.rule}; strict where there is none; plain decoding where that is faster"
    if gain <= 0:
        return Chosen(name=PLAIN, rule=rule, gain_over_plain=0.0, choice=choice)
    return Chosen(name=name, rule=rule, gain_over_plain=gain, choice=choice)
