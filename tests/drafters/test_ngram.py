import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lenity.drafters import drafter
from lenity.drafters.base import DraftContext
from lenity.drafters.ngram import SuffixIndex
from lenity.errors import ConfigError
from lenity.sampling import Coins, Sampling
from tests.drafters.rig import drafted
from tests.toys import cycle_model

TOY = cycle_model(16)


def rescan(ids, min_match, max_match):
    """The loop of the module's docstring: every suffix length, every place, every time."""
    for n in range(max_match, min_match - 1, -1):
        for end in range(len(ids) - 1, n - 1, -1):
            if ids[end - n : end] == ids[len(ids) - n :]:
                return end, n
    return 0, 0


def twin(ids, limit, min_match, max_match):
    end, n = rescan(ids, min_match, max_match)
    text = list(ids)
    for i in range(limit if n else 0):
        text.append(text[end + i])
    return text[len(ids) :]


def open_rows(spec, *prompts, target=TOY):
    session = drafter(spec).open(target, target.new_cache())
    for prompt in prompts:
        session.admit(tuple(prompt), None)
    return session


def context(rows, limits, temperature=0.0):
    return DraftContext(
        token_ids=rows,
        limits=limits,
        sampling=[Sampling(temperature=temperature)] * len(rows),
        coins=Coins([0] * len(rows), [len(row) for row in rows]),
    )


@given(
    pieces=st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=6),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)).map(sorted),
)
def test_the_index_finds_what_a_rescan_finds(pieces, sizes):
    index, ids = SuffixIndex(*sizes), []
    for piece in pieces:
        ids += piece
        index.extend(ids)
        assert index.lookup(ids) == rescan(ids, *sizes)


@given(
    prompt=st.lists(st.integers(0, 2), min_size=1, max_size=12),
    pieces=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=5),
    limit=st.integers(0, 7),
)
def test_a_session_drafts_what_the_scalar_loop_drafts(prompt, pieces, limit):
    session, ids = open_rows("ngram:min_match=1,max_match=3", prompt), list(prompt)
    for piece in [[], *pieces]:
        ids += piece
        draft = session.propose(context([ids], [limit]))
        assert drafted(draft)[0] == twin(ids, limit, 1, 3)


def test_the_longest_match_wins_over_a_later_shorter_one():
    #      1 2 3 -> 9 early; 2 3 -> 7 and 3 -> 5 later
    ids = [1, 2, 3, 9, 2, 3, 7, 3, 5, 1, 2, 3]
    assert drafted(open_rows("ngram:min_match=1", ids).propose(context([ids], [1]))) == [[9]]


def test_among_equal_matches_the_most_recent_wins():
    ids = [1, 2, 8, 1, 2, 9, 1, 2]
    assert drafted(open_rows("ngram", ids).propose(context([ids], [1]))) == [[9]]


def test_periodic_text_goes_on_into_the_draft():
    ids = [7, 1, 2, 3, 1, 2, 3, 1, 2]
    draft = open_rows("ngram", ids).propose(context([ids], [8]))
    assert drafted(draft) == [[3, 1, 2, 3, 1, 2, 3, 1]]


def test_no_match_is_no_draft():
    rows = [[1, 2, 3, 4], [5]]
    draft = open_rows("ngram:min_match=1", *rows).propose(context(rows, [4, 4]))
    assert draft.lengths.tolist() == [0, 0]
    assert draft.gamma == 0


def test_a_match_shorter_than_the_shortest_is_none():
    ids = [3, 1, 4, 3]
    assert drafted(open_rows("ngram:min_match=2", ids).propose(context([ids], [2]))) == [[]]
    assert drafted(open_rows("ngram:min_match=1", ids).propose(context([ids], [2]))) == [[1, 4]]


def test_confidence_is_match_length_over_the_longest():
    rows = [[1, 2, 3, 1, 2], [1, 2, 3, 4, 5, 1, 2, 3, 4], [1, 2]]
    draft = open_rows("ngram:max_match=4", *rows).propose(context(rows, [2, 1, 2]))
    assert draft.confidence.tolist() == [[0.5, 0.5], [1.0, 0.0], [0.0, 0.0]]


def test_at_a_temperature_it_is_a_point_mass():
    ids = [1, 2, 3, 1, 2]
    session = open_rows("ngram", ids)
    hot, cold = session.propose(context([ids], [2], 1.5)), session.propose(context([ids], [2]))
    assert hot.probs is cold.probs is None
    assert torch.equal(hot.token_ids, cold.token_ids)


@pytest.mark.parametrize("hole", [3, 40], ids=["unknown", "outside"])
def test_a_draft_ends_before_an_id_that_has_no_token(hole):
    target = cycle_model(16, unknown_ids=[3])
    ids = [1, 2, 5, hole, 5, 1, 2]
    assert drafted(open_rows("ngram", ids, target=target).propose(context([ids], [4]))) == [[5]]


def test_a_round_looks_at_new_tokens_only():
    class Counting(list):
        reads = 0

        def __getitem__(self, item):
            Counting.reads += 1
            return super().__getitem__(item)

    ids = Counting([1, 2, 3, 4] * 500)
    session = open_rows("ngram:max_match=4", ids)
    Counting.reads = 0
    for _ in range(10):
        session.propose(context([ids], [4]))
        ids += [1, 2]
    assert Counting.reads < 10 * (2 * 3 + 3 + 4 + 5)  # index, look up, copy


def test_the_shortest_match_may_not_be_longer_than_the_longest():
    with pytest.raises(ConfigError, match="min_match must not exceed max_match=3, got 5"):
        drafter("ngram:min_match=5,max_match=3")
