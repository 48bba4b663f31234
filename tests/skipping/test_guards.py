"""What sends a trusted prefix to the target all the same."""

import pytest

from lenity.skipping.guards import is_repetitive, objection

PLAIN = list(range(100, 132))


def test_plain_text_passes():
    assert objection(PLAIN, [1, 2, 3], {9}) is None


def test_a_special_token_anywhere_objects():
    assert objection(PLAIN, [1, 9, 3], {9}) == "special token"


@pytest.mark.parametrize(
    ("ids", "wanted"),
    [
        ([], False),
        ([1, 2, 3], False),
        ([1, 2, 3, 4] * 2, False),
        ([1, 2, 3, 4] * 3, True),
        ([1, 2, 3, 4] * 2 + list(range(50, 78)) + [1, 2, 3, 4], False),  # the first left the window
        ([5] * 5, False),  # its 4-gram stands twice
        ([5] * 6, True),
        (list(range(50, 54)) + [7, 8] * 3, False),
        ([5] * 8 + list(range(50, 60)), True),
        ([5] * 7 + list(range(50, 60)), False),
    ],
)
def test_repetition(ids, wanted):
    assert is_repetitive(ids) == wanted


def test_history_counts_and_the_guard_can_be_left_off():
    history, prefix = [*PLAIN, 1, 2, 3, 4, 1, 2, 3, 4], [1, 2, 3, 4]
    assert objection(history, prefix, set()) == "repetition"
    assert objection(history, prefix, set(), repetition=False) is None
