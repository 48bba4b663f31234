"""Tables: what people read and what files hold."""

import csv
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lenity.workbench.intervals import Interval
from lenity.workbench.tables import (
    COUNT,
    GAIN,
    PERCENT,
    POINTS,
    Column,
    Table,
    Unit,
    csv_text,
    markdown,
    plain_text,
)


def interval(estimate, low, high):
    return Interval(estimate=estimate, low=low, high=high, method="made", num_units=4)


GAINS = Table(
    name="gains",
    title="Gain by task",
    columns=(
        Column(key="task", label="Task"),
        Column(key="gain", label="Gain", unit=GAIN),
        Column(key="prompts", label="Prompts", unit=COUNT),
        Column(key="ok", label="Holds"),
    ),
    rows=(
        ("gsm8k@1", interval(0.0778, 0.07, 0.0856), 1256, True),
        ("a|b", -0.02, None, False),
        ("<b>", None, 0, None),
    ),
    note="Fixed work.",
)


def test_plain_text_lines_up_and_rounds():
    assert plain_text(GAINS).splitlines() == [
        "Gain by task",
        "",
        "Task                 Gain, %  Prompts  Holds",
        "-------  -------------------  -------  -----",
        "gsm8k@1  +7.8 (+7.0 to +8.6)    1,256  yes",
        "a|b                     -2.0        –  no",
        "<b>                        –        0  –",
        "",
        "Fixed work.",
    ]


def test_markdown_escapes_what_would_break_a_row():
    assert markdown(GAINS).splitlines() == [
        "| Task | Gain, % | Prompts | Holds |",
        "| --- | ---: | ---: | --- |",
        "| gsm8k@1 | +7.8 (+7.0 to +8.6) | 1,256 | yes |",
        "| a\\|b | -2.0 | – | no |",
        "| &lt;b> | – | 0 | – |",
        "",
        "Fixed work.",
    ]


def test_csv_keeps_numbers_unscaled_and_limits_apart():
    assert csv_text(GAINS) == (
        "task,gain,gain_low,gain_high,prompts,ok\n"
        "gsm8k@1,0.0778,0.07,0.0856,1256,true\n"
        "a|b,-0.02,,,,false\n"
        "<b>,,,,0,\n"
    )


@given(st.floats(allow_nan=False, allow_infinity=False), st.text(st.characters(codec="utf-8")))
def test_csv_gives_numbers_and_words_back(number, word):
    columns = (Column(key="number", label="N", unit=PERCENT), Column(key="word", label="W"))
    table = Table(name="t", title="T", columns=columns, rows=((number, word),))
    heads, row = csv.reader(StringIO(csv_text(table), newline=""))
    assert heads == ["number", "word"]
    assert float(row[0]) == number
    assert row[1] == word


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        (POINTS, -0.0012, "-0.12"),
        (POINTS, 0.000001, "0.00"),
        (POINTS, -0.00001, "0.00"),
        (GAIN, 0.25, "+25.0"),
        (PERCENT, 0.25, "25.0"),
        (COUNT, 1_234_567.0, "1,234,567"),
        (Unit(digits=1), -0.04, "0.0"),
    ],
)
def test_a_number_that_rounds_to_zero_has_no_sign(unit, value, text):
    assert unit.text(value) == text


def test_units_stand_behind_numbers_and_labels():
    assert Unit(name="ms").with_name("3") == "3 ms"
    assert Unit().with_name("3") == "3"
    assert Column(key="k", label="Time", unit=Unit(name="ms")).heading == "Time, ms"
    assert Column(key="k", label="Count", unit=COUNT).heading == "Count"


def test_a_row_has_one_value_a_column():
    column = Column(key="k", label="K")
    with pytest.raises(ValidationError, match=r"row 1: expected a value for each.*got 2"):
        Table(name="t", title="T", columns=(column,), rows=((1,), (1, 2)))
    with pytest.raises(ValidationError, match="expected different keys"):
        Table(name="t", title="T", columns=(column, column))


def test_a_table_of_mappings_leaves_gaps_for_what_is_missing():
    columns = [Column(key="a", label="A"), Column(key="b", label="B")]
    table = Table.of("t", "T", columns, [{"b": 2}, {"a": "x", "b": None}])
    assert table.rows == ((None, 2), ("x", None))


def test_a_table_comes_back_from_json_as_it_was():
    assert Table.model_validate_json(GAINS.model_dump_json()) == GAINS


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_cell_is_finite(value):
    with pytest.raises(ValidationError):
        Table(name="t", title="T", columns=(Column(key="k", label="K"),), rows=((value,),))


def test_a_name_is_that_of_a_file():
    with pytest.raises(ValidationError):
        Table(name="../t", title="T", columns=(Column(key="k", label="K"),))
