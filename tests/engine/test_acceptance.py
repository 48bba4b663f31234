import random

import pytest

from lenity.engine.acceptance import (
    ALARM,
    CLIFF_RATIO,
    Acceptance,
    Position,
    Shape,
    diagnose,
    find_cliff,
    wilson_interval,
)
from lenity.engine.decode import Decoder
from lenity.types import RoundRecord
from tests.toys import ScriptedDrafter, cycle_model, pattern


def record(evaluated, accepted, *, emitted=None):
    """A strict round: what was accepted, and the target's next token."""
    emitted = accepted + 1 if emitted is None else emitted
    return RoundRecord(
        drafted=evaluated,
        evaluated=evaluated,
        accepted=accepted,
        emitted=emitted,
        relaxed=0,
        regret_units=0,
    )


def simulate(conditional, rounds, seed=0):
    """Rounds of a drafter with this conditional acceptance, drawn."""
    draw = random.Random(seed)
    positions, reached = [], rounds
    for share in conditional:
        accepted = sum(draw.random() < share for _ in range(reached))
        positions.append(Position(judged=rounds, reached=reached, accepted=accepted))
        reached = accepted
    return Acceptance(positions=tuple(positions), rounds=rounds, drafting_rounds=rounds)


def exactly(*conditional, rounds=400):
    """An acceptance whose conditional is this, up to rounding."""
    positions, reached = [], rounds
    for share in conditional:
        accepted = round(reached * share)
        positions.append(Position(judged=rounds, reached=reached, accepted=accepted))
        reached = accepted
    return Acceptance(positions=tuple(positions), rounds=rounds, drafting_rounds=rounds)


def scalar(rounds, i):
    """The definitions as a loop over rounds: (judged, reached, accepted)."""
    judged = reached = accepted = 0
    for r in rounds:
        ended_by_a_stop = r.emitted == r.accepted
        if r.evaluated <= i or (ended_by_a_stop and i >= r.accepted):
            continue
        judged += 1
        reached += all(k < r.accepted for k in range(i))
        accepted += all(k < r.accepted for k in range(i + 1))
    return judged, reached, accepted


def test_counts_are_those_of_the_loop():
    draw = random.Random(1)
    rounds = [record(0, 0)]
    for _ in range(300):
        evaluated = draw.randint(0, 5)
        accepted = draw.randint(0, evaluated)
        cut = accepted if accepted and draw.random() < 0.2 else accepted + 1
        rounds.append(record(evaluated, accepted, emitted=cut))
    found = Acceptance.of(rounds)
    assert len(found.positions) == 5
    for i, position in enumerate(found.positions):
        assert (position.judged, position.reached, position.accepted) == scalar(rounds, i)
    assert found.rounds == 301
    assert found.drafting_rounds == sum(r.evaluated > 0 for r in rounds)


def test_conditional_acceptance_is_not_the_rate():
    found = Acceptance.of([record(3, 3), record(3, 1), record(3, 0), record(1, 1)])
    assert [p.rate for p in found.positions] == [3 / 4, 1 / 3, 1 / 3]
    assert found.conditional == (3 / 4, 1 / 2, 1)
    assert found.drafting_share == 1


def test_what_a_stop_cut_off_is_not_a_rejection():
    stopped = Acceptance.of([record(4, 2, emitted=2)])
    assert stopped.conditional == (1, 1, 0, 0)
    assert [p.reached for p in stopped.positions] == [1, 1, 0, 0]
    rejected = Acceptance.of([record(4, 2)])
    assert [p.reached for p in rejected.positions] == [1, 1, 1, 0]


def test_no_rounds_and_no_drafts():
    assert Acceptance.of([]).drafting_share == 0
    plain = Acceptance.of([record(0, 0)] * 3)
    assert (plain.positions, plain.rounds, plain.drafting_share) == ((), 3, 0)
    assert (Position(judged=0, reached=0, accepted=0).rate) == 0


def test_generations_are_pooled_and_agree_with_their_own_counters():
    model = cycle_model()
    drafter = ScriptedDrafter(script=pattern(model, 0, 3, 1))
    made = Decoder(target=model, drafter=drafter, max_batch_size=1).generate(
        [[1], [2]], gamma=3, max_new_tokens=20
    )
    found = Acceptance.of_generations(made)
    records = [record for generation in made for record in generation.rounds]
    assert sum(p.accepted for p in found.positions) == sum(r.accepted for r in records)
    assert sum(p.judged for p in found.positions) == sum(r.evaluated for r in records)
    # Right for 0, 3 and 1 tokens in turn: of three rounds two pass position 0, one the others.
    assert found.conditional[0] == pytest.approx(2 / 3, abs=0.1)
    assert found.conditional[1:] == (pytest.approx(1 / 2, abs=0.1), 1)


@pytest.mark.parametrize(
    ("successes", "trials", "interval"),
    # Newcombe 1998, Statistics in Medicine 17, table I, method 3 (score, no continuity correction).
    [
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_wilson_intervals_are_the_published_ones(successes, trials, interval):
    assert wilson_interval(successes, trials) == pytest.approx(interval, abs=5e-5)


def test_wilson_limits():
    assert wilson_interval(0, 0) == (0, 1)
    assert wilson_interval(5, 5)[1] == 1
    assert Position(judged=9, reached=9, accepted=3).interval == wilson_interval(3, 9)


@pytest.mark.parametrize("place", [1, 2, 4])
def test_a_cliff_is_found_where_it_is(place):
    curve = [0.8] * place + [0.05] * (6 - place)
    for seed in range(20):
        found = diagnose(simulate(curve, 400, seed))
        assert (found.shape, found.position) == (Shape.CLIFF, place)
    fed_back = any("norm_output" in cause for cause in found.causes)
    window = any("sliding window" in cause for cause in found.causes)
    assert window
    assert fed_back == (place == 1)


@pytest.mark.parametrize(
    "curve",
    [
        [0.8, 0.78, 0.75, 0.74, 0.72],  # a chain
        [0.7, 0.5, 0.38, 0.3, 0.25],  # Medusa heads
        [0.6] * 8,
        [0.45, 0.6, 0.7, 0.75],  # what is accepted first makes the rest likely
    ],
)
def test_healthy_curves_are_fine(curve):
    alarms = sum(diagnose(simulate(curve, 200, seed)).shape.is_wrong for seed in range(100))
    assert alarms == 0


def test_false_alarms_stay_below_the_stated_chance():
    # The hardest curve without a cliff: exactly the ratio at one step. Binomial, 5 sigma.
    for rounds in (40, 400):
        curves = [simulate([0.9, 0.9 * CLIFF_RATIO, 0.45, 0.45], rounds, s) for s in range(300)]
        alarms = sum(find_cliff(curve) is not None for curve in curves)
        assert alarms <= 300 * ALARM + 5 * (300 * ALARM) ** 0.5
        assert alarms <= 3, "both bounds have to miss at once, or one by far: it is less than that"


def test_a_steep_fall_that_few_rounds_saw_is_no_cliff():
    assert find_cliff(exactly(0.8, 0.2, rounds=15)) is None
    assert find_cliff(exactly(0.8, 0.2)) == 1
    assert find_cliff(exactly(0.8)) is None
    assert find_cliff(Acceptance.of([])) is None


@pytest.mark.parametrize(
    ("acceptance", "shape", "cause"),
    [
        (Acceptance.of([record(0, 0)] * 40), Shape.NO_DRAFT, "n-gram"),
        (exactly(0.9, rounds=19), Shape.TOO_FEW, None),
        (exactly(0.05, 0.6, 0.6), Shape.FIRST_LOW, "taps"),
        (exactly(0.1, 0.1), Shape.FIRST_LOW, "another target"),
        (exactly(0.9, 0.9, 0.1), Shape.CLIFF, "window"),
        (exactly(0.3, 0.3, 0.3), Shape.FLAT_LOW, "undertrained"),
        (exactly(0.7, 0.65, 0.6), Shape.FINE, None),
        (exactly(0.42, 0.4), Shape.FINE, None),
    ],
)
def test_shapes_and_their_likely_causes(acceptance, shape, cause):
    found = diagnose(acceptance)
    assert found.shape is shape
    assert found.shape.is_wrong == (cause is not None)
    assert (cause is None) == (found.causes == ())
    assert cause is None or any(cause in line for line in found.causes)
    assert found.words.endswith(".")
