"""Which arms a sweep has."""

import pytest

from lenity.drafters import drafter
from lenity.errors import ConfigError, RegistryError
from lenity.policies import policy
from lenity.skipping import skip_rule
from lenity.workbench.sweep import PRESETS, SweepSettings, preset, reference_of, steps
from tests.workbench.studies import questions


def settings(name, **changes):
    base = {"preset": name, "questions": questions(), "drafter": "ngram", "gamma": 8}
    return SweepSettings.model_validate(base | changes)


@pytest.mark.parametrize("name", PRESETS)
def test_every_arm_can_be_built_and_strict_comes_first(name):
    found = steps(settings(name, skip="raw:local=0.9,prefix=0.9"))
    assert found[0].curve == "strict"
    names = [step.arm.name for step in found]
    assert len(set(names)) == len(names)
    for step in found:
        policy(step.arm.policy)
        drafter(step.arm.drafter)
        if step.arm.skip:
            skip_rule(step.arm.skip)


def test_one_knob_moves_and_the_others_stay():
    found = steps(settings("budget", values=(1, "inf")))
    assert [step.arm.policy for step in found] == [
        "strict",
        "asd:budget=1,gate=0.25,block_cap=2",
        "asd:budget=inf,gate=0.25,block_cap=2",
    ]
    assert [step.x for step in found] == ["strict", 1.0, "inf"]


def test_a_sweep_of_gamma_has_a_strict_arm_at_each():
    found = steps(settings("gamma", values=(2, 4)))
    assert [(s.curve, s.arm.gamma) for s in found] == [
        ("strict", 2),
        ("asd", 2),
        ("strict", 4),
        ("asd", 4),
    ]
    assert reference_of(found[3], found).arm.name == "strict-4"


def test_what_is_not_there_is_refused():
    with pytest.raises(RegistryError, match="Did you mean 'budget'"):
        preset("buget")
    with pytest.raises(ConfigError, match="a skip rule whose min_prefix is moved"):
        steps(settings("min_prefix"))


def test_published_baselines_stand_on_the_same_drafts():
    curves = {step.curve for step in steps(settings("skipping"))}
    assert curves == {"strict", "raw", "lenience", "top_k", "periodic"}


def test_rules_stand_side_by_side_and_a_ledger_makes_another_line():
    rules = ("strict", "margin:ratio=0.9", "margin:ratio=0.9,budget=8", "asd:budget=8", "top_k")
    found = steps(settings("matched_regret", values=rules))
    assert [(s.curve, s.x, s.arm.policy) for s in found] == [
        ("strict", "strict", "strict"),
        ("margin", "ratio=0.9", "margin:ratio=0.9"),
        ("margin with a ledger", "ratio=0.9,budget=8", "margin:ratio=0.9,budget=8"),
        ("asd", "budget=8", "asd:budget=8"),
        ("top_k", "defaults", "top_k"),
    ]


def test_a_rule_named_twice_is_one_arm():
    assert len(steps(settings("matched_regret", values=("asd", "asd")))) == 2


@pytest.mark.parametrize("value", ["abc", "2.5", "-2", "0", "1025", "99999999999", "²", 2.5])
def test_a_gamma_that_drafts_no_tokens_is_refused(value):
    with pytest.raises(ConfigError, match=r"from 1 to 1024, got .* --value"):
        steps(settings("gamma", values=(value,)))


def test_a_value_given_twice_is_one_arm():
    assert [s.arm.gamma for s in steps(settings("gamma", values=("2", 2, "02")))] == [2, 2]
    assert len(steps(settings("budget", values=("1", "1")))) == 2
    assert len(steps(settings("min_prefix", skip="raw", values=("1", "1")))) == 2


def test_a_gamma_of_all_arms_that_is_too_large_is_refused_by_its_name():
    with pytest.raises(ConfigError, match="gamma: expected at most 1024, got 99999"):
        steps(settings("budget", gamma=99999))


@pytest.mark.parametrize("name", ["budget", "matched_regret", "skipping"])
def test_what_no_file_name_has_stands_in_no_arms_name(name):
    value = {"budget": "1/2", "matched_regret": "margin:ratio=0.9/x"}.get(name)
    told = value or "conditional:predictor=confidence,calibration=/a/b.json"
    (found,) = steps(settings(name, values=(told,)))[1:]
    assert "/" not in found.arm.name
    assert "/" in (found.arm.skip or found.arm.policy)


def test_arms_that_differ_by_a_path_alone_have_names_of_their_own():
    told = tuple(f"marginal:predictor={folder},local=0.2" for folder in ("/a", "/b"))
    found = steps(settings("skipping", values=told))[1:]
    assert [s.arm.name for s in found] == ["marginal:local=0.2", "marginal:local=0.2 +2"]
    assert ["predictor=/a" in s.arm.skip for s in found] == [True, False]
