"""Names to classes, specs to knobs and back, and errors that say what to write instead."""

import sys
from datetime import date
from enum import StrEnum
from importlib.metadata import EntryPoint, EntryPoints
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from lenity import registry
from lenity.errors import ConfigError, RegistryError
from lenity.policies import POLICIES, Policy
from lenity.registry import (
    Registry,
    build_knobs,
    did_you_mean,
    explain_file,
    explain_value,
    join_spec,
    read_file,
    split_spec,
)

PARTS = Registry("part", {"deque": "collections:deque", "path": "pathlib:Path"})


class Knobs(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: str = "knobs"
    count: int = Field(ge=1, description="How many", examples=[3])
    share: float | None = None


class Plain(BaseModel):
    pass


def test_a_name_is_loaded_and_the_list_is_sorted():
    assert PARTS.load("path").__name__ == "Path"
    assert PARTS.names() == ("deque", "path")


def test_an_unknown_name_is_met_with_the_nearest_and_the_list():
    with pytest.raises(RegistryError) as caught:
        PARTS.load("dequeue")
    message = "Unknown part 'dequeue'. Did you mean 'deque'? Available: deque, path."
    assert str(caught.value) == message


def test_nothing_is_imported_before_it_is_asked_for():
    sys.modules.pop("this_module_does_not_exist", None)
    lazy = Registry("part", {"gone": "this_module_does_not_exist:X"})
    assert lazy.names() == ("gone",)
    with pytest.raises(ModuleNotFoundError):
        lazy.load("gone")


@pytest.mark.parametrize(
    ("kind", "group"), [("policy", "lenity.policies"), ("drafter", "lenity.drafters")]
)
def test_third_parties_come_in_by_entry_points(monkeypatch, kind, group):
    """The package metadata is Python's, not ours: a stand-in for an installed distribution."""
    installed = EntryPoints(
        [
            EntryPoint("theirs", "collections:OrderedDict", group),
            EntryPoint("ours", "collections:Counter", group),
            EntryPoint("stranger", "collections:Counter", "other.group"),
        ]
    )
    monkeypatch.setattr(registry, "entry_points", lambda group: installed.select(group=group))
    table = Registry(kind, {"ours": "collections:deque"})
    assert table.names() == ("ours", "theirs")
    assert table.load("theirs").__name__ == "OrderedDict"
    assert table.load("ours").__name__ == "deque"  # what lenity ships is not replaced


def test_did_you_mean_names_two_at_most():
    assert did_you_mean("gate", ["gates", "gated", "gateau"]) in (
        " Did you mean 'gates' or 'gated'?",
        " Did you mean 'gated' or 'gates'?",
    )
    assert did_you_mean("gate", ["budget_of_another_kind"]) == ""


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("strict", ("strict", {})),
        ("strict:", ("strict", {})),
        (" asd : budget = 8 , gate=0.25, ", ("asd", {"budget": "8", "gate": "0.25"})),
        ("a:path=x=y", ("a", {"path": "x=y"})),
        ("a:where=c:/b", ("a", {"where": "c:/b"})),
        ("", ("", {})),
    ],
)
def test_a_spec_is_split(spec, expected):
    assert split_spec(spec) == expected


@pytest.mark.parametrize("spec", ["asd:budget", "asd:budget=", "asd:=8", "asd:gate=1,x"])
def test_half_a_knob_is_refused(spec):
    with pytest.raises(ConfigError, match=r"Expected knob=value in .* Write for example 'asd:"):
        split_spec(spec)


def test_a_knob_stands_once():
    with pytest.raises(ConfigError, match="Knob 'gate' stands twice"):
        split_spec("asd:gate=1, gate=2")


@pytest.mark.parametrize(
    ("value", "spelt"),
    [
        (None, "none"),
        (True, "true"),
        (False, "false"),
        (8.0, "8"),
        (0.25, "0.25"),
        (0.1 + 0.2, "0.30000000000000004"),
        (float("inf"), "inf"),
        (1234567.0, "1234567.0"),
        (3, "3"),
        ("share", "share"),
    ],
)
def test_values_are_spelt(value, spelt):
    assert join_spec("a", {"k": value}) == f"a:k={spelt}"


def test_no_knobs_no_colon():
    assert join_spec("strict", {}) == "strict"


@given(st.floats(allow_nan=False))
def test_a_float_survives_its_spelling(value):
    name, knobs = split_spec(join_spec("a", {"k": value, "n": 1}))
    assert (name, float(knobs["k"]), knobs["n"]) == ("a", value, "1")


def test_knobs_are_built_from_strings():
    built = build_knobs(Knobs, {"count": "3", "share": "none"}, "policy 'x'")
    assert (built.count, built.share) == (3, None)
    assert build_knobs(Knobs, {"count": 3, "share": "0.5"}, "x").share == 0.5


def test_an_unknown_knob_is_met_with_the_nearest_and_the_list():
    with pytest.raises(ConfigError) as caught:
        build_knobs(Knobs, {"counts": "3"}, "policy 'x'")
    message = "policy 'x' has no knob 'counts'. Did you mean 'count'? Its knobs: count, share."
    assert str(caught.value) == message
    with pytest.raises(ConfigError, match="Its knobs: none"):
        build_knobs(Plain, {"a": 1}, "x")


def test_a_bad_value_says_what_is_expected_and_what_came():
    with pytest.raises(ConfigError) as caught:
        build_knobs(Knobs, {"count": "0", "share": "much"}, "policy 'x'")
    assert str(caught.value).splitlines() == [
        "policy 'x': count: expected at least 1, got '0'. count: How many.",
        "policy 'x': share: expected a number, got 'much'.",
    ]
    assert caught.value.__cause__ is None


def test_a_missing_knob_is_written_for_you():
    with pytest.raises(ConfigError) as caught:
        build_knobs(Knobs, {}, "policy 'x'")
    said = "policy 'x' needs the knob count: How many. Write for example knobs:count=3."
    assert str(caught.value) == said


class Level(StrEnum):
    LOW = "low"
    HIGH = "high"


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    n: int


class Many(BaseModel):
    """A field of every kind somebody writes."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    whole: int = Field(default=1, gt=0, lt=2**63, description="Two\nlines.")
    real: float = Field(default=0.5, ge=0.25, le=1, allow_inf_nan=False)
    flag: bool = False
    word: Literal["fast", "slow"] = "fast"
    only: Literal[1] = 1
    text: str = ""
    ids: tuple[int, ...] = ()
    rows: list[int] = Field(default=[], min_length=1, max_length=2)
    table: dict[str, int] = {}
    either: str | Registry = ""
    maybe: int | None = None
    gone: None = None
    inner: Inner | None = None
    name: str = Field(default="a", pattern="^[a-z]+$")
    when: date | None = None
    level: Level = Level.LOW


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("whole", "x", "whole: expected an integer, got 'x'. whole: Two lines."),
        ("whole", 1.5, "whole: expected an integer, got 1.5."),
        ("whole", [1], "whole: expected an integer, got [1]."),
        ("whole", 0, "whole: expected more than 0, got 0."),
        ("whole", 2**63, "whole: expected less than 9223372036854775808, got 9223372036854775808."),
        ("whole", "9" * 5000, "whole: expected an integer of fewer digits, got '999"),
        ("real", "hot", "real: expected a number, got 'hot'."),
        ("real", 0.1, "real: expected at least 0.25, got 0.1."),
        ("real", 2, "real: expected at most 1, got 2."),
        ("real", float("nan"), "real: expected a finite number, got nan."),
        ("flag", "maybe", "flag: expected true or false, got 'maybe'."),
        ("flag", [], "flag: expected true or false, got []."),
        ("word", "fsat", "word: expected 'fast' or 'slow', got 'fsat'. Did you mean 'fast'?"),
        ("only", 2, "only: expected 1, got 2."),
        ("text", 5, "text: expected a text, got 5."),
        ("ids", 5, "ids: expected a list, got 5."),
        ("ids", (1, "a"), "ids.1: expected an integer, got 'a'."),
        ("rows", 5, "rows: expected a list, got 5."),
        ("rows", [], "rows: expected at least 1 items, got []."),
        ("rows", [1, 2, 3], "rows: expected at most 2 items, got [1, 2, 3]."),
        ("table", 5, "table: expected a mapping, got 5."),
        ("either", 5, "either: expected a text or a Registry, got 5."),
        ("maybe", "x", "maybe: expected an integer, got 'x'."),
        ("gone", 5, "gone: expected none, got 5."),
        ("inner", {}, "needs the knob inner.n."),
        ("inner", {"n": 1, "m": 2}, "inner.m: expected no field of this name, got 2."),
        ("name", "A", "name: expected a text like ^[a-z]+$, got 'A'."),
        ("when", "soon", "when: expected a valid date or datetime"),
        ("level", "lwo", "level: expected 'low' or 'high', got 'lwo'. Did you mean 'low'?"),
    ],
)
def test_every_kind_of_bad_value_is_told_in_our_words(name, value, said):
    with pytest.raises(ConfigError) as caught:
        build_knobs(Many, {name: value}, "thing")
    message = str(caught.value)
    assert message.startswith(("thing: " + said, "thing " + said)), message
    assert not any(theirs in message for theirs in ("Input should", "Value error", "required"))
    assert len(message) < 300


class Checked(BaseModel):
    low: int = 0
    high: int = 1

    @field_validator("low")
    @classmethod
    def _check_low(cls, value):
        if value == 9:
            raise ValueError("nine is taken")
        return value

    @model_validator(mode="after")
    def _check_order(self):
        if self.low > self.high:
            raise ValueError(f"low must not exceed high={self.high}, got {self.low}; lower it")
        return self


def test_what_a_check_of_ours_says_stands_as_it_is():
    with pytest.raises(ConfigError) as caught:
        build_knobs(Checked, {"low": 3}, "thing")
    assert str(caught.value) == "thing: low must not exceed high=1, got 3; lower it."
    with pytest.raises(ConfigError) as caught:
        build_knobs(Checked, {"low": 9}, "thing")
    assert str(caught.value) == "thing: low: nine is taken, got 9."


def test_a_value_alone_is_told_too():
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(int).validate_python("x")
    assert explain_value(caught.value) == "expected an integer, got 'x'."
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Annotated[str, AfterValidator(_refuse)]).validate_python("x")
    assert explain_value(caught.value) == "'x' is none of ours."


def _refuse(value):
    raise ValueError(f"{value!r} is none of ours.")


def test_case_does_not_hide_the_nearest_name():
    assert did_you_mean("DEQUE", ["deque", "path"]) == " Did you mean 'deque'?"


def test_none_is_a_word_where_none_is_not_allowed():
    class Knobs(BaseModel):
        cap: int | None = 3
        stop: str = ""

    built = build_knobs(Knobs, {"cap": "none", "stop": "none"}, "thing")
    assert built.cap is None
    assert built.stop == "none"


def test_an_instance_is_built_already_and_written_knobs_yield():
    rule = POLICIES.build(Policy, "asd:budget=2", {"gate": 1.0})
    assert (rule.budget, rule.gate) == (2.0, 1.0)
    assert POLICIES.build(Policy, rule, {}) is rule
    assert POLICIES.build(Policy, "asd:budget=2", {"budget": 3.0}).budget == 3.0
    with pytest.raises(ConfigError, match="policy 'asd' has no knob 'x'"):
        POLICIES.build(Policy, "asd", {"x": 1})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"flg": 1}, "x.json: flg: expected no field of this name, got 1. Did you mean 'flag'?"),
        ({"inner": {}}, "x.json needs the field inner.n."),
        ({"inner": {"n": 1, "m": 2}}, "x.json: inner.m: expected no field of this name, got 2."),
        ({"flag": "maybe", "only": 2}, "x.json: flag: expected true or false, got 'maybe'."),
    ],
)
def test_a_file_is_told_its_first_mistake(values, said):
    with pytest.raises(ValidationError) as caught:
        Many.model_validate(values)
    assert explain_file(caught.value, Many, "x.json") == said


class Kept(BaseModel):
    size: int


@pytest.mark.parametrize(
    ("content", "got"),
    [(b'{"size": "big"}', "size"), (b"\xff", ""), (b"[]", ""), (None, "No such file")],
)
def test_a_file_that_is_not_what_it_should_be_is_named(tmp_path, content, got):
    file = tmp_path / "kept.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"^Expected sizes.* Write them again\.$") as caught:
        read_file(Kept, file, expected="sizes", advice="Write them again.")
    assert str(file) in str(caught.value)
    assert got in str(caught.value)


def test_a_file_is_read_and_a_home_nobody_has_is_refused(tmp_path):
    file = tmp_path / "kept.json"
    file.write_text('{"size": 3}')
    assert read_file(Kept, file, expected="sizes", advice="").size == 3
    with pytest.raises(ConfigError, match="a user who has a home"):
        read_file(Kept, "~nobody-at-all/kept.json", expected="sizes", advice="")
