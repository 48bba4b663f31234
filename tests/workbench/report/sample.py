"""A report with every part in it, its numbers made up; ``python -m`` writes it for looking at."""

from __future__ import annotations

import sys
from math import exp, sqrt
from pathlib import Path

from lenity.workbench.facts import DrafterFacts, TargetFacts
from lenity.workbench.gates import Gate
from lenity.workbench.intervals import Interval
from lenity.workbench.metrics import RegretHistogram
from lenity.workbench.provenance import Checkout, Hardware, Provenance, Versions
from lenity.workbench.report.data import (
    Disclosure,
    Missing,
    ReportData,
    Setting,
    VerdictCard,
    WorstSlice,
)
from lenity.workbench.report.plot_data import (
    AcceptanceByPosition,
    Frontier,
    FrontierPoint,
    Latency,
    LatencyOfArm,
    Opportunity,
    OpportunityOfTask,
    PositionCurve,
    PredictedPoint,
    PredictedVsMeasured,
    RegretOfArm,
    RegretSpent,
    Reliability,
    ReliabilityBin,
    ReliabilityCurve,
    Sweep,
    SweepCurve,
    SweepPoint,
)
from lenity.workbench.report.token_data import TokenDetail, TokenSample, TokenText
from lenity.workbench.tables import COUNT, GAIN, POINTS, Column, Table, Unit

CHOSEN = "asd:budget=8,gate=0.25,block_cap=2"
FIXED = "Fixed work: 64 prompts x 256 new tokens, 4 triplets, decode only"
NATURAL = "Natural EOS: 256 held-out prompts, at most 512 new tokens"
BOOTSTRAP = "bootstrap over prompts, expanded percentile, 10000 resamples"


def interval(estimate: float, half: float, units: int = 64, method: str = BOOTSTRAP) -> Interval:
    return Interval(
        estimate=estimate,
        low=estimate - half,
        high=estimate + half,
        method=method,
        num_units=units,
    )


def verdict() -> VerdictCard:
    quality = interval(-0.0012, 0.0135, 256, "score interval over prompts (Tango)")
    gain = interval(0.0778, 0.0112)
    return VerdictCard(
        outcome="inconclusive",
        words="Quality undecided (-0.12 pp (-1.47 to +1.23) on 256 prompts against "
        "a margin of 1 pp).",
        gain=gain,
        gain_over_repeats=interval(0.0781, 0.0063, 4, "Student-t over repeats"),
        quality_difference=quality,
        margin=0.01,
        num_prompts=256,
        num_triplets=4,
        needed="642 prompts show a margin of 0.01 at a difference of 0 and discordance of 0.0194 "
        "with a power of 80%.",
        gates=(
            Gate(
                name="quality",
                outcome="undecided",
                words="-0.12 pp (-1.47 to +1.23), margin 1 pp",
                interval=quality,
            ),
            Gate(
                name="length", outcome="holds", words="1.013 of strict's tokens, 0.9 to 1.1 allowed"
            ),
            Gate(name="truncation", outcome="holds", words="+0.004 against strict, +0.02 allowed"),
            Gate(name="repetition", outcome="holds", words="+0.011 against strict, +0.02 allowed"),
            Gate(name="loop", outcome="holds", words="+0.002 against strict, +0.02 allowed"),
            Gate(
                name="speed", outcome="holds", words="faster: +7.8 % over 4 triplets", interval=gain
            ),
        ),
    )


def frontier() -> Frontier:
    def point(label, quality, speed, calls, role="candidate", best=False):
        return FrontierPoint(
            label=label,
            quality=interval(quality, 0.006 + abs(quality) / 8),
            throughput=interval(speed, 0.35),
            relative_calls=interval(calls, 0.012),
            role=role,
            is_on_frontier=best,
        )

    return Frontier(
        protocol=f"{NATURAL}; throughput at fixed work",
        margin=0.01,
        points=(
            FrontierPoint(label="plain", quality=0.0, throughput=18.2, role="plain"),
            point("strict", 0.0, 31.4, 1.0, "strict", True),
            point("asd:budget=4,gate=0.25,block_cap=2", -0.0005, 33.0, 0.951, best=True),
            point(CHOSEN, -0.0012, 33.9, 0.926, "chosen", True),
            point("asd:budget=16,gate=0.5,block_cap=3", -0.0111, 34.6, 0.905, best=True),
            point("margin:ratio=0.9", -0.0086, 33.1, 0.948),
            point("priced:price=0.35", -0.0041, 34.1, 0.92, best=True),
            point("top_k:k=2", -0.041, 36.8, 0.842, best=True),
        ),
    )


def tasks() -> Table:
    rows = [
        ("gsm8k@1", 96, 0.0812, 1.094, 0.0, 0.011, 0.953),
        ("math500@1", 64, 0.0967, 1.117, 0.0, 0.023, 0.969),
        ("humaneval@1", 48, 0.0521, 1.066, -0.0208, 0.0301, 0.875),
        ("mt_bench@1", 48, 0.0634, 1.081, None, None, 0.958),
    ]
    return Table(
        name="tasks",
        title="Gain and quality by task",
        columns=(
            Column(key="task", label="Task"),
            Column(key="prompts", label="Prompts", unit=COUNT),
            Column(key="gain", label="Gain", unit=GAIN),
            Column(key="tokens_per_pass", label="Tokens per pass, relaxed / strict", unit=Unit()),
            Column(key="difference", label="Score difference", unit=POINTS),
            Column(key="coverage", label="Coverage", unit=Unit(name="%", scale=100, digits=1)),
        ),
        rows=tuple(
            (
                task,
                prompts,
                interval(gain, 0.018, prompts),
                interval(ratio, 0.02, prompts),
                None if difference is None else interval(difference, half, prompts),
                coverage,
            )
            for task, prompts, gain, ratio, difference, half, coverage in rows
        ),
        note="MT-Bench has no scorer here; its text gates are in the verdict.",
    )


def acceptance() -> AcceptanceByPosition:
    def curve(arm, start, fall):
        rate = [start * exp(-fall * i) for i in range(7)]
        after = [rate[0], *(rate[i] / rate[i - 1] for i in range(1, 7))]
        return PositionCurve(
            arm=arm,
            rate=tuple(interval(r, 0.02 + 0.004 * i) for i, r in enumerate(rate)),
            conditional=tuple(interval(a, 0.015 + 0.006 * i) for i, a in enumerate(after)),
        )

    return AcceptanceByPosition(
        protocol=FIXED,
        arms=(
            curve("strict", 0.78, 0.27),
            curve("relaxed", 0.83, 0.23),
            curve("priced", 0.84, 0.22),
        ),
    )


def latency() -> Latency:
    return Latency(
        protocol=f"{FIXED}; stages synchronised",
        arms=(
            LatencyOfArm(
                arm="plain",
                draft_seconds=0,
                target_seconds=0.0549,
                verify_seconds=0.0002,
                commit_seconds=0.0001,
            ),
            LatencyOfArm(
                arm="strict",
                draft_seconds=0.0048,
                target_seconds=0.0262,
                verify_seconds=0.0006,
                commit_seconds=0.0003,
                total_seconds=interval(0.0319, 0.0004),
            ),
            LatencyOfArm(
                arm="relaxed",
                draft_seconds=0.0045,
                target_seconds=0.0241,
                verify_seconds=0.0006,
                commit_seconds=0.0003,
                total_seconds=interval(0.0295, 0.0004),
            ),
        ),
    )


def regret() -> RegretSpent:
    edges = tuple(0.8 * i for i in range(11))
    return RegretSpent(
        protocol=NATURAL,
        budget=8.0,
        arms=(
            RegretOfArm(
                arm="relaxed",
                histogram=RegretHistogram(
                    edges=edges, counts=(12, 31, 48, 55, 41, 29, 18, 11, 7, 4), num_over=0
                ),
            ),
            RegretOfArm(
                arm="priced",
                histogram=RegretHistogram(
                    edges=edges, counts=(30, 62, 57, 40, 28, 17, 9, 6, 3, 1), num_over=3
                ),
            ),
        ),
    )


def opportunity() -> Opportunity:
    taus, horizons = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0), (0, 1, 2, 3, 4, 5, 6)

    def task(name, top, count):
        return OpportunityOfTask(
            task=name,
            taus=taus,
            horizons=horizons,
            shares=tuple(
                tuple(
                    None
                    if name == "mt_bench@1" and p == 6
                    else top * (1 - exp(-0.8 * tau)) * exp(-0.4 * p)
                    for p in horizons
                )
                for tau in taus
            ),
            num_mismatches=count,
        )

    return Opportunity(
        protocol="Strict traces, discovery prompts",
        tasks=(
            task("gsm8k@1", 0.62, 18_231),
            task("humaneval@1", 0.44, 9_114),
            task("mt_bench@1", 0.51, 12_960),
        ),
    )


def sweeps() -> tuple[Sweep, ...]:
    def curve(label, xs, top, **more):
        points = tuple(
            SweepPoint(x=x, y=interval(top * (1 - exp(-0.35 * (i + 0.4))), 0.008))
            for i, x in enumerate(xs)
        )
        return SweepCurve(label=label, points=points, **more)

    paper = SweepCurve(
        label="ASD paper, GSM8K",
        points=tuple(
            SweepPoint(x=x, y=y) for x, y in ((4, 0.0496), (8, 0.0653), (12, 0.0698), (16, 0.0664))
        ),
        is_reference=True,
        setting="Qwen3-14B, DSpark, 1 x L20",
    )
    budgets = (2, 4, 8, 16, 32, 64)
    return (
        Sweep(
            key="asd-budget",
            title="Gain against budget",
            protocol=FIXED,
            x_label="Budget B",
            x_unit=Unit(name="nats"),
            x_is_logarithmic=True,
            y_label="Throughput gain",
            y_unit=GAIN,
            curves=(curve("gsm8k@1", budgets, 0.09), curve("mt_bench@1", budgets, 0.07), paper),
        ),
        Sweep(
            key="asd-block-cap",
            title="Gain against block cap",
            protocol=FIXED,
            x_label="Block cap M",
            y_label="Throughput gain",
            y_unit=GAIN,
            curves=(curve("gsm8k@1", (1, 2, 3, "∞"), 0.08),),
        ),
    )


def reliability() -> Reliability:
    def curve(label, bend):
        bins = []
        for i in range(8):
            forecast = (i + 0.5) / 8
            observed = forecast ** (1 + bend)
            count = 900 - 90 * i
            half = 1.96 * sqrt(observed * (1 - observed) / count)
            bins.append(
                ReliabilityBin(
                    forecast=forecast,
                    observed=interval(observed, half, count, "Wilson"),
                    count=count,
                )
            )
        return ReliabilityCurve(label=label, bins=tuple(bins))

    return Reliability(
        key="survival",
        title="Survival forecast",
        protocol="Held-out blocks of strict traces",
        curves=(curve("raw", 0.5), curve("calibrated", 0.06)),
        forecast_label="Forecast survival",
        observed_label="Observed survival",
    )


def predicted() -> PredictedVsMeasured:
    values = [
        (CHOSEN, 4.31, 4.24),
        ("asd:budget=16,gate=0.5,block_cap=3", 4.58, 4.39),
        ("priced:price=0.35", 4.36, 4.33),
        ("margin:ratio=0.9", 4.12, 4.14),
    ]
    return PredictedVsMeasured(
        key="predicted-tokens",
        quantity="Tokens per target pass",
        protocol="First-order replay of strict traces; measured at fixed work",
        points=tuple(
            PredictedPoint(label=label, predicted=p, measured=interval(m, 0.06))
            for label, p, m in values
        ),
    )


RELAXED = (
    "To| find| the| number| of| divisors|,| we| first| factor| 196|:\n\n|"
    "196| =| 2|²| ×| 7|²|.|\n\n|"
    "A| divisor| picks| an| exponent| for| each| prime|,| so| there| are| 3| ×| 3| =| 9| |"
    "divisors|.| <|script|>|alert|(|1|)|</|script|>"
)
STRICT = (
    "To| find| the| number| of| divisors| of| 196|,| factor| it|:\n\n|196| =| 2|²| ×| 7|²|.|\n\n|"
    "Each| divisor| picks| an| exponent| for| each| prime|,| which| gives| 3| ×| 3| =| 9|."
)


def samples() -> tuple[TokenSample, ...]:
    pieces = tuple(RELAXED.split("|"))
    kinds = "aaaaaaxraaab" + "aaaaaaaab" + "xaaaaaaaaxraaasssssab" + "p" * 20
    kinds = kinds[: len(pieces)].ljust(len(pieces), "p")
    strict = tuple(STRICT.split("|"))
    relaxed = [i for i, kind in enumerate(kinds) if kind == "x"]
    prices = (0.125, 2.375, 1.0, 0.5, 0.25)
    choices = (" of", "Each", " which", " gives", " in")
    details = tuple(
        TokenDetail(position=i, regret=prices[n % 5], rank=1 + n % 3, choice=choices[n % 5])
        for n, i in enumerate(relaxed)
    )
    return (
        TokenSample(
            task="gsm8k@1",
            item_id="test-17",
            prompt="How many positive divisors does 196 have? Show your work.\n\nThen answer.",
            note="largest regret of the run",
            texts=(
                TokenText(
                    arm="strict",
                    pieces=strict,
                    kinds=("aaaaaaabaaar" * 5)[: len(strict)],
                    finish_reason="stop",
                    score=1.0,
                ),
                TokenText(
                    arm="relaxed",
                    pieces=pieces,
                    kinds=kinds,
                    details=details,
                    regret_spent=sum(d.regret for d in details),
                    finish_reason="stop",
                    score=1.0,
                    note="The scorer read 9.",
                ),
            ),
        ),
        TokenSample(
            task="mt_bench@1",
            item_id="writing-3",
            prompt="Write a line about rain.",
            texts=(
                TokenText(
                    arm="relaxed",
                    pieces=("Rain", " is", "", " 雨", "\u202e", " and", " soft", "\t", "."),
                    kinds="axaaarbsp",
                    details=(TokenDetail(position=1, regret=0.75),),
                    regret_spent=0.75,
                    finish_reason="length",
                ),
            ),
        ),
    )


def provenance() -> Provenance:
    return Provenance(
        versions=Versions(lenity="0.1.0", python="3.12.3", torch="2.13.0", transformers="5.19.0"),
        git=Checkout(sha="0f3c1d2e4b5a69788796a5b4c3d2e1f00f3c1d2e", is_dirty=True),
        hardware=Hardware(cpu="Intel(R) Xeon(R) Platinum", cores=2),
        threads=2,
        argv=("lenity", "audit", "point.yaml", "--task", "gsm8k", "--prompts", "256"),
        environment={"OMP_WAIT_POLICY": "PASSIVE"},
        target=TargetFacts(
            name="SmolLM2-135M-Instruct", dtype="float32", attention="sdpa", device="cpu"
        ),
        drafters=(DrafterFacts(spec="eagle3:model=demo"),),
        template_hash="5f1d0b7c2a9e4d83",
        data={"gsm8k@1": "sha256:9d2f6c11", "mt_bench@1": "sha256:77ab01fe"},
    )


def report(**changes: object) -> ReportData:
    """A whole report, some parts exchanged."""
    base: dict[str, object] = {
        "kind": "audit",
        "title": "Audit of asd:budget=8 on SmolLM2-135M",
        "summary": "A frozen operating point against strict verification, on prompts it was not "
        "chosen on.",
        "created_at": "2026-02-03T10:20:30+00:00",
        "setting": Setting(
            models="SmolLM2-135M-Instruct, eagle3:model=demo, gamma 7",
            hardware="2 cores of an Intel Xeon, float32",
        ),
        "missing": (
            Missing(
                what="mbpp@1", why="asked for; stopped after 5 minutes with 31 of 64 prompts done"
            ),
        ),
        "verdict": verdict(),
        "operating_point": {
            "target": "SmolLM2-135M-Instruct",
            "drafter": "eagle3:model=demo",
            "policy": CHOSEN,
            "gamma": 7,
            "skip": None,
        },
        "frontier": frontier(),
        "tasks": tasks(),
        "worst_slice": WorstSlice(
            name="humaneval@1, prompts over 200 tokens",
            difference=interval(-0.0312, 0.041, 24),
            num_prompts=24,
            num_slices=12,
        ),
        "acceptance": acceptance(),
        "latency": latency(),
        "regret": regret(),
        "opportunity": opportunity(),
        "sweeps": sweeps(),
        "reliability": (reliability(),),
        "predicted": (predicted(),),
        "samples": samples(),
        "disclosure": Disclosure(
            provenance=provenance(),
            run_ids=("audit-20260203-102030-9ac41f",),
            protocols=(f"{FIXED}.", f"{NATURAL}."),
            exclusions=("gsm8k@1 test-88, repeat 0: interrupted in relaxed",),
            dropped_triplets=(),
            failed_samples=("math500@1 311, relaxed: out of memory",),
            divergences={"tie": 3, "policy": 241, "shape": 2, "defect": 0},
        ),
    }
    return ReportData(**{**base, **changes})


def bare(**changes: object) -> ReportData:
    """The least a report can be, with some parts put in."""
    setting = Setting(models="toy", hardware="abacus")
    return ReportData(**{"title": "Bare", "setting": setting, **changes})


if __name__ == "__main__":
    from lenity.workbench.report.write import write_report

    sys.stdout.write(f"{write_report(report(), Path(sys.argv[1]))}\n")
