"""Omega against its sentence, and on blocks written out."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lenity.workbench.opportunity import TAUS, Opportunity, opportunity
from tests.workbench.traces import by_hand, run, tiny

INF = float("inf")
blocks = st.lists(
    st.lists(st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0, INF]), max_size=6), max_size=8
)


def strict(block):
    """A block with what strict emits of it."""
    size = len(block)
    first = next((i for i, r in enumerate(block) if r is not None), size)
    return tuple(block), first + 1


def omega(rounds, tau, p):
    """Share of mismatches with r <= tau, i + p <= K, and p exact draft tokens behind."""
    hits = total = 0
    for block in rounds:
        for i, regret in enumerate(block, start=1):
            if regret is None:
                continue
            total += 1
            behind = block[i : i + p]
            hits += regret <= tau and i + p <= len(block) and all(r is None for r in behind)
    return hits, total


@given(blocks)
def test_equals_the_scalar_loop(rounds):
    found = opportunity([by_hand(*map(strict, rounds))] if rounds else [])
    assert found.taus == TAUS
    for tau, row in zip(found.taus, found.hits, strict=True):
        for p, hit in zip(found.num_following, row, strict=True):
            assert (hit, found.num_mismatches) == omega(rounds, tau, p)
    assert found.num_positions == sum(map(len, rounds))
    assert found.num_rounds == sum(map(bool, rounds))


def test_written_out():
    """K = 4. Mismatches: .5 then two exact, 1 at the end; a tie then nothing; a masked one."""
    rounds = [[None, 0.5, None, None], [0.5, None, None, 1.0], [0.0], [INF, None]]
    found = opportunity([by_hand(*map(strict, rounds))], taus=(0.0, 0.5, INF))
    assert found.num_following == (0, 1, 2, 3)
    assert found.num_mismatches == 5
    assert found.hits == ((1, 0, 0, 0), (3, 2, 2, 0), (5, 3, 2, 0))
    assert found.shares[1] == (0.6, 0.4, 0.4, 0.0)


@given(blocks)
def test_it_grows_with_tau_and_falls_with_p(rounds):
    hits = opportunity([by_hand(*map(strict, rounds))] if rounds else []).hits
    for lower, higher in pairwise(hits):
        assert all(a <= b for a, b in zip(lower, higher, strict=True))
    for row in hits:
        assert list(row) == sorted(row, reverse=True)


@given(blocks, blocks)
def test_maps_add_up(one, other):
    grid = {"taus": (0.0, 1.0), "num_following": (0, 2)}
    parts = [[by_hand(*map(strict, rounds))] if rounds else [] for rounds in (one, other)]
    both = opportunity([*parts[0], *parts[1]], **grid)
    assert opportunity(parts[0], **grid) + opportunity(parts[1], **grid) == both


def test_other_grids_do_not_add_up():
    one = opportunity([], taus=(0.0,), num_following=(0,))
    with pytest.raises(ValueError, match="different grids"):
        one + opportunity([], taus=(0.5,), num_following=(0,))
    with pytest.raises(ValidationError, match="a row a tau"):
        Opportunity.model_validate({**one.model_dump(), "taus": (0.0, 1.0)})


def test_without_a_mismatch_there_is_no_share():
    found = opportunity([by_hand(((None, None), 3))])
    assert found.shares is None
    assert found.num_positions == 2


def test_a_drafter_like_its_target_offers_more():
    near, far = (
        opportunity(run(tiny(noise=noise), [[t] for t in range(12)], gamma=4, max_new_tokens=24)[1])
        for noise in (0.3, 4.0)
    )
    assert near.num_mismatches < far.num_mismatches
    assert near.shares[4][0] > far.shares[4][0]
    assert Opportunity.model_validate_json(near.model_dump_json()) == near
