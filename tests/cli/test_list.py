import pytest

from lenity.cli.list import _default
from lenity.drafters import DRAFTERS
from lenity.models.loading import MODELS
from lenity.policies import POLICIES
from lenity.skipping import SKIP_RULES
from lenity.tasks import TASKS

REGISTRIES = {"policies": POLICIES, "drafters": DRAFTERS, "models": MODELS, "tasks": TASKS}
REGISTRIES["skip-rules"] = SKIP_RULES


@pytest.mark.parametrize("kind", REGISTRIES)
def test_everything_registered_is_listed(run, run_json, kind):
    names = [row["name"] for row in run_json("list", kind)[kind]]
    assert names == list(REGISTRIES[kind].names())
    said = run("list", kind).stdout
    assert all(name in said for name in names)


@pytest.mark.parametrize("kind", ["policies", "drafters", "tasks", "skip-rules"])
def test_knobs_are_those_of_the_class(run_json, kind):
    for row in run_json("list", kind)[kind]:
        fields = REGISTRIES[kind].load(row["name"]).model_fields
        assert [knob["name"] for knob in row["knobs"]] == [f for f in fields if f != "type"]
        assert all(knob["description"] for knob in row["knobs"])


def test_a_policy_says_whether_it_is_strict_and_where_it_holds(run_json):
    rows = {row["name"]: row for row in run_json("list", "policies")["policies"]}
    assert (rows["strict"]["kind"], rows["strict"]["temperature"]) == ("strict", "any")
    assert (rows["asd"]["kind"], rows["asd"]["temperature"]) == ("relaxed", "0 only")
    (budget,) = (knob for knob in rows["asd"]["knobs"] if knob["name"] == "budget")
    assert budget["default"] == 8.0


def test_an_unknown_kind_is_exit_2(run):
    done = run("list", "polices")
    assert done.exit_code == 2
    assert "policies" in done.stderr


def test_a_default_that_equals_a_truth_value_is_a_number():
    defaults = [0, 1, 0.0, False, True, None, "auto"]
    shown = [_default({"is_required": False, "default": default}) for default in defaults]
    assert shown == ["0", "1", "0.0", "false", "true", "none", "auto"]
    assert _default({"is_required": True}) == "(required)"
