"""What tune computes: predictions against brute force, shortlists, rungs, and when it is off."""

import pytest

from lenity.engine.curves import CostCurves, DraftCost, PassCost
from lenity.errors import ProtocolError
from lenity.policies import policy
from lenity.workbench.pareto import Point
from lenity.workbench.records import SampleRecord
from lenity.workbench.replay import Replayer
from lenity.workbench.tune import (
    Candidate,
    TuneSettings,
    decide,
    gain_over,
    grid,
    measure,
    predict,
    rung_sizes,
    shortlist,
    survivors,
)
from tests.workbench.handmade import request
from tests.workbench.studies import questions
from tests.workbench.traces import run, tiny


def curves(cost, draft=0.0, widths=range(1, 9)):
    """Costs that a function of the width gives."""
    return CostCurves(
        target="toy",
        drafter="scripted",
        dtype="float32",
        device="cpu",
        threads=1,
        context=16,
        repeats=3,
        versions={},
        passes=tuple(
            PassCost(width=w, batch=1, seconds=cost(w), low_seconds=cost(w), high_seconds=cost(w))
            for w in widths
        ),
        drafts=tuple(
            DraftCost(
                gamma=g, batch=1, seconds=draft * g, low_seconds=draft * g, high_seconds=draft * g
            )
            for g in range(1, max(widths))
        ),
    )


GAMMA = 5


@pytest.fixture(scope="module")
def replayer():
    prompts = [[i, i + 1] for i in range(6)]
    return Replayer(run(tiny(), prompts, gamma=GAMMA, max_new_tokens=24)[1])


@pytest.mark.parametrize("draft", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("slope", [0.0, 0.1, 0.5, 1.0])
def test_predict_finds_the_gamma_that_brute_force_finds(replayer, slope, draft):
    own = curves(lambda width: 1 + slope * (width - 1), draft)
    gammas = range(1, GAMMA + 1)
    best = predict(replayer, own, ["strict"], gammas)[0]

    def speed(gamma):
        said = replayer.predict("strict", gamma=gamma).tokens_per_target_pass
        return said / (1 + slope * gamma + draft * gamma)

    assert best.gamma == max(gammas, key=lambda g: (speed(g), -g))
    assert best.speedup == pytest.approx(speed(best.gamma))


def test_predictions_are_ordered_and_named(replayer):
    found = predict(replayer, curves(lambda w: 1.0), ["strict", "asd:budget=4,gate=inf"], [1, 2])
    assert [c.name for c in found] == ["c01", "c02", "c03", "c04"]
    assert [c.speedup for c in found] == sorted((c.speedup for c in found), reverse=True)


def test_every_rule_of_the_grid_can_be_built():
    specs = {policy(spec).spec for spec in grid()}
    assert len(specs) == len(grid())


def candidate(name, speedup, regret):
    return Candidate(
        name=name, policy="strict", gamma=1, tokens_per_pass=1, regret=regret, speedup=speedup
    )


def test_the_shortlist_keeps_the_fastest_and_what_nothing_beats():
    known = [candidate(f"c{i}", 10 - i, 8 - i) for i in range(8)]
    known.append(candidate("beaten", 5.5, 7.5))
    assert [c.name for c in shortlist(known, 3)] == ["c0", "c4", "c7"]
    assert [c.name for c in shortlist(known, 20)] == [f"c{i}" for i in range(8)]


def test_rungs_double_and_end_with_all():
    assert rung_sizes(32, 3) == [8, 16, 32]
    assert rung_sizes(3, 3) == [2, 2, 3]
    assert rung_sizes(10, 1) == [10]


def test_survivors_are_the_better_half_and_a_failed_gate_is_worst():
    points = [
        Point(name="fast", quality=0, gain=0.5, failed=("repetition",)),
        Point(name="good", quality=0, gain=0.2),
        Point(name="slow", quality=0, gain=0.1),
    ]
    assert survivors(points, ["fast", "good", "slow"]) == ["good", "slow"]
    assert survivors(points, ["fast"]) == ["fast"]


def arm(name, tokens, seconds, count=4, logprob=-1.0):
    return [
        request(
            ("a" * (tokens - 1) + "b", tokens),
            arm=name,
            item_id=str(i),
            wall_seconds=seconds,
            logprobs=(logprob,) * tokens,
        )
        for i in range(count)
    ]


def records(**arms: list[SampleRecord]):
    return {name.replace("_", "-"): rows for name, rows in arms.items()}


def settings(**changes):
    base = {"questions": questions(), "drafter": "ngram", "resamples": 200}
    return TuneSettings.model_validate(base | changes)


def test_gain_is_the_ratio_of_rates_less_one():
    import numpy as np

    known = records(a=arm("a", 8, 1.0), b=arm("b", 8, 2.0))
    assert gain_over(known, "a", "b", np.random.default_rng(0), 200).estimate == pytest.approx(1)
    with pytest.raises(ProtocolError, match="at least 2 prompts"):
        gain_over({"a": arm("a", 8, 1.0, 1)}, "a", "b", np.random.default_rng(0), 200)


@pytest.mark.parametrize(
    ("plain_seconds", "strict_seconds", "relaxed_seconds", "wanted"),
    [(4.0, 2.0, 1.0, "c01"), (4.0, 2.0, 3.0, "strict"), (0.5, 2.0, 1.0, "plain")],
)
def test_off_when_plain_wins_and_strict_when_relaxing_does_not_pay(
    plain_seconds, strict_seconds, relaxed_seconds, wanted
):
    known = records(
        plain_work=arm("plain-work", 8, plain_seconds),
        strict_work=arm("strict-work", 8, strict_seconds),
        c01_work=arm("c01-work", 8, relaxed_seconds),
        strict_eos=arm("strict-eos", 8, 1.0),
        c01_eos=arm("c01-eos", 8, 1.0),
    )
    points, measured = measure(known, ["c01"], settings())
    assert measured == "logprob"
    verdict = decide(known, points, measured, settings())
    assert verdict.name == wanted
    assert (verdict.gain_over_plain > 0) == (wanted != "plain")


def test_a_point_of_worse_quality_is_not_chosen():
    known = records(
        plain_work=arm("plain-work", 8, 4.0),
        strict_work=arm("strict-work", 8, 2.0),
        c01_work=arm("c01-work", 8, 1.0),
        strict_eos=arm("strict-eos", 8, 1.0),
        c01_eos=arm("c01-eos", 8, 1.0, logprob=-1.5),
    )
    points, measured = measure(known, ["c01"], settings())
    assert decide(known, points, measured, settings()).name == "strict"
