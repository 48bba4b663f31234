"""The spelling of policies and what every one of them refuses."""

import pytest
from pydantic import ValidationError

from lenity.errors import ConfigError
from lenity.policies import Policy, policy
from lenity.policies.asd import Asd
from lenity.policies.base import BlockPolicy, MatchPolicy, RelaxedPolicy, TokenPolicy
from lenity.policies.lenience import Lenience
from lenity.policies.strict import Strict


def test_spec_leaves_defaults_out():
    assert Asd().spec == "asd"
    assert Asd(budget=4).spec == "asd:budget=4"
    assert str(Asd(gate=float("inf"), block_cap=None)) == "asd:gate=inf,block_cap=none"
    assert (
        Asd(relax_special=True, g0_is_strict=True).spec
        == "asd:relax_special=true,g0_is_strict=true"
    )
    assert policy("asd:budget=8,gate=0.25,block_cap=2").spec == "asd"


def test_the_base_has_no_limit_of_its_own():
    class Nameless(Policy):
        pass

    with pytest.raises(NotImplementedError):
        Nameless(type="nameless").strict_limit()
    assert Nameless.needs == frozenset()
    assert not Nameless.is_strict


def test_special_tokens_are_not_relaxed_unless_asked():
    assert not RelaxedPolicy.model_fields["relax_special"].default


def test_kinds_are_told_by_what_a_rule_can_do():
    assert isinstance(Asd(), BlockPolicy)
    assert not isinstance(Asd(), MatchPolicy | TokenPolicy)
    assert isinstance(Lenience(), MatchPolicy)
    assert isinstance(Strict(), MatchPolicy)
    assert isinstance(Strict(), TokenPolicy)


def test_a_policy_passes_through():
    rule = Asd(budget=1)
    assert policy(rule) is rule


def test_knobs_are_keyword_only_and_typed():
    with pytest.raises(ValidationError):
        Asd(budget="much")
    with pytest.raises(TypeError):
        Asd(1.0)


def test_knobs_may_be_given_by_keyword():
    assert policy("asd", budget=0) == policy("asd:budget=0")
    with pytest.raises(ConfigError, match="budget"):
        policy("asd", budgt=0)
