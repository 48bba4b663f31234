from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lenity.tasks.final_number import final_number, last_boxed, numbers


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,234", ["1234"]),
        ("$18.00", ["18.00"]),
        ("1,234,567.5 apples", ["1234567.5"]),
        ("3, 4", ["3", "4"]),
        ("-5", ["-5"]),
        ("\u22125", ["-5"]),  # the minus of typography
        ("$-5 or -$6", ["-5", "-6"]),
        ("16-3", ["16", "3"]),
        ("x2 and 5kg", ["5"]),
        (".5", ["0.5"]),
        ("18.", ["18"]),
        ("1{,}000", ["1000"]),
        (r"\$40", ["40"]),
        ("20%", ["20"]),
        ("2e3", ["2000"]),
        ("€ 7 and £8", ["7", "8"]),
        ("12,34", ["12", "34"]),
        ("none", []),
        ("**18**", ["18"]),
    ],
)
def test_numbers_as_they_are_written(text, values):
    assert [value for _, value in numbers(text)] == [Decimal(value) for value in values]


@given(st.integers(-(10**12), 10**12))
def test_every_integer_is_read_with_and_without_commas(number):
    assert [value for _, value in numbers(f"{number:,}")] == [number]
    assert [value for _, value in numbers(f"it is {number}.")] == [number]


@pytest.mark.parametrize(
    ("text", "value", "rule"),
    [
        ("5 + 3 = 8\n#### 1,234", "1234", "####"),
        ("#### 1\nno, again\n#### 2 dollars, not 3", "2", "####"),
        ("#### Step 1: add\n5+3=8", "1", "####"),
        ("#### Answer\nThe answer is 9.", "9", "answer is"),
        (r"so \boxed{42} in 7 steps", "42", "boxed"),
        (r"\boxed{x} is 3", "3", "last number"),
        ("The answer is $18.00. I checked it 2 times.", "18.00", "answer is"),
        ("The final answer is 9*2 = 18 eggs", "18", "answer is"),
        ("answer: -7", "-7", "answer is"),
        ("First 3, then 4, so 12 in all.", "12", "last number"),
        ("The answer is clear: we get 6", "6", "answer is"),
        ("The answer is obvious.\nIt is 6 of 8", "8", "last number"),
    ],
)
def test_where_the_final_number_is_found(text, value, rule):
    found = final_number(text)
    assert (found.value, found.rule) == (Decimal(value), rule)


def test_without_a_number_there_is_none():
    assert final_number("I cannot say.") is None
    assert final_number("") is None


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{1}, no: \boxed{ {2} }", "{2}"),
        (r"\boxed{\left\{1,2\right\}}", r"\left\{1,2\right\}"),
        (r"\boxed{1} and then \boxed{\frac{1}{", "1"),
        (r"\fbox{3}", "3"),
        (r"\boxed 5$", "5"),
        (r"\boxed{}", ""),
        (r"\boxed{a\\b}", r"a\\b"),
        (r"\boxed{", None),
        ("no box", None),
        ("\\boxed", None),
    ],
)
def test_the_last_complete_box(text, inside):
    assert last_boxed(text) == inside


@given(
    st.recursive(
        st.sampled_from(["a", "1", "\\{", "\\}"]),
        lambda inner: st.lists(inner, max_size=3).map(lambda parts: "{" + "".join(parts) + "}"),
    )
)
def test_any_balanced_text_comes_out_of_its_box(text):
    assert last_boxed(f"so \\boxed{{{text}}} ends}}") == text
