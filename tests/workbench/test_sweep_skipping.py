"""Arms of the skipping sweeps, and the predictors that learned rules take."""

import json

import pytest

from lenity.errors import ConfigError
from lenity.policies import policy
from lenity.skipping import skip_rule
from lenity.workbench.sweep_skipping import (
    CONDITIONAL_PREFIXES,
    FAMILIES,
    MARGINAL_GATES,
    Predictor,
    Shared,
    check_family,
    find_predictors,
    gate_grid,
    skipping_grid,
)

BOTH = tuple(
    Predictor(estimand=name, folder=f"run/{name}/fold-0", digest="0" * 16)
    for name in ("marginal", "conditional")
)


def shared(**changes):
    return Shared(**{"gamma": 16, "predictors": BOTH, **changes})


def rules(settings):
    return [skip_rule(s.skip) if s.skip else policy(s.policy) for s in settings]


def test_every_rule_has_its_grid_and_every_arm_can_be_built():
    found = skipping_grid(shared())
    assert len({setting.name for setting in found}) == len(found)
    by_rule = {}
    for setting, rule in zip(found, rules(found), strict=True):
        assert rule.type == setting.curve
        by_rule.setdefault(rule.type, []).append(rule)
    assert list(by_rule) == ["raw", "marginal", "conditional", "periodic", "lenience", "top_k"]
    assert [rule.prefix for rule in by_rule["marginal"]] == list(MARGINAL_GATES)
    assert all(rule.local == rule.prefix for rule in by_rule["marginal"])
    assert [rule.prefix for rule in by_rule["conditional"]] == list(CONDITIONAL_PREFIXES)
    assert {rule.local for rule in by_rule["conditional"]} == {0.9}
    assert {rule.predictor for rule in by_rule["conditional"]} == {"run/conditional/fold-0"}
    assert {rule.predictor for rule in by_rule["marginal"]} == {"run/marginal/fold-0"}
    assert {rule.min_prefix for rule in by_rule["raw"] + by_rule["marginal"]} == {6}
    assert {rule.count for rule in by_rule["periodic"]} == {6}


def test_learned_rules_need_a_predictor():
    found = skipping_grid(shared(predictors=BOTH[:1]))
    assert {s.curve for s in found} == {"raw", "marginal", "periodic", "lenience", "top_k"}
    with pytest.raises(ConfigError, match="a predictor of conditional survival"):
        skipping_grid(shared(predictors=BOTH[:1]), ["conditional"])


def test_knobs_are_shared_and_gates_are_not():
    told = "raw:local=0.5,prefix=0.5,min_prefix=3,max_unverified=12,debt=2"
    found = skipping_grid(shared(skip=told, family="maths"), ["conditional", "periodic"])
    for rule in rules(found):
        assert rule.debt == 2
        if rule.type == "conditional":
            assert (rule.min_prefix, rule.max_unverified, rule.local) == (3, 12, 0.9)
            assert rule.family == "maths"
        else:
            assert (rule.count, rule.max_unverified) == (3, None)
    assert shared(gamma=4).knobs == {"min_prefix": "4"}


def test_a_spec_stands_for_itself_and_a_name_for_its_grid():
    wanted = [
        "raw:local=0.7,prefix=0.6",
        "top_k:k=9",
        "periodic",
        "conditional:predictor=confidence",
    ]
    found = skipping_grid(shared(), wanted)
    assert [s.name for s in found[:2]] == ["raw:local=0.7,prefix=0.6", "top_k:k=9"]
    assert skip_rule(found[0].skip).min_prefix == 6
    assert [s.curve for s in found[2:]] == [*["periodic"] * 3, "conditional"]
    assert (found[-1].name, found[-1].x) == ("conditional", "default")
    assert skip_rule(found[-1].skip).predictor == "confidence"
    assert len(skipping_grid(shared(), ["raw", "raw"])) == len(skipping_grid(shared(), ["raw"]))
    with pytest.raises(ConfigError, match="Did you mean 'lenience'"):
        skipping_grid(shared(), ["leniense"])


def test_a_gate_is_left_out_by_letting_everything_pass():
    found = gate_grid(shared())
    assert [(s.curve, s.x) for s in found] == [
        (rule, x)
        for rule in ("raw", "conditional")
        for x in ("both gates", "local only", "prefix only")
    ]
    gates = [(rule.local, rule.prefix) for rule in rules(found)]
    assert gates == [(0.9, 0.93), (0.9, 0), (0, 0.93), (0.9, 0.9), (0.9, 0), (0, 0.9)]
    own = rules(gate_grid(shared(predictors=()), ["raw:local=0.6,prefix=0.7"]))
    assert [(rule.local, rule.prefix) for rule in own] == [(0.6, 0.7), (0.6, 0), (0, 0.7)]
    assert {s.curve for s in gate_grid(shared(predictors=()))} == {"raw"}
    with pytest.raises(ConfigError, match="whose gates are two, got 'marginal'"):
        gate_grid(shared(), ["marginal"])


def predictor(folder, estimand, weights=b"1"):
    folder.mkdir(parents=True)
    (folder / "predictor.json").write_text(json.dumps({"estimand": estimand}))
    (folder / "predictor.safetensors").write_bytes(weights)
    return folder


def test_predictors_are_found_in_a_run_or_by_themselves(tmp_path):
    one = predictor(tmp_path / "run" / "marginal" / "fold-0", "marginal")
    other = predictor(tmp_path / "run" / "conditional" / "fold-0", "conditional", b"2")
    found = find_predictors([tmp_path / "run"])
    assert [(p.estimand, p.folder) for p in found] == [
        ("marginal", str(one)),
        ("conditional", str(other)),
    ]
    assert len({p.digest for p in found}) == 2
    assert find_predictors([other]) == found[1:]
    third = predictor(tmp_path / "third", "marginal")
    with pytest.raises(ConfigError, match="one predictor of marginal survival"):
        find_predictors([tmp_path / "run", third])


def test_what_is_no_predictor_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="marginal/fold-0"):
        find_predictors([tmp_path])
    broken = predictor(tmp_path / "broken", "joint")
    told = r"predictor.json: estimand: expected 'marginal' or 'conditional', got 'joint'\."
    with pytest.raises(ConfigError, match=told):
        find_predictors([broken])
    for text in ("[]", "{}", "1", '["estimand"]', '{"estimand": []}', "{"):
        (broken / "predictor.json").write_text(text)
        with pytest.raises(ConfigError, match="Expected a survival predictor in") as refused:
            find_predictors([broken])
        assert "validation error" not in str(refused.value)
    (broken / "predictor.safetensors").unlink()
    with pytest.raises(ConfigError, match="Expected a survival predictor in"):
        find_predictors([broken])


def test_a_family_is_one_that_predictors_are_told():
    for family in (None, *FAMILIES):
        check_family(family)
        skip_rule("marginal", predictor="run", family=family)
    told = "among code, maths, .* got 'math'. Did you mean 'maths'"
    with pytest.raises(ConfigError, match=told):
        check_family("math")
