"""Names to classes, specs to knobs and back, and errors that say what to write instead."""

import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from lenity import registry
from lenity.errors import ConfigError, RegistryError
from lenity.registry import Registry, build_knobs, did_you_mean, join_spec, split_spec

PARTS = Registry("part", {"deque": "collections:deque", "path": "pathlib:Path"})


class Knobs(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: str = "knobs"
    count: int = Field(ge=1, description="How many")
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
    first, second = str(caught.value).splitlines()
    assert first == (
        "policy 'x': count: Input should be greater than or equal to 1, got '0'. count: How many."
    )
    assert second.startswith("policy 'x': share: ")
    assert second.endswith("got 'much'.")
    assert caught.value.__cause__ is None


def test_a_missing_value_did_not_come():
    with pytest.raises(ConfigError) as caught:
        build_knobs(Knobs, {}, "policy 'x'")
    assert str(caught.value) == "policy 'x': count: Field required. count: How many."


def test_none_is_a_word_where_none_is_not_allowed():
    class Knobs(BaseModel):
        cap: int | None = 3
        stop: str = ""

    built = build_knobs(Knobs, {"cap": "none", "stop": "none"}, "thing")
    assert built.cap is None
    assert built.stop == "none"
