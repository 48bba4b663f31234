import random

import pytest

from lenity.engine.curves import (
    Advice,
    CostCurves,
    DraftCost,
    PassCost,
    expected_tokens,
    predict_speedup,
    recommend,
    round_seconds,
)
from lenity.errors import ConfigError

WIDTHS = (1, 2, 4, 8, 16)


def curves(pass_seconds, draft_seconds=None, *, batches=(1,), gammas=(1, 2, 4, 8, 15)):
    """Curves of a machine where a pass takes ``pass_seconds(width, batch)``."""

    def cost(seconds):
        return {"seconds": seconds, "low_seconds": seconds, "high_seconds": seconds}

    return CostCurves(
        target="toy",
        drafter=None if draft_seconds is None else "toy",
        dtype="float32",
        device="cpu",
        threads=1,
        context=128,
        repeats=1,
        versions={"torch": "0"},
        passes=tuple(
            PassCost(width=w, batch=b, **cost(pass_seconds(w, b))) for b in batches for w in WIDTHS
        ),
        drafts=()
        if draft_seconds is None
        else tuple(
            DraftCost(gamma=g, batch=b, **cost(draft_seconds(g, b)))
            for b in batches
            for g in gammas
        ),
    )


def linear(width, batch):
    return 0.01 * width * batch


def flat(width, batch):
    return 0.05


def concave(width, batch):
    return 0.05 * (width * batch) ** 0.3


def test_expected_tokens_is_what_rounds_emit():
    conditional, share = [0.9, 0.5, 0.7], 0.6
    draw = random.Random(5)
    emitted = 0
    for _ in range(40_000):
        emitted += 1
        if draw.random() < share:
            for chance in conditional:
                if draw.random() >= chance:
                    break
                emitted += 1
    # The spread of a round is below 1.5 tokens: 5 sigma.
    expected = expected_tokens(conditional, 3, drafting_share=share)
    assert emitted / 40_000 == pytest.approx(expected, abs=5 * 1.5 / 40_000**0.5)
    assert expected_tokens(conditional, 3) == pytest.approx(1 + 0.9 + 0.45 + 0.315)
    assert expected_tokens(conditional, 0) == 1
    assert expected_tokens(conditional, 9) == expected_tokens(conditional, 3)


@pytest.mark.parametrize("acceptance", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_cost_linear_in_width_is_off(acceptance, batch):
    machine = curves(linear, lambda gamma, batch: 1e-4 * gamma, batches=(1, 4))
    assert recommend(machine, [acceptance] * 15, batch=batch) == Advice(
        batch=batch, gamma=0, speedup=1.0
    )


def test_a_flat_or_concave_cost_with_a_cheap_draft_is_on():
    cheap = curves(flat, lambda gamma, batch: 0.001 * gamma)
    found = recommend(cheap, [0.8] * 15)
    assert found.gamma > 4
    assert found.speedup > 2
    bent = recommend(curves(concave, lambda gamma, batch: 0.002 * gamma), [0.8] * 15)
    assert 0 < bent.gamma < found.gamma
    assert bent.speedup > 1


def test_a_draft_as_dear_as_the_target_is_off():
    assert recommend(curves(flat, lambda gamma, batch: 0.05 * gamma), [0.9] * 15).gamma == 0


def test_the_right_action_can_turn_over_with_the_batch():
    """Rows fill the arithmetic units: a pass is free in width alone and linear in a batch of 4."""
    machine = curves(lambda w, b: 0.05 if b == 1 else linear(w, b), batches=(1, 4))
    assert recommend(machine, [0.7] * 15, batch=1).gamma > 0
    assert recommend(machine, [0.7] * 15, batch=4).gamma == 0


@pytest.mark.parametrize("seed", range(25))
def test_the_choice_is_the_best_of_all(seed):
    """A scalar twin: every gamma tried, its formula written out."""
    draw = random.Random(seed)
    steps = sorted(draw.uniform(0.01, 0.2) for _ in WIDTHS)
    costs = dict(zip(WIDTHS, steps, strict=True))
    per_token = draw.uniform(0, 0.01)
    machine = curves(lambda w, b: costs[w], lambda g, b: per_token * g)
    conditional = [draw.random() for _ in range(draw.randint(1, 20))]

    def seconds(width):
        after = min(w for w in WIDTHS if w >= width)
        before = max(w for w in WIDTHS if w <= width)
        share = 0 if after == before else (width - before) / (after - before)
        return costs[before] + share * (costs[after] - costs[before])

    best, best_gamma = 1.0, 0
    for gamma in range(1, min(15, len(conditional)) + 1):
        tokens, alive = 1.0, 1.0
        for chance in conditional[:gamma]:
            alive *= chance
            tokens += alive
        speedup = tokens * costs[1] / (per_token * gamma + seconds(gamma + 1))
        assert predict_speedup(machine, conditional, gamma) == pytest.approx(speedup)
        if speedup > best:
            best, best_gamma = speedup, gamma
    found = recommend(machine, conditional)
    assert (found.gamma, found.speedup) == (best_gamma, pytest.approx(best))


def test_rounds_without_a_draft_cost_a_plain_pass():
    machine = curves(linear, lambda gamma, batch: 0.004, batches=(1, 2))
    wide, narrow = linear(4, 2), linear(1, 2)
    # Two rows, each drafting in half of its rounds: three rounds in four are wide.
    assert round_seconds(machine, 3, batch=2, drafting_share=0.5) == pytest.approx(
        0.004 + 0.75 * wide + 0.25 * narrow
    )
    assert round_seconds(machine, 3, drafting_share=0.0) == pytest.approx(0.004 + linear(1, 1))
    assert predict_speedup(machine, [0.9], 0) == 1
    never = predict_speedup(machine, [0.9] * 3, 3, drafting_share=0.0)
    assert never == pytest.approx(linear(1, 1) / (linear(1, 1) + 0.004))


def test_nothing_is_predicted_beyond_what_was_measured():
    machine = curves(flat, lambda gamma, batch: 0.0, gammas=(1, 3))
    assert machine.max_gamma == 3
    assert curves(flat).max_gamma == 15
    assert recommend(curves(flat), [0.9] * 2).gamma == 2, "the acceptance curve ends there"
    assert recommend(curves(flat), []) == Advice(batch=1, gamma=0, speedup=1.0)
    for ask in (
        lambda: machine.pass_seconds(17, 1),
        lambda: machine.pass_seconds(1, 3),
        lambda: machine.draft_seconds(4, 1),
    ):
        with pytest.raises(ConfigError, match="Measure it too"):
            ask()


def test_a_drafter_that_was_not_timed_is_free():
    assert curves(flat).draft_seconds(99, 1) == 0
    assert predict_speedup(curves(flat), [1.0] * 3, 3) == 4


def test_a_wide_pass_is_never_cheaper_than_a_narrow_one():
    upside_down = curves(lambda w, b: 0.05 if w < 4 else 0.02 if w < 16 else 0.08)
    assert [upside_down.pass_seconds(w, 1) for w in (1, 4, 8, 16)] == [0.05, 0.05, 0.05, 0.08]
    assert recommend(upside_down, [0.0] * 15).gamma == 0
    assert predict_speedup(upside_down, [0.5], 1) == pytest.approx(1.5)


def test_noise_is_seen():
    quiet = curves(concave)
    assert not quiet.is_noisy
    first, *rest = quiet.passes
    scattered = first.model_copy(update={"high_seconds": first.seconds * 1.5})
    assert quiet.model_copy(update={"passes": (scattered, *rest)}).is_noisy
    upside_down = curves(lambda w, b: 0.05 if w == 1 else 0.03)
    assert upside_down.is_noisy


def test_curves_survive_a_file(tmp_path):
    machine = curves(concave, lambda gamma, batch: 0.01, batches=(1, 2))
    file = tmp_path / "deep" / "curves.json"
    machine.write(file)
    assert CostCurves.read(file) == machine
    assert [f.name for f in file.parent.iterdir()] == ["curves.json"]


def test_a_file_that_is_something_else_is_refused(tmp_path):
    file = tmp_path / "curves.json"
    with pytest.raises(ConfigError, match=r"doctor --curves"):
        CostCurves.read(file)
    file.write_text('{"schema_version": 2}')
    with pytest.raises(ConfigError, match=r"curves\.json: schema_version: expected 1, got 2"):
        CostCurves.read(file)
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"curves\.json: expected JSON"):
        CostCurves.read(file)
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match="LENITY_CACHE"):
        curves(flat).write(tmp_path / "taken" / "curves.json")
