"""The ledger around local rules: what a budget takes from them, and what none leaves."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lenity.policies import policy
from lenity.policies.asd import Asd
from lenity.policies.base import BlockPolicy, MatchPolicy
from lenity.policies.local import LocalPolicy
from lenity.policies.strict import Strict
from lenity.types import UNITS_PER_NAT
from tests.policies.blocks import INF, blocks, flags, nats, regrets

RULES = ["margin:ratio=0.5", "fuzzy:threshold=0.3,divergence=tv"]
spendings = st.integers(0, 2 * UNITS_PER_NAT)


class Anything(LocalPolicy):
    """Passes everything."""

    type: str = "anything"

    def accepts(self, draft, scores):
        return torch.ones_like(scores.regret, dtype=torch.bool)


def test_it_is_a_rule_for_a_position_and_for_a_block():
    assert isinstance(Anything(), MatchPolicy)
    assert isinstance(Anything(), BlockPolicy)
    block = regrets(None)
    with pytest.raises(NotImplementedError):
        LocalPolicy(type="none").accepts(block.draft, block.scores)


@given(st.data(), blocks(), nats | st.just(INF), spendings)
def test_a_test_that_always_passes_is_asd_with_that_budget(data, block, budget, spent):
    may_relax = flags(data.draw, block)
    asd = Asd(budget=budget, gate=INF, block_cap=None)
    same = {"spent": [spent] * len(block.batch), "may_relax": may_relax}
    got = block.verify(Anything(budget=budget), **same).accepted_length
    assert got.tolist() == block.verify(asd, **same).accepted_length.tolist()


@pytest.mark.parametrize("spec", RULES)
@given(st.data(), blocks(), spendings)
def test_no_budget_asks_the_positions_only(spec, data, block, spent):
    rule, may_relax = policy(spec), flags(data.draw, block)
    free = block.verify(rule, spent=[spent] * len(block.batch), may_relax=may_relax)
    endless = block.verify(rule.model_copy(update={"budget": INF}), may_relax=may_relax)
    assert free.accepted_length.tolist() == endless.accepted_length.tolist()
    passes = rule.accepts(block.draft, block.scores)
    assert passes[free.is_relaxed].all()


@pytest.mark.parametrize("spec", RULES)
@given(blocks(), nats, spendings)
def test_a_budget_is_never_overspent_and_zero_is_strict(spec, block, budget, spent):
    rule = policy(spec).model_copy(update={"budget": budget})
    verdict = block.verify(rule, spent=[spent] * len(block.batch))
    for regret, is_relaxed in zip(block.scores.regret, verdict.is_relaxed, strict=True):
        cost = float(regret[is_relaxed].sum())
        assert cost == 0 or spent / UNITS_PER_NAT + cost <= budget
    if budget == 0:
        strict = block.verify(Strict()).accepted_length
        assert verdict.accepted_length.tolist() == strict.tolist()


def test_a_spent_ledger_leaves_ties():
    rule = Anything(budget=1.0)
    three = regrets(0.5, 0.5, 0.5)
    assert int(three.verify(rule).accepted_length) == 2
    assert int(three.verify(rule, spent=[UNITS_PER_NAT // 2]).accepted_length) == 1
    assert int(three.verify(rule, spent=[UNITS_PER_NAT // 2 + 1]).accepted_length) == 0
    assert int(regrets(0.0, None).verify(rule, spent=[UNITS_PER_NAT]).accepted_length) == 2
    assert int(regrets(0.0, None).verify(Anything(budget=0.0)).accepted_length) == 0
