from hypothesis import given
from hypothesis import strategies as st

from lenity.workbench.repetition import (
    is_truncated,
    longest_loop,
    longest_loop_share,
    repeated_ngram_rate,
    summarise_texts,
)
from tests.workbench.handmade import failed, text


def test_the_ngram_rate_is_the_share_of_those_seen_before():
    assert repeated_ngram_rate([1, 2, 3]) is None
    assert repeated_ngram_rate([1, 2, 3, 4]) == 0
    # 1234 2341 3412 4123 1234: one of five was there
    assert repeated_ngram_rate([1, 2, 3, 4, 1, 2, 3, 4]) == 1 / 5
    assert repeated_ngram_rate([7] * 13) == 9 / 10
    assert repeated_ngram_rate([1, 1, 1], n=1) == 2 / 3


def test_the_longest_loop_says_one_thing_at_least_twice():
    assert longest_loop([]) == longest_loop([1]) == longest_loop([1, 2, 3, 1, 2]) == 0
    assert longest_loop([1, 2, 3, 1, 2, 3]) == 6
    assert longest_loop([9, 1, 2, 1, 2, 1, 8]) == 5  # two and a half times
    assert longest_loop([1, 1, 2, 3, 4, 2, 3, 4, 5]) == 6
    assert longest_loop([5] * 10) == 10
    assert longest_loop_share([9, 1, 2, 1, 2, 1, 8, 8]) == 5 / 8
    assert longest_loop_share([]) is None


def _loop_by_hand(ids):
    """Every stretch and every period."""
    best = 0
    for start in range(len(ids)):
        for end in range(start + 2, len(ids) + 1):
            part = ids[start:end]
            for period in range(1, len(part) // 2 + 1):
                if part[period:] == part[:-period]:
                    best = max(best, len(part))
    return best


@given(st.lists(st.integers(0, 2), max_size=14))
def test_the_longest_loop_is_that_of_trying_them_all(ids):
    assert longest_loop(ids) == _loop_by_hand(ids)


def test_texts_are_summarised_without_the_failed_and_interrupted():
    records = [
        text(1, 1, 1, 1, 1, finish_reason="length"),
        text(1, 2, 3),
        text(finish_reason="context"),
        text(1, finish_reason="interrupted"),
        failed(),
    ]
    summary = summarise_texts(records)
    assert (summary.num_requests, summary.num_excluded) == (3, 2)
    assert summary.mean_tokens == 8 / 3
    assert summary.truncation_rate == 2 / 3
    assert summary.repeated_ngram_rate == 1 / 2
    assert summary.longest_loop_share == 1 / 2
    assert [is_truncated(r) for r in records[:3]] == [True, False, True]
    assert summarise_texts([failed()]).mean_tokens is None
