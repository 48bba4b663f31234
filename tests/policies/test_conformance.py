"""What every registered policy must do. A new policy adds a line to LOOSEST and is judged here."""

import inspect
import sys
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from lenity.errors import ConfigError, RegistryError
from lenity.policies import POLICIES, policy
from lenity.policies.asd import longest_prefix
from lenity.policies.base import BlockPolicy, MatchPolicy, TokenPolicy
from lenity.policies.strict import Strict
from lenity.policies.verify import verify_greedy, verify_sampled
from lenity.types import Draft
from tests.policies.blocks import blocks, flags, stack
from tests.policies.blocks import regrets as by_regret
from tests.reference import sampled

LOOSEST = {
    "asd": "asd:budget=inf,gate=inf,block_cap=none",
    "fuzzy": "fuzzy:threshold=inf",
    "lenience": "lenience:ratio=1e-300",
    "margin": "margin:ratio=0",
    "priced": "priced:budget=inf,price=0",
    "strict": None,
    "top_k": "top_k:k=1000000",
}
"""The knobs at which a relaxed rule accepts every unmasked draft token, but for REACH."""

REACH = {
    "margin": lambda scores: (scores.draft_rank <= 1) & (scores.draft_logit > 0),
}
"""Draft tokens a rule never gets beyond, whatever its knobs."""

SPECS = [
    "asd:budget=0.1,gate=0.3,block_cap=none,position_value=share,require_remaining=true",
    "asd:relax_special=true,g0_is_strict=true,block_cap=0,gate=0",
    "fuzzy:divergence=kl,threshold=0.25,reducible=true",
    "fuzzy:budget=8,divergence=tv",
    "lenience:ratio=0.30000000000000004",
    "margin:budget=0.5,ratio=0.97",
    "margin:relax_special=true",
    "priced:price=0.1,price_max=3,budget=1e-07,block_cap=1,gate=inf",
    "priced:price=inf",
    "top_k:k=5",
    *filter(None, LOOSEST.values()),
]

NAMES = POLICIES.names()
RELAXED = [name for name in NAMES if LOOSEST.get(name)]
GREEDY = [name for name in NAMES if isinstance(policy(name), BlockPolicy | MatchPolicy)]
SAMPLED = [name for name in NAMES if isinstance(policy(name), TokenPolicy)]

few = settings(max_examples=20)  # for every policy; each has a twin test of its own
every = pytest.mark.parametrize("name", NAMES)
every_greedy = pytest.mark.parametrize("name", GREEDY)
every_relaxed = pytest.mark.parametrize("name", RELAXED)
every_sampled = pytest.mark.parametrize("name", SAMPLED)


def test_every_policy_is_judged():
    assert set(NAMES) == set(LOOSEST), "Add the new policy's loosest knobs to LOOSEST."
    assert set(GREEDY) | set(SAMPLED) == set(NAMES)


def rules(name):
    """The rule at its defaults and at its loosest."""
    return [policy(name), *([policy(LOOSEST[name])] if LOOSEST[name] else [])]


regrets = partial(by_regret, top=32.0)  # margin relaxes only where logits are positive


def verdict_key(verdict):
    return [
        verdict.accepted_length.tolist(),
        verdict.next_token_id.tolist(),
        verdict.is_bonus.tolist(),
        verdict.is_relaxed.tolist(),
    ]


# Greedy: the verdict


@every_greedy
@few
@given(block=blocks())
def test_the_strict_limit_is_strict_by_token_id(name, block):
    for rule in rules(name):
        limit = rule.strict_limit()
        assert type(limit) is type(rule)
        assert policy(limit.spec) == limit
        assert verdict_key(block.verify(limit)) == verdict_key(block.verify(Strict()))


@every_greedy
def test_the_strict_limit_rejects_a_tie_with_another_id(name):
    verdict = regrets(None, 0.0, None).verify(policy(name).strict_limit())
    assert verdict_key(verdict) == [[1], [3], [False], [[False, False, False]]]


@every_relaxed
@few
@given(data=st.data(), block=blocks())
def test_the_loosest_accepts_every_open_token_and_nothing_else(name, data, block):
    """Masked tokens, padding and forbidden mismatches stay out whatever the knobs, and REACH."""
    may_relax = flags(data.draw, block)
    verdict = block.verify(policy(LOOSEST[name]), may_relax=may_relax)
    is_match = block.draft.token_ids == block.scores.top_id[:, :-1]
    passes = torch.isfinite(block.scores.draft_logit)
    if name in REACH:
        passes &= REACH[name](block.scores)
    if may_relax is not None:
        passes &= torch.tensor(may_relax, dtype=torch.bool).view_as(passes)
    wanted = longest_prefix(passes | is_match, block.draft.lengths)
    assert verdict.accepted_length.tolist() == wanted.tolist()


@every_greedy
@few
@given(data=st.data(), block=blocks())
def test_a_verdict_hangs_together(name, data, block):
    may_relax = flags(data.draw, block)
    strict = block.verify(Strict()).accepted_length
    for rule in rules(name):
        verdict = block.verify(rule, may_relax=may_relax)
        assert (verdict.accepted_length >= strict).all()
        assert (verdict.accepted_length <= block.draft.lengths).all()
        for b in block.batch:
            accepted = int(verdict.accepted_length[b])
            tops = block.scores.top_id[b].tolist()
            tokens = block.tokens(b)
            assert int(verdict.next_token_id[b]) == tops[accepted]
            assert bool(verdict.is_bonus[b]) == (accepted == len(tokens))
            relaxed = verdict.is_relaxed[b].tolist()
            wrong = [x != y for x, y in zip(tokens[:accepted], tops, strict=False)]
            assert relaxed == wrong + [False] * (len(relaxed) - accepted)
            if may_relax is not None:
                assert not any(w and not m for w, m in zip(wrong, may_relax[b], strict=False))


@every_greedy
def test_nothing_behind_the_first_failure_is_kept(name):
    """Wrong at position 2, then tokens that are the target's choice given the *draft* prefix."""
    block = regrets(None, 1.0, None, None)
    allowed = [[True, False, True, True]]
    for rule in rules(name):
        verdict = block.verify(rule, may_relax=allowed)
        assert verdict_key(verdict) == [[1], [3], [False], [[False] * 4]]


@every_greedy
def test_relaxation_ends_inside_the_block(name):
    """A phase that ends at position 3 forbids what follows; the exact tokens there still pass."""
    phase = [[True, True, False, False]]
    for rule in rules(name):
        exact_tail = regrets(0.0, None, None, None).verify(rule, may_relax=phase)
        relaxed_tail = regrets(0.0, None, None, 0.0).verify(rule, may_relax=phase)
        head = 0 if rule.is_strict else 4
        assert exact_tail.accepted_length.tolist() == [head]
        assert relaxed_tail.accepted_length.tolist() == [min(head, 3)]


@every_greedy
@few
@given(block=blocks(max_batch=4))
def test_a_request_does_not_see_its_batch(name, block):
    spent = [b << 17 for b in block.batch]
    order = list(block.batch)[::-1]
    for rule in rules(name):
        key = verdict_key(block.verify(rule, spent=spent))
        flipped = verdict_key(block.take(order).verify(rule, spent=spent[::-1]))
        assert flipped == [part[::-1] for part in key]
        for b in block.batch:
            alone = verdict_key(block.take([b]).verify(rule, spent=[spent[b]]))
            assert alone == [[part[b]] for part in key]


@every_greedy
@few
@given(block=blocks())
def test_inputs_are_left_alone(name, block):
    scores, spent = block.scores, torch.zeros(len(block.batch), dtype=torch.int64)
    may_relax = torch.ones_like(block.draft.token_ids, dtype=torch.bool)
    tensors = [spent, may_relax, block.draft.token_ids, block.draft.lengths]
    tensors += [getattr(scores, field) for field in scores.__slots__]
    before = [tensor.clone() for tensor in tensors]
    for rule in rules(name):
        verify_greedy(rule, block.draft, scores, spent_units=spent, may_relax=may_relax)
    assert all(torch.equal(a, b) for a, b in zip(before, tensors, strict=True))


@every_greedy
def test_no_draft_is_a_plain_step(name):
    for rule in rules(name):
        assert verdict_key(regrets().verify(rule)) == [[0], [6], [True], [[]]]


@every_greedy
def test_padding_is_never_accepted(name):
    """The padding repeats the argmax of its row."""
    batch = stack(regrets(), regrets(None), regrets(None, None, None))
    for rule in rules(name):
        verdict = batch.verify(rule)
        assert verdict.accepted_length.tolist() == [0, 1, 3]
        assert verdict.next_token_id.tolist() == [6, 6, 6]


@every_relaxed
def test_masked_tokens_are_never_accepted(name):
    block = regrets(None, float("inf"), None)
    assert int(block.verify(policy(LOOSEST[name])).accepted_length) == 1


@every_relaxed
def test_only_rules_for_sampling_sample(name):
    if name in SAMPLED:
        pytest.skip("it is defined for sampling")
    draft = regrets(None).draft
    with pytest.raises(ConfigError, match=r"greedy decoding only.*'strict'"):
        verify_sampled(
            policy(name),
            draft,
            torch.full((1, 2, 8), 0.125),
            accept_coins=torch.zeros(1, 1),
            next_coins=torch.zeros(1),
        )


# Sampling: the law


@every_sampled
def test_what_the_target_gives_nothing_is_never_accepted(name):
    """Masked or filtered away, it is replaced, however close the laws are."""
    laws = torch.tensor([[[0.0, 0.6, 0.4], [1.0, 0.0, 0.0]]])
    told = torch.tensor([[[0.1, 0.5, 0.4]]])
    no, half = torch.zeros(1, 1, dtype=torch.int64), torch.full((1, 1), 0.5)
    draft = Draft(token_ids=no, lengths=torch.tensor([1]), probs=told)
    for rule in rules(name):
        verdict = verify_sampled(rule, draft, laws, accept_coins=half, next_coins=half[0])
        assert verdict.accepted_length.tolist() == [0]
        assert verdict.next_token_id.tolist() == [1]
        assert not verdict.is_bonus.any()


@every_sampled
def test_the_strict_limit_emits_the_targets_law(name):
    rng = torch.Generator().manual_seed(7)
    rule = policy(name).strict_limit()
    for _ in range(50):
        p, q = torch.rand(2, 5, generator=rng, dtype=torch.float64).pow(3)
        p, q = p / p.sum(), q / q.sum()
        ids = torch.arange(5)
        accept = rule.accept_prob(p.expand(5, 5), q.expand(5, 5), ids)
        residual = rule.residual(p.expand(5, 5), q.expand(5, 5), ids)
        law = sampled.emitted_law(q.tolist(), accept.tolist(), residual.tolist())
        assert law == pytest.approx(p.tolist(), abs=1e-12)


@every_sampled
def test_sampling_does_not_see_the_batch_and_leaves_inputs_alone(name):
    rng = torch.Generator().manual_seed(11)
    target = torch.rand(3, 5, 6, generator=rng).softmax(-1)
    draft = Draft(
        token_ids=torch.randint(6, (3, 4), generator=rng),
        lengths=torch.tensor([4, 0, 2]),
        probs=torch.rand(3, 4, 6, generator=rng).softmax(-1),
    )
    accept = torch.rand(3, 4, generator=rng, dtype=torch.float64) / 2
    last = torch.rand(3, generator=rng, dtype=torch.float64)
    tensors = [target, accept, last, draft.token_ids, draft.lengths, draft.probs]
    before = [tensor.clone() for tensor in tensors]
    rule = policy(name)
    verdict = verify_sampled(rule, draft, target, accept_coins=accept, next_coins=last)
    assert all(torch.equal(a, b) for a, b in zip(before, tensors, strict=True))
    for b in range(3):
        row = slice(b, b + 1)
        alone = verify_sampled(
            rule,
            Draft(
                token_ids=draft.token_ids[row], lengths=draft.lengths[row], probs=draft.probs[row]
            ),
            target[row],
            accept_coins=accept[row],
            next_coins=last[row],
        )
        assert verdict_key(alone) == [[part[b]] for part in verdict_key(verdict)]


# Knobs


@every
def test_it_says_what_it_is(name):
    rule = policy(name)
    assert rule.type == name
    assert rule.idea
    assert rule.paper
    assert rule.is_strict == (name not in RELAXED)
    doc = inspect.getdoc(sys.modules[type(rule).__module__]).lower()
    assert "limits" in doc, "A rule states its two limits."
    assert "bonus token" in doc, "A rule states where the bonus token comes from."


@every
def test_every_knob_is_described_and_has_one_default(name):
    fields = type(policy(name)).model_fields
    assert all(field.description for knob, field in fields.items() if knob != "type")
    assert not any(field.is_required() for field in fields.values())
    assert fields["type"].default == name
    assert policy(name).spec == name


@pytest.mark.parametrize("spec", [*NAMES, *SPECS])
def test_spec_and_json_round_trip(spec):
    rule = policy(spec)
    assert policy(rule.spec) == rule
    assert policy(rule.spec).spec == rule.spec
    assert type(rule).model_validate(rule.model_dump()) == rule
    assert type(rule).model_validate_json(rule.model_dump_json()) == rule


def test_specs_are_spelt_as_written():
    unchanged = [s for s in SPECS if set(s) - set(policy(s).spec) == set()]
    assert unchanged == SPECS


@every
def test_it_is_frozen_and_refuses_what_it_does_not_know(name):
    rule = policy(name)
    with pytest.raises(ValidationError, match="frozen"):
        rule.type = "other"
    with pytest.raises(ConfigError, match=f"policy '{name}' has no knob 'nonsense'"):
        policy(f"{name}:nonsense=1")
    with pytest.raises(ValidationError, match="Extra inputs"):
        type(rule)(nonsense=1)
    for knob in set(type(rule).model_fields) - {"type"}:
        with pytest.raises(ConfigError, match=f"no knob '{knob}s'.*Did you mean.*'{knob}'"):
            policy(f"{name}:{knob}s=1")


@every
def test_a_near_name_is_suggested(name):
    with pytest.raises(RegistryError, match=f"Did you mean.*'{name}'.*Available: .*asd"):
        policy(name + "x")


@pytest.mark.parametrize("name", RELAXED)
def test_no_number_is_refused(name):
    """NaN is no setting: every comparison with it is false, and a budget would look unlimited."""
    for knob, field in type(policy(name)).model_fields.items():
        if "float" in str(field.annotation):
            with pytest.raises(ConfigError, match=knob):
                policy(f"{name}:{knob}=nan")
