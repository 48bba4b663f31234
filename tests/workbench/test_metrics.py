import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lenity.engine.acceptance import Acceptance
from lenity.errors import ProtocolError
from lenity.types import RoundRecord
from lenity.workbench.metrics import (
    RATES,
    Agreement,
    Counts,
    acceptance_by_position,
    agreement_lengths,
    rate,
    rates,
    regret_histogram,
    relative_blocks,
    relative_calls,
    wall_share,
)
from lenity.workbench.records import RelaxedToken
from tests.workbench.handmade import a_round, failed, request, text, timed

ONE = request(("axr", 4), ("aaaab", 4), ("sss", 3), ("p", 0), ("aa", 4))
"""14 tokens in 5 rounds, 4 target passes; the last round ends at a stop among its drafts."""
OTHER = request(("r", 2), item_id="2")


def test_counts_are_sums_of_rounds_and_kinds():
    counts = Counts.of([ONE, failed(item_id="3")])
    expected = {
        "requests": 1,
        "failed": 1,
        "covered": 1,
        "rounds": 5,
        "target_passes": 4,
        "draft_passes": 4,
        "drafted": 15,
        "evaluated": 12,
        "accepted": 8,
        "emitted": 14,
        "relaxed": 1,
        "recovered": 1,
        "bonus": 1,
        "skipped": 3,
        "plain": 1,
        "regret_units": 1 << 19,
    }
    assert counts.model_dump(include=expected) == expected
    assert counts.regret == 0.5
    assert Counts.of([]) == Counts()


def test_counts_add_up():
    assert Counts.of([ONE]) + Counts.of([OTHER, failed()]) == Counts.of([ONE, OTHER, failed()])


def test_what_does_not_add_up_is_not_counted():
    with pytest.raises(ProtocolError, match="counters of this run cannot be trusted"):
        Counts.of([ONE.model_copy(update={"token_ids": (1,)})])


def test_the_seconds_of_a_batch_add_up_to_the_machines():
    # three rounds of 1 s for two requests, one more of 2 s for the one that is left
    shared = [a_round("p", 0, batch_size=2, draft_seconds=0.25, target_seconds=0.75)] * 3
    last = a_round("p", 0, verify_seconds=1.5, commit_seconds=0.5)
    short = text(1, 2, 3, rounds=tuple(shared), wall_seconds=3.3)
    long = text(1, 2, 3, 4, rounds=(*shared, last), wall_seconds=5.5, item_id="2")
    counts = Counts.of([short, long])
    assert counts.decode_seconds == pytest.approx(5.0)
    assert (counts.draft_seconds, counts.target_seconds) == (0.75, 2.25)
    assert (counts.verify_seconds, counts.commit_seconds) == (1.5, 0.5)
    # 3.3 * 1/2 + 5.5 * (1.5 + 2) / 5: a tenth lies between rounds in both
    assert counts.wall_seconds == pytest.approx(1.65 + 3.85)
    assert wall_share(timed(2.0)) == 2.0
    assert wall_share(text(1, wall_seconds=2.0)) == 2.0


def test_rates_are_made_from_sums_and_from_requests():
    found = rates([ONE, OTHER, failed(item_id="3")])
    assert set(found) == set(RATES)
    accepted = found["acceptance_rate"]
    assert accepted.pooled == 8 / 14
    assert accepted.per_request == (8 / 12 + 0 / 2) / 2
    assert (accepted.num_requests, accepted.num_failed) == (2, 1)
    assert (accepted.numerator, accepted.denominator) == ("accepted", "evaluated")
    assert found["tokens_per_round"].pooled == 15 / 6
    assert found["tokens_per_target_pass"].pooled == 15 / 5
    assert found["accepted_per_draft"].pooled == 8 / 5
    assert found["relaxed_share"].pooled == 1 / 15
    assert found["skipped_share"].pooled == 3 / 15
    assert found["coverage"].pooled == found["coverage"].per_request == 1 / 2
    assert found["regret_per_request"].pooled == 0.25
    assert found["regret_per_relaxed"].num_requests == 1


def test_a_rate_without_a_denominator_is_none():
    found = rate("acceptance_rate", [text(1)])
    assert (found.pooled, found.per_request, found.num_requests) == (None, None, 0)
    assert rate("tokens_per_second", [text(1)]).pooled is None


def test_speed_is_told_with_and_without_the_prompt():
    records = [timed(2.0), timed(2.0, item_id="2")]
    assert rate("tokens_per_second", records).pooled == pytest.approx(8 / 4)
    assert rate("decode_tokens_per_second", records).pooled == pytest.approx(8 / 2)
    assert rate("target_seconds_per_token", records).pooled == pytest.approx(2 / 8)


def test_every_rate_names_fields_of_counts():
    for ratio in RATES.values():
        assert hasattr(Counts(), ratio.numerator)
        assert hasattr(Counts(), ratio.denominator)
        assert ratio.of(Counts()) is None


def test_relative_calls_and_blocks_are_normalised_by_strict():
    strict = Counts.of([request(("aar", 3), ("aaab", 3))])
    skipping = Counts.of([request(("sss", 3), ("aaab", 3), ("p", 0))])
    assert relative_calls(skipping, strict) == pytest.approx((2 / 8) / (2 / 7))
    assert relative_blocks(skipping, strict) == pytest.approx((2 / 8) / (2 / 7))
    assert relative_calls(strict, strict) == relative_blocks(strict, strict) == 1
    plain = Counts.of([text(1, 2)])
    assert relative_blocks(strict, plain) is None
    assert relative_calls(Counts(), strict) is None


def test_acceptance_by_position_leaves_undecided_positions_out():
    rounds = [("aar", 4), ("aaaab", 4), ("r", 2), ("aa", 4), ("p", 0)]
    positions = acceptance_by_position([request(*rounds), failed()])
    judged = [(p.judged, p.reached, p.accepted) for p in positions]
    # the fourth round stopped at its second draft token: positions 2 and 3 were not decided
    assert judged == [(4, 4, 3), (4, 3, 3), (2, 2, 1), (2, 1, 1)]
    assert (positions[2].rate, positions[2].conditional) == (1 / 2, 1 / 2)
    assert (positions[3].rate, positions[3].conditional) == (1 / 2, 1)
    assert acceptance_by_position([text(1)]) == acceptance_by_position([]) == ()


def test_a_position_nothing_reached_has_no_rate():
    position = acceptance_by_position([request(("r", 2))])[1]
    assert (position.judged, position.rate, position.conditional) == (1, 0, None)
    # a draft of 2 whose first token was the stop: position 1 was not judged at all
    assert acceptance_by_position([request(("a", 2))])[1].rate is None


ROUNDS = st.tuples(st.integers(1, 5), st.integers(0, 5), st.booleans()).map(
    lambda t: ("a" * min(t[:2]) + ("" if t[2] and min(t[:2]) else "r"), t[0])
)


@given(st.lists(ROUNDS, max_size=8))
def test_positions_are_counted_as_the_engine_counts_them(rounds):
    record = request(*rounds)
    names = [field.name for field in dataclasses.fields(RoundRecord) if field.name != "seconds"]
    engine = [RoundRecord(**{name: getattr(r, name) for name in names}) for r in record.rounds]
    theirs = [(p.judged, p.reached, p.accepted) for p in Acceptance.of(engine).positions]
    ours = [(p.judged, p.reached, p.accepted) for p in acceptance_by_position([record])]
    assert ours == theirs


def test_agreement_is_over_rounds_that_commit_a_draft_token():
    agreement = Agreement.of_lengths([4, 3, 0, 2], [2, 5, 1, 2])
    assert (agreement.rounds, agreement.kept, agreement.agreed, agreement.full) == (3, 9, 7, 2)
    assert (agreement.strict_token, agreement.full_prefix) == (7 / 9, 2 / 3)
    assert Agreement().strict_token is Agreement().full_prefix is None
    with pytest.raises(ProtocolError, match="one strict length for each kept one, got 1 and 2"):
        Agreement.of_lengths([1, 2], [1])


def test_strict_lengths_are_read_off_the_first_relaxed_token():
    assert agreement_lengths(request(("axar", 4), ("aab", 2), ("r", 1), ("xa", 3))) == (
        [3, 2, 0, 2],
        [1, 2, 0, 0],
    )
    strict = Agreement.of_lengths(*agreement_lengths(request(("aar", 3), ("aaab", 3))))
    assert strict.strict_token == strict.full_prefix == 1
    with pytest.raises(ProtocolError, match="no shadow verifier looked at"):
        agreement_lengths(ONE)


def test_strict_lengths_of_skipped_rounds_are_the_shadow_verifiers():
    """Skipped K = 3 of which strict keeps 1, K = 2 of 4 it would keep; a pass between them."""
    rounds = [
        a_round("sss", 4, shadow_accepted=1),
        a_round("axr", 4),
        a_round("ss", 4, shadow_accepted=4),
    ]
    spent = (RelaxedToken(position=4, regret=0.5),)
    record = request(*rounds, kinds="sssaxrss", token_ids=tuple(range(8)), relaxed=spent)
    assert agreement_lengths(record) == ([3, 2, 2], [1, 1, 4])
    assert Agreement.of_lengths(*agreement_lengths(record)).strict_token == 4 / 7


def test_regret_is_binned_against_the_budget():
    spent = [request(("x" * n + "r", 8), regret=1.0, item_id=str(n)) for n in (1, 1, 4, 5)]
    records = [*spent, text(1), failed()]
    histogram = regret_histogram(records, budget=4.0, bins=4)
    assert histogram.edges == (0, 1, 2, 3, 4)
    assert histogram.counts == (1, 2, 0, 1)  # the budget itself is in the last bin
    assert histogram.num_over == 1
    for budget in (None, np.inf):
        unbounded = regret_histogram(records, budget, bins=5)
        assert (unbounded.edges[-1], sum(unbounded.counts), unbounded.num_over) == (5, 5, 0)
    assert regret_histogram([text(1)], budget=0.0).counts[0] == 1
    assert sum(regret_histogram([]).counts) == 0
