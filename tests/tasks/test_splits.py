from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lenity.errors import ConfigError, ProtocolError
from lenity.tasks.base import Item
from lenity.tasks.splits import check_disjoint, is_discovery, split

TEXTS = st.lists(st.text("abcAB \n", min_size=1).filter(str.strip), max_size=60)


def items_of(texts):
    return [Item(id=str(i), prompt=text) for i, text in enumerate(texts)]


def hashes(items):
    return {item.split_hash for item in items}


@given(TEXTS, st.integers(0, 5), st.floats(0, 1))
def test_no_question_is_on_both_sides_and_none_is_lost(texts, seed, share):
    items = items_of(texts)
    parts = split(items, seed=seed, share=share)
    assert not hashes(parts.discovery) & hashes(parts.audit)
    assert hashes(parts.discovery) | hashes(parts.audit) == hashes(items)
    kept = [item.id for item in (*parts.discovery, *parts.audit)]
    assert sorted([*kept, *parts.duplicates], key=int) == [item.id for item in items]
    assert len(kept) == len(hashes(items))


@given(TEXTS, st.randoms(use_true_random=False))
def test_a_questions_side_depends_on_nothing_but_the_question(texts, draw):
    items = items_of(texts)
    shuffled = list(items)
    draw.shuffle(shuffled)
    whole, other = split(items), split(shuffled)
    assert hashes(whole.discovery) == hashes(other.discovery)
    half = split(items[::2])
    assert hashes(half.discovery) <= hashes(whole.discovery)
    assert hashes(half.audit) <= hashes(whole.audit)


@given(TEXTS, st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_only_moves_questions_into_discovery(texts, one, other):
    small, large = sorted((one, other))
    items = items_of(texts)
    assert hashes(split(items, share=small).discovery) <= hashes(
        split(items, share=large).discovery
    )


def test_the_ends_of_the_share():
    items = items_of("abc")
    assert split(items, share=0.0).discovery == ()
    assert split(items, share=1.0).audit == ()
    with pytest.raises(ConfigError, match="from 0 to 1"):
        split(items, share=1.5)


def test_the_share_is_the_share_and_seeds_differ():
    items = items_of(f"question {i}" for i in range(2000))
    parts = split(items, share=0.3)
    assert 500 < len(parts.discovery) < 700  # 600 +- 5 sigma
    assert hashes(parts.discovery) != hashes(split(items, share=0.3, seed=1).discovery)


def test_the_function_is_fixed():
    """Sides of recorded runs must stay: below one half is below 0x80 in the first byte."""
    sides = [is_discovery("0123456789abcdef", seed=seed, share=0.5) for seed in range(8)]
    firsts = [sha256(f"{seed}:0123456789abcdef".encode()).digest()[0] for seed in range(8)]
    assert sides == [first < 128 for first in firsts]
    assert len(set(sides)) == 2


def test_an_audit_on_discovery_prompts_is_refused():
    items = items_of(["a", "b", "c", "d", "e"])
    check_disjoint(hashes(items[:2]), items[2:])
    with pytest.raises(ProtocolError, match=r"got 4 of discovery: 1, 2, 3, …"):
        check_disjoint(hashes(items), items[1:])
    with pytest.raises(ProtocolError, match=r"got 1 of discovery: 0\. Take"):
        check_disjoint(hashes(items_of([" A "])), items)
