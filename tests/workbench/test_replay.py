"""Replay: exact where nothing is relaxed or the text does not care, and a scalar twin."""

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lenity.errors import ConfigError, ProtocolError
from lenity.policies import POLICIES, policy
from lenity.workbench.replay import Prediction, Replayer, replayable
from tests.reference.asd import asd
from tests.workbench.traces import Tape, by_hand, run, tables, tiny

PROMPTS = [[t] for t in range(12)]
SETTINGS = {"gamma": 4, "max_new_tokens": 30}
FREE = "asd:budget=inf,gate=inf,block_cap=none"


@pytest.fixture(scope="module")
def strict():
    """Generations and traces of a strict run, laws compared."""
    return run(tiny(), PROMPTS, divergence=True, **SETTINGS)


def recorded(outs):
    return {
        "tokens": tuple(len(out.token_ids) for out in outs),
        "passes": tuple(float(out.num_target_passes) for out in outs),
        "relaxed": (0.0,) * len(outs),
        "regret": (0.0,) * len(outs),
    }


@pytest.mark.parametrize("name", POLICIES.names())
def test_at_its_strict_limit_a_rule_is_the_recorded_run(strict, name):
    outs, traces = strict
    rule = policy(name).strict_limit()
    assert Replayer(traces).predict(rule) == Prediction(policy=rule.spec, **recorded(outs))


@pytest.mark.parametrize("ending", [{"eos": (3, 7)}, {}])
def test_requests_that_stop_by_themselves_are_replayed_to_their_end(ending):
    outs, traces = run(tiny(**ending), PROMPTS, **SETTINGS)
    assert any(out.finish_reason == "stop" for out in outs) == bool(ending)
    assert Replayer(traces).predict("strict") == Prediction(policy="strict", **recorded(outs))


# The scalar twin


def walk(trace, ids, table, **knobs):
    """Walk one request round by round with the scalar ASD; return W, E, X and C of the module."""
    walked = emitted = relaxed = spent = 0
    rounds = list(trace.rounds)
    while rounds:
        seen = rounds[0]
        rows = [table[token].tolist() for token in (ids[seen.start - 1], *seen.draft_ids)]
        is_open = [i not in (*seen.guarded, *seen.closed) for i in range(len(seen.draft_ids))]
        kept, _, wrong = asd(
            rows, list(seen.draft_ids), spent_units=spent, may_relax=is_open, **knobs
        )
        total = kept + 1
        for position in sorted(seen.ending, reverse=True):
            if position < kept:
                kept = total = position + 1
        walked, emitted = walked + 1, emitted + total
        relaxed += sum(i < kept for i in wrong)
        spent += sum(round(seen.regret[i] * 2**20) for i in wrong if i < kept)
        rounds = [r for r in rounds[1:] if r.start >= seen.start + total]
    return walked, emitted, relaxed, spent / 2**20


@settings(max_examples=15)
@given(
    st.integers(0, 50),
    st.sampled_from([0.3, 1.0, 3.0]),
    st.fixed_dictionaries(
        {
            "budget": st.sampled_from([0.0, 0.5, 2.0, 8.0, math.inf]),
            "gate": st.sampled_from([0.0, 0.25, 1.0, math.inf]),
            "block_cap": st.none() | st.integers(0, 2),
        }
    ),
    st.booleans(),
)
def test_equals_the_scalar_walk(seed, noise, knobs, has_stops):
    model = {"eos": (3, 7)} if has_stops else {}
    prompts = [[0], [5], [9]]
    outs, traces = run(tiny(seed=seed, noise=noise, **model), prompts, gamma=4, max_new_tokens=20)
    table, _ = tables(seed, noise=noise)
    found = Replayer(traces).predict(policy("asd", **knobs))
    for i, (out, trace) in enumerate(zip(outs, traces, strict=True)):
        ids = (*out.prompt_ids, *out.token_ids)
        walked, emitted, relaxed, nats = walk(trace, ids, table, **knobs)
        scale = len(out.token_ids) / emitted
        assert found.tokens[i] == len(out.token_ids)
        assert found.passes[i] == pytest.approx(walked * scale)
        assert found.relaxed[i] == pytest.approx(relaxed * scale)
        assert found.regret[i] == pytest.approx(min(nats * scale, knobs["budget"]))


# Against runs that really happened


COUNT, SIZE = 24, 128


@pytest.fixture(scope="module")
def tape():
    """One text; request i begins at i * SIZE. Mismatches come in bursts of about eight."""
    draw, size = random.Random(20), COUNT * SIZE + 8
    rates = [draw.choice((0.55, 0.05)) for _ in range(0, size, 8)]
    nats = [min(draw.expovariate(1.0), 8.0) for _ in range(size)]
    made = Tape(nats, [draw.random() < rates[t // 8] for t in range(size)])
    prompts = [[0] * (i * SIZE + 1) for i in range(COUNT)]
    _, traces = run(made.decoder("strict"), prompts, **TAPE_SETTINGS)
    return made, prompts, Replayer(traces)


TAPE_SETTINGS = {"gamma": 5, "max_new_tokens": SIZE}


@pytest.mark.parametrize(
    ("rule", "bound"),
    [(FREE, 0.03), ("asd", 0.03), ("asd:budget=2,gate=1", 0.03), ("lenience:ratio=0.5", 0.03)],
)
def test_where_the_text_does_not_care_the_prediction_is_what_was_measured(tape, rule, bound):
    """First order is exact on a tape; what is left is the estimator's own bias and noise."""
    made, prompts, replayer = tape
    outs = made.decoder(rule).generate(prompts, **TAPE_SETTINGS)
    measured = COUNT * SIZE / sum(out.num_target_passes for out in outs)
    strict = replayer.predict("strict").tokens_per_target_pass
    found = replayer.predict(rule)
    assert measured > 1.05 * strict, "there is something to predict"
    assert found.tokens_per_target_pass == pytest.approx(measured, rel=bound)
    spent = sum(out.regret_spent for out in outs) / COUNT
    assert found.regret_per_request == pytest.approx(spent, rel=2 * bound)


def test_a_first_round_is_what_it_would_be(strict):
    """Before anything is relaxed the prediction is no prediction: one round, every rule."""
    _, traces = strict
    heads = [t.model_copy(update={"rounds": t.rounds[:1]}) for t in traces]
    for rule in ("asd:gate=1", "margin:ratio=0.5", "fuzzy:threshold=0.4", "top_k", "priced"):
        outs, _ = run(tiny(rule), PROMPTS, **SETTINGS)
        found = Replayer(heads).predict(rule)
        measured = [(out.rounds[0].emitted, out.rounds[0].relaxed) for out in outs]
        walked = [
            (round(tokens / passes), round(relaxed / passes))
            for tokens, passes, relaxed in zip(
                found.tokens, found.passes, found.relaxed, strict=True
            )
        ]
        assert walked == measured, rule


# Written out


def test_a_surplus_skips_the_rounds_it_covers():
    """The first keeps 3 where strict kept 1: places 1 and 2 are passed, the round at 4 is next."""
    trace = by_hand(
        ((0.5, None, None), 1), ((1.0, None, None), 1), ((None, None, 4.0), 3), ((9.0,), 1)
    )
    found = Replayer([trace]).predict("asd:gate=inf,block_cap=1,budget=0.75")
    # E = 4, then the round at 5 (W = 2): N = 6, E = 4 + 1
    assert found.passes == pytest.approx((2 * 6 / 5,))
    assert found.regret == (pytest.approx(0.5 * 6 / 5),)
    assert found.relaxed == pytest.approx((6 / 5,))
    assert found.coverage == 1
    assert found.relaxed_share == pytest.approx(1 / 5)
    assert found.tokens_per_target_pass == pytest.approx(2.5)
    # what the places in between are taken to cost does not go beyond the budget either
    assert Replayer([trace]).predict("asd:gate=inf,budget=0.5").regret == (0.5,)


def test_a_budget_is_carried_through_a_request_and_not_beyond():
    rounds = [((0.5, None), 1)] * 6
    one, other = by_hand(*rounds), by_hand(*rounds, item_id="2")
    found = Replayer([one, other]).predict("asd:gate=inf,budget=1.25")
    assert found.regret[0] == found.regret[1] <= 1.25
    alone = Replayer([one]).predict("asd:gate=inf,budget=1.25")
    assert alone.passes[0] == found.passes[0] == found.passes[1]
    # two mismatches fit; W = 2 rounds of 3 cover all six places
    assert found.passes == (2.0, 2.0)
    assert found.regret == (1.0, 1.0)


def test_a_kept_token_that_ends_the_request_ends_its_round():
    trace = by_hand(((0.5, None, None), 1))
    ending = trace.rounds[0].model_copy(update={"ending": (1,)})
    found = Replayer([trace.model_copy(update={"rounds": (ending,)})]).predict(FREE)
    assert found.passes == (0.5,)  # two tokens and no token of the target: N = 1, E = 2


def test_guarded_and_closed_positions():
    trace = by_hand(((0.5, None, None), 1))
    for change, special, phase in [({}, 4, 4), ({"guarded": (0,)}, 1, 4), ({"closed": (0,)}, 1, 1)]:
        seen = trace.model_copy(update={"rounds": (trace.rounds[0].model_copy(update=change),)})
        replayer = Replayer([seen])
        assert replayer.predict(FREE).passes == (1 / special,)
        assert replayer.predict(f"{FREE},relax_special=true").passes == (1 / phase,)


def test_a_smaller_gamma_cuts_blocks_and_moves_the_gate():
    """r / K: .75 / 3 passes a gate of .25, .75 / 2 does not."""
    trace = by_hand(((0.75, None, None), 1), ((None, None, None), 4))
    replayer = Replayer([trace])
    assert replayer.predict("strict", gamma=3).tokens_per_target_pass == 2.5
    assert replayer.predict("strict", gamma=1).tokens_per_target_pass == pytest.approx(1.5)
    assert replayer.predict("asd", gamma=3).relaxed_share > 0
    assert replayer.predict("asd", gamma=2).relaxed_share == 0
    for gamma in (0, 4):
        with pytest.raises(ConfigError, match="gamma from 1 to 3"):
            replayer.predict("strict", gamma=gamma)


def test_more_relaxation_needs_fewer_passes_at_a_price(strict):
    replayer = Replayer(strict[1])
    found = [replayer.predict(f"asd:gate=inf,budget={budget}") for budget in (0, 1, 4, 16)]
    passes = [p.tokens_per_target_pass for p in found]
    assert passes == sorted(passes)
    assert passes[0] < passes[-1]
    prices = [p.regret_per_request for p in found]
    assert prices == sorted(prices)
    assert prices[0] == 0


# What cannot be replayed


def test_what_is_no_strict_run_is_refused():
    with pytest.raises(ProtocolError, match="strict run at temperature 0 for replay"):
        Replayer([by_hand(((1.0,), 1), policy="asd")])
    with pytest.raises(ProtocolError, match="strict run"):
        Replayer(run(tiny(), [[0]], temperature=0.9, **SETTINGS)[1])


def test_counts_that_strict_does_not_make_are_refused():
    seen = by_hand(((1.0, None), 1)).rounds[0]
    wrong = by_hand(((None, None), 3)).model_copy(
        update={"rounds": (seen.model_copy(update={"accepted": 1, "emitted": 2}),)}
    )
    with pytest.raises(ProtocolError, match=r"got 1 tokens and not 2 in round 0"):
        Replayer([wrong]).predict("strict")


def test_what_was_not_traced_is_asked_for(strict):
    _, traces = run(tiny(), PROMPTS, **SETTINGS)
    with pytest.raises(ProtocolError, match=r"with divergence for fuzzy.*Tracer\(divergence=True"):
        Replayer(traces).predict("fuzzy")
    assert Replayer(strict[1]).predict("fuzzy:threshold=inf").relaxed_share > 0
    bare = by_hand(((0.5, None), 1))
    for rule in ("margin", "top_k"):
        with pytest.raises(ProtocolError, match="draft_rank"):
            Replayer([bare]).predict(rule)


def test_nothing_is_predicted_from_nothing():
    found = Replayer([]).predict("asd")
    assert found.tokens == ()
    assert found.tokens_per_target_pass == found.regret_per_request == found.coverage == 0
    empty = Replayer([by_hand()]).predict("asd")
    assert (empty.passes, empty.relaxed_share) == ((0.0,), 0)


def test_a_prediction_says_so_and_survives_the_disk(strict):
    found = Replayer(strict[1]).predict("asd:gate=1")
    text = found.model_dump_json()
    assert json.loads(text)["label"] == "predicted"
    assert Prediction.model_validate_json(text) == found


def test_of_a_run_strict_is_replayed_where_it_drafted_most(strict):
    """A sweep's file has the traces of every arm, and of gamma one strict for each value."""
    first = strict[1][0]
    short = first.model_copy(update={"arm": "strict-2", "gamma": 2})
    relaxed = first.model_copy(update={"arm": "asd-2", "policy": "asd", "gamma": 9})
    assert replayable([relaxed, short, first, short]) == [first]
    assert replayable([relaxed]) == [relaxed]  # to be refused by name
    assert replayable([first.model_copy(update={"rounds": ()})]) == []
