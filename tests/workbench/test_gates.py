import numpy as np
import pytest

from lenity.workbench.gates import Bounds, Gate, decide, text_gates
from lenity.workbench.pairing import Pairs
from lenity.workbench.verdicts import judge_quality, judge_speed
from tests.workbench.handmade import scored, text
from tests.workbench.test_verdicts import flips, triplets

PLAIN = tuple(range(40))
LOOP = tuple([1, 2, 3, 4, 5] * 8)


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


def texts(relaxed, strict=(PLAIN, "stop"), prompts: int = 30) -> Pairs:
    """Pairs of texts; ``relaxed`` gives ids and finish reason by prompt."""

    def arm(made):
        return [text(*made(i)[0], item_id=str(i), finish_reason=made(i)[1]) for i in range(prompts)]

    return Pairs.of(arm(lambda i: strict), arm(relaxed))


def outcomes(pairs: Pairs, rng, **settings) -> dict[str, str]:
    return {g.name: g.outcome for g in text_gates(pairs, rng, resamples=500, **settings)}


def test_equal_texts_pass_every_gate(rng):
    found = outcomes(texts(lambda i: (PLAIN, "stop")), rng)
    assert found == dict.fromkeys(("length", "truncation", "repetition", "loop"), "holds")


@pytest.mark.parametrize(("length", "outcome"), [(35, "fails"), (36, "holds"), (44, "holds")])
def test_texts_may_not_be_much_shorter(rng, length, outcome):
    pairs = texts(lambda i: (tuple(range(length)), "stop"))
    assert outcomes(pairs, rng)["length"] == outcome


def test_texts_may_not_be_much_longer(rng):
    pairs = texts(lambda i: (tuple(range(45)), "stop"))
    assert outcomes(pairs, rng)["length"] == "fails"
    assert outcomes(pairs, rng, bounds=Bounds(max_length_ratio=1.2))["length"] == "holds"


def test_texts_may_not_be_cut_off_more_often(rng):
    pairs = texts(lambda i: (PLAIN, "length" if i % 3 == 0 else "stop"))
    gate = text_gates(pairs, rng, resamples=500)[1]
    assert (gate.name, gate.outcome) == ("truncation", "fails")
    assert gate.interval.estimate == pytest.approx(1 / 3)
    assert gate.words == "+0.333 against strict, +0.02 allowed"


def test_texts_that_go_in_circles_fail_whatever_their_speed(rng):
    pairs = texts(lambda i: (LOOP if i % 2 else PLAIN, "stop"))
    gates = text_gates(pairs, rng, resamples=500)
    assert [g.name for g in gates if g.outcome == "fails"] == ["repetition", "loop"]
    quality = judge_quality(flips(0, 0, 400), rng, resamples=100)
    fast = judge_speed(triplets(0.5, 0.51, 0.5, 0.51))
    decision = decide(quality, gates, fast)
    assert (decision.outcome, decision.failed) == ("rejected", ("repetition", "loop"))
    assert decision.words.startswith("rejected: repetition fails (+0.")


def test_one_odd_text_is_undecided_not_a_failure(rng):
    # one text of ten goes in circles: beyond the bound, and perhaps chance
    pairs = texts(lambda i: (LOOP if i == 0 else PLAIN, "stop"), prompts=10)
    assert outcomes(pairs, rng)["loop"] == "undecided"


def test_strict_that_goes_in_circles_too_is_no_rise(rng):
    pairs = texts(lambda i: (LOOP, "stop"), strict=(LOOP, "stop"))
    assert set(outcomes(pairs, rng).values()) == {"holds"}


def test_answers_of_one_token_have_nothing_to_repeat(rng):
    pairs = texts(lambda i: ((i,), "stop"), strict=((0,), "stop"))
    assert set(outcomes(pairs, rng).values()) == {"holds"}


def made(outcome: str, name: str = "loop") -> Gate:
    return Gate(name=name, outcome=outcome, words="w")


@pytest.mark.parametrize(
    ("lost", "gates", "gains", "outcome", "failed", "undecided"),
    [
        (0, ["holds"], (0.1, 0.11, 0.1, 0.11), "accepted", (), ()),
        (0, ["holds"], None, "accepted", (), ()),
        (0, ["undecided"], (0.1, 0.11, 0.1, 0.11), "inconclusive", (), ("loop",)),
        (0, ["holds"], (0.1, -0.1, 0.1, -0.1), "inconclusive", (), ("speed",)),
        (0, ["holds"], (-0.1, -0.11, -0.1, -0.11), "rejected", ("speed",), ()),
        (60, ["undecided"], None, "rejected", ("quality",), ("loop",)),
        (3, ["fails"], None, "rejected", ("loop",), ("quality",)),
    ],
)
def test_one_gate_that_fails_rejects(rng, lost, gates, gains, outcome, failed, undecided):
    quality = judge_quality(flips(0, lost, 400), rng, resamples=100)
    speed = None if gains is None else judge_speed(triplets(*gains))
    decision = decide(quality, map(made, gates), speed)
    assert (decision.outcome, decision.failed, decision.undecided) == (outcome, failed, undecided)
    assert decision.words.startswith(outcome)
    assert type(decision).model_validate_json(decision.model_dump_json()) == decision


def test_the_words_of_acceptance_name_what_was_looked_at(rng):
    quality = judge_quality(scored([1] * 400, [1] * 400), rng, resamples=100)
    assert decide(quality, [made("holds")]).words == "accepted: quality, loop hold."
