from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lenity.cli.figures import Totals, ratio, repeated_ngrams
from lenity.types import UNITS_PER_NAT, FinishReason, Generation, RoundRecord, StageSeconds


def scalar_repeats(ids: list[int], n: int) -> tuple[int, int]:
    seen, repeated, total = [], 0, 0
    for start in range(len(ids)):
        gram = ids[start : start + n]
        if len(gram) < n:
            break
        total += 1
        repeated += gram in seen
        seen.append(gram)
    return repeated, total


@given(st.lists(st.integers(0, 2), max_size=24), st.integers(1, 5))
def test_repeated_ngrams_equal_their_scalar_loop(ids, n):
    assert repeated_ngrams(ids, n) == scalar_repeats(ids, n)


@pytest.mark.parametrize(
    ("ids", "counts"),
    [([], (0, 0)), ([1, 2, 3], (0, 0)), ([1, 2, 3, 4] * 2, (1, 5)), ([7] * 6, (2, 3))],
)
def test_repeated_4grams(ids, counts):
    assert repeated_ngrams(ids) == counts


def test_a_ratio_of_nothing_is_zero():
    assert ratio(3, 0) == 0
    assert ratio(3, 2) == 1.5


ROUND = RoundRecord(
    drafted=5,
    evaluated=4,
    accepted=3,
    emitted=4,
    relaxed=1,
    regret_units=UNITS_PER_NAT // 2,
    seconds=StageSeconds(draft=0.25, target=0.5),
)
GENERATION = Generation(
    prompt_ids=(1,),
    token_ids=(7,) * 8,
    text=None,
    finish_reason=FinishReason.LENGTH,
    stop_match=None,
    receipt=(),
    rounds=(ROUND, ROUND),
    requested_policy="asd",
    effective_policy="asd",
    drafter="ngram",
    gamma=5,
)


def test_totals_add_up_and_rates_are_made_last():
    other = replace(GENERATION, token_ids=(1, 2, 3, 4), rounds=(ROUND,))
    totals = Totals.of([GENERATION, other], seconds=4.0)
    assert (totals.requests, totals.rounds, totals.target_passes, totals.emitted) == (2, 3, 3, 12)
    assert totals.tokens_per_target_pass == 4
    assert totals.acceptance_rate == 9 / 12
    assert totals.tokens_per_second == 3
    assert (totals.drafted, totals.evaluated, totals.accepted) == (15, 12, 9)
    assert (totals.relaxed, totals.skipped, totals.regret_spent) == (3, 0, 1.5)
    assert (totals.repeated, totals.ngrams) == (4, 6)
    assert totals.repeated_rate == 4 / 6
    assert (totals.draft_seconds, totals.target_seconds) == (0.75, 1.5)


def test_totals_of_nothing_are_zero():
    totals = Totals.of([])
    assert totals.tokens_per_target_pass == totals.repeated_rate == totals.tokens_per_second == 0
