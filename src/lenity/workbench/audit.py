"""Audit: a frozen point on prompts nobody tuned on, both arms, verdict and report.

The prompts are the audit side of the very split the point was chosen on, so that choosing on them
is impossible by construction. Fixed work says how fast, natural EOS how good; the two are never
mixed. Judging a recorded audit reads its directory alone: no model, no torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from lenity.errors import ProtocolError
from lenity.workbench.config import (
    PLAIN,
    STRICT_A,
    STRICT_B,
    Arm,
    FixedWork,
    NaturalEos,
    plain_of,
    strict_of,
    triplet,
)
from lenity.workbench.divergence import EPSILON, DivergenceSummary, Evidence, summarise_divergences
from lenity.workbench.gates import Bounds, Decision, decide, text_gates
from lenity.workbench.judge_prompts import JudgeSettings
from lenity.workbench.judgements import JudgeSummary, judged
from lenity.workbench.operating_point import OperatingPoint
from lenity.workbench.pairing import Pairs
from lenity.workbench.quality import judge_pairs
from lenity.workbench.records import Frozen, SampleRecord
from lenity.workbench.rundir import RunDir
from lenity.workbench.select import Questions
from lenity.workbench.triplets import make_triplets, prompt_gain
from lenity.workbench.verdicts import (
    LOGPROB_MARGIN,
    MARGIN,
    QualityVerdict,
    SignalCheck,
    SpeedVerdict,
    judge_speed,
)

RELAXED, EOS_STRICT, EOS_RELAXED = "relaxed", "eos-strict", "eos-relaxed"
"""Names of the arms: the point at fixed work, and both arms at natural EOS."""
EVIDENCE = "evidence.json"
POINT = "operating-point.json"


class AuditSettings(Frozen):
    """All that decides what an audit records and how it judges; stated before anything runs."""

    questions: Questions
    """Which prompts; split seed and share are the point's where it has them"""
    work_prompts: int = Field(default=8, ge=1)
    """Prompts of fixed work, the first of all"""
    fixed: FixedWork = FixedWork()
    """Throughput"""
    natural: NaturalEos = NaturalEos()
    """Quality"""
    noise_floor: bool = True
    """Whether plain decoding runs too: what it differs from strict in is no policy's doing"""
    margin: float = Field(default=MARGIN, gt=0, lt=1)
    """Of non-inferiority, in the task's score"""
    logprob_margin: float = Field(default=LOGPROB_MARGIN, gt=0)
    """Nats a token, where the task carries no signal"""
    bounds: Bounds = Bounds()
    """What the text may differ by"""
    epsilon: float | None = Field(default=None, gt=0)
    """Nats between two logits that a pass of another shape may swap; none goes by the dtype"""
    judge: JudgeSettings | None = None
    """Whose opinion of open answers is asked, beside the verdict; none asks nobody"""
    seed: int = Field(default=0, ge=0)
    """Of the resampling"""
    resamples: int = Field(default=10_000, ge=100)
    """Of every bootstrap"""


def arms_of(point: OperatingPoint, settings: AuditSettings) -> tuple[tuple[Arm, ...], ...]:
    """Return the arms of fixed work and those of natural EOS. Raises ProtocolError for plain."""
    if point.is_off or point.drafter is None:
        raise ProtocolError(
            "Expected an operating point that drafts, got plain decoding: there is nothing to "
            "audit. Tune on a machine or a task where speculation pays."
        )
    relaxed = Arm(
        name=RELAXED,
        drafter=point.drafter.spec,
        policy=point.policy,
        gamma=point.gamma,
        batch_size=point.batch_size,
        skip=point.skipping,
    )
    natural: tuple[Arm, ...] = (strict_of(relaxed, EOS_STRICT), relaxed.renamed(EOS_RELAXED))
    if settings.noise_floor:
        natural = (plain_of(relaxed, PLAIN), *natural)
    return triplet(relaxed), natural


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What a recorded audit says."""

    decision: Decision
    quality: QualityVerdict
    signal: SignalCheck | None
    speed: SpeedVerdict | None
    divergences: DivergenceSummary
    noise: DivergenceSummary | None
    judged: tuple[JudgeSummary, ...]
    records: Mapping[str, Sequence[SampleRecord]]

    @property
    def numbers(self) -> dict[str, Any]:
        """Return what an operating point keeps of the verdict."""
        quality = self.quality.interval
        out: dict[str, Any] = {
            "measure": self.quality.measure,
            "margin": self.quality.margin,
            "difference": quality.estimate,
            "difference_low": quality.low,
            "difference_high": quality.high,
            "prompts": self.quality.num_prompts,
        }
        if self.speed is not None and self.speed.repeats is not None:
            gain = self.speed.repeats
            out |= {"gain": gain.estimate, "gain_low": gain.low, "gain_high": gain.high}
        return out


EPSILONS = {"bfloat16": 0.5, "float16": 0.06}
"""Nats that passes of different shapes may swap in half precision: bfloat16 steps by 0.125 from 16
on, and differences of 0.6 were seen between widths; float16 has three bits more."""


def epsilon_of(run: RunDir) -> float:
    """Return the gap below which a divergence is a tie, in the run's dtype."""
    stated, target = settings_of(run).epsilon, run.manifest.provenance.target
    if stated is not None:
        return stated
    return EPSILONS.get((target.dtype or "") if target is not None else "", EPSILON)


def settings_of(run: RunDir) -> AuditSettings:
    """Return the settings a recorded audit was made with. Raises RunDirError."""
    return run.settings("audit", AuditSettings)


def judge(run: RunDir) -> Audit:
    """Return what a recorded audit says. Raises ProtocolError where too little is recorded.

    A divergence nothing explains is a defect, and fails it.
    """
    settings = settings_of(run)
    rng = np.random.default_rng(settings.seed)
    records: dict[str, list[SampleRecord]] = {}
    for record in run.records():
        records.setdefault(record.arm, []).append(record)
    pairs = Pairs.of(records.get(EOS_STRICT, ()), records.get(EOS_RELAXED, ()))
    quality, signal = judge_pairs(
        pairs,
        rng,
        margin=settings.margin,
        logprob_margin=settings.logprob_margin,
        resamples=settings.resamples,
    )
    gates = text_gates(pairs, rng, bounds=settings.bounds, resamples=settings.resamples)
    speed = _speed(records, settings, rng)
    evidence = read_evidence(run)
    epsilon = epsilon_of(run)
    divergences = summarise_divergences(pairs, evidence.get(EOS_RELAXED), epsilon=epsilon)
    noise = None
    if PLAIN in records:
        floor = Pairs.of(records[PLAIN], records.get(EOS_STRICT, ()))
        noise = summarise_divergences(floor, evidence.get(EOS_STRICT), epsilon=epsilon)
    for found in (divergences, noise):
        if found is not None:
            found.check()
    return Audit(
        decision=decide(quality, gates, speed),
        quality=quality,
        signal=signal,
        speed=speed,
        divergences=divergences,
        noise=noise,
        judged=judged(pairs, settings.judge, run),
        records=records,
    )


def _speed(
    records: Mapping[str, list[SampleRecord]], settings: AuditSettings, rng: np.random.Generator
) -> SpeedVerdict | None:
    own = [r for arm in (STRICT_A, RELAXED, STRICT_B) for r in records.get(arm, ())]
    if not own:
        return None
    triplets = make_triplets(own, RELAXED)
    prompts = None
    if triplets.kept and settings.work_prompts > 1:
        prompts = prompt_gain(own, triplets, RELAXED, rng, resamples=settings.resamples)
    return judge_speed(triplets, prompts)


def evidence_text(evidence: Mapping[str, Mapping[tuple[str, str, int], Evidence]]) -> str:
    """Return the content of evidence.json: by arm, then task, item and repeat."""
    rows = [
        {"arm": arm, "key": list(key), "evidence": json.loads(found.model_dump_json())}
        for arm, own in evidence.items()
        for key, found in own.items()
    ]
    return json.dumps(rows, indent=1)


def read_evidence(run: RunDir) -> dict[str, dict[tuple[str, str, int], Evidence]]:
    """Return what was found out about divergences, by arm; nothing where nobody looked."""
    path = Path(run.path) / EVIDENCE
    if not path.is_file():
        return {}
    out: dict[str, dict[tuple[str, str, int], Evidence]] = {}
    for row in json.loads(path.read_text()):
        task, item, repeat = row["key"]
        own = out.setdefault(row["arm"], {})
        own[task, item, repeat] = Evidence.model_validate(row["evidence"])
    return out
