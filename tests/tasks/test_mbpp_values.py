import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lenity.tasks.mbpp_values import agree, example_calls, shaped


def test_calls_are_read_from_assertions():
    text = "\nassert set(f((1, 2), x[0])) == {1}\nassert f([1], -2.5) == f(1j)\nassert g(3)\n"
    assert example_calls(text, "f") == [[[1], -2.5], [1j]]


@pytest.mark.parametrize(
    ("example", "given_", "taken"),
    [
        ((1, 2), [3], (3,)),
        ([1, 2], [3], [3]),
        ({1, 2}, [3, 3], {3}),
        ([(1, 2), (3, 4)], [[5, 6], [7, 8]], [(5, 6), (7, 8)]),
        (([1],), [[2], [3]], ([2], [3])),
        ((1, (2, 3)), [1, [2, [3, [4]]]], (1, (2, (3, (4,))))),  # deeper than shown: as around
        ([], [[1]], [[1]]),
        ({"a": (1,)}, {"b": [2]}, {"b": (2,)}),
        (1j, "2j", 2j),
        (1j, "(1+2j)", 1 + 2j),
        (5, "7", 7),
        (5, "apple", "apple"),
        ("x", "7", "7"),
        ("x", ["7"], ["7"]),
        (1.5, True, True),
    ],
)
def test_arguments_take_the_shape_of_the_examples(example, given_, taken):
    ((got,),) = shaped([[given_]], [[example]])
    assert got == taken
    assert type(got) is type(taken)


def test_examples_that_differ_leave_lists_alone():
    assert shaped([[[1]]], [[(1,)], [[1]]]) == [[[1]]]
    assert shaped([[[1], [2]]], [[(1,)]]) == [[(1,), [2]]]  # a second argument nobody showed


@pytest.mark.parametrize(
    ("got", "wanted", "tolerance", "how", "same"),
    [
        ([1, 2], [1, 2], 0.0, "equal", True),
        ((1, 2), [1, 2], 0.0, "equal", False),
        (0.1 + 0.2, 0.3, 0.0, "equal", True),
        (0.3001, 0.3, 0.0, "equal", False),
        (0.30005, 0.3, 1e-4, "equal", True),
        (3, 3.0, 0.0, "equal", True),
        ([0.1 + 0.2, 1], [0.3, 1], 0.0, "equal", True),
        ([0.3], [0.3, 1.0], 0.0, "equal", False),
        (True, 1.0000001, 0.0, "equal", False),
        (4, 3, 0.0, "equal", False),
        (3.00005, 3, 1e-4, "equal", True),
        ("a", 0.5, 0.0, "equal", False),
        (math.nan, math.nan, 0.0, "equal", True),
        (1.0, math.nan, 0.0, "equal", False),
        (math.inf, math.inf, 0.0, "equal", True),
        (None, None, 0.0, "equal", True),
        (None, 0.0, 0.0, "equal", False),
        ([2, 1, 1], (1, 2), 0.0, "set", True),
        ([2], (1, 2), 0.0, "set", False),
        ("a match", True, 0.0, "match", True),
        (None, True, 0.0, "match", False),
        (None, False, 0.0, "match", True),
        (False, False, 0.0, "match", True),
        (False, True, 0.0, "match", False),
    ],
)
def test_when_outputs_agree(got, wanted, tolerance, how, same):
    assert agree(got, wanted, tolerance, how) is same


@given(
    st.recursive(
        st.none() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
        max_leaves=6,
    )
)
def test_every_output_agrees_with_itself(value):
    assert agree(value, value, 0.0)
