"""What every drafter owes its engine; a new registry entry is covered here for free."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch

from lenity.drafters import DRAFTERS, Drafter, drafter
from lenity.engine.decode import Decoder
from lenity.errors import ConfigError
from lenity.models.causal import CausalLM
from lenity.requests import Request
from lenity.sampling import Sampling
from tests.drafters.heads import tiny_dflash, tiny_dspark, tiny_medusa
from tests.drafters.permuted import masked as permuted_masked
from tests.drafters.permuted import permuted
from tests.drafters.rig import GREEDY, Rig, drafted, plainly, tiny_llama
from tests.models.heads.tiny import eagle3_folder
from tests.models.masked_tiny import masked_folder

WORDS = 120
TARGET = tiny_llama(0, words=WORDS, name="tiny:target")  # its head has 8 rows of padding
SMALL = tiny_llama(1, layers=1, vocab_size=124, words=WORDS, name="tiny:small")
PROMPTS = [[5, 6, 7, 8, 5, 6, 7], [9], [3, 4] * 6 + [3], [20, 21, 22, 20, 21]]
SAMPLED = Sampling(temperature=0.8, top_p=0.95)


@cache
def eagle3() -> Drafter:
    folder = eagle3_folder(
        Path(mkdtemp()), target_size=TARGET.hidden_size, vocab_size=TARGET.vocab_size
    )
    return drafter("eagle3", model=str(folder), taps="0+1+2")


@cache
def masked(dialect: str) -> Drafter:
    folder = masked_folder(Path(mkdtemp()), dialect, vocab_size=TARGET.vocab_size, mask=WORDS + 1)
    return drafter("masked_diffusion", model=str(folder))


@cache
def mapped() -> Drafter:
    folder = permuted_masked(Path(mkdtemp()))
    return drafter("masked_diffusion", model=str(folder), id_map="content")


CASES: dict[str, Callable[[], Drafter]] = {
    "masked_diffusion": lambda: masked("dream"),
    "masked_diffusion-llada": lambda: masked("llada"),
    "eagle3": eagle3,
    "dflash": lambda: drafter("dflash", model=tiny_dflash(TARGET)),
    "dspark": lambda: drafter("dspark", model=tiny_dspark(TARGET)),
    "medusa": lambda: drafter("medusa", model=tiny_medusa(TARGET)),
    "ngram": lambda: drafter("ngram:min_match=1"),
    "masked_diffusion-mapped": mapped,
    "autoregressive": lambda: drafter("autoregressive", model=SMALL),
    "autoregressive-mapped": lambda: drafter("autoregressive", model=permuted(), id_map="content"),
    "autoregressive-itself": lambda: drafter("autoregressive:model=target"),
    "self_speculative": lambda: drafter("self_speculative:skip=1"),
}


def build(case: str) -> Drafter:
    return CASES[case]() if case in CASES else drafter(case)


every_drafter = pytest.mark.parametrize("case", sorted(set(CASES) | set(DRAFTERS.names())))


def rig(case: str, prompts=PROMPTS, target: CausalLM = TARGET) -> Rig:
    made = Rig(target, build(case))
    for seed, prompt in enumerate(prompts):
        made.admit(prompt, seed)
    return made


@every_drafter
def test_limits_are_kept(case):
    made = rig(case)
    for limits in ([4, 0, 2, 1], [0, 3, 0, 0], [1, 1, 5, 5]):
        draft = made.propose(limits)
        assert draft.token_ids.shape[0] == len(limits)
        assert draft.gamma <= max(limits)
        lengths = draft.lengths.tolist()
        assert all(0 <= n <= most for n, most in zip(lengths, limits, strict=True))
        assert draft.token_ids.dtype == draft.lengths.dtype == torch.int64
        made.finish(draft)


@every_drafter
def test_nobody_asking_is_no_draft(case):
    made = rig(case)
    for limits in ([0, 0, 0, 0], [2, 2, 2, 2], [0, 0, 0, 0]):
        draft = made.propose(limits)
        if not any(limits):
            assert draft.gamma == 0
            assert draft.lengths.tolist() == [0, 0, 0, 0]
        made.finish(draft)


@every_drafter
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_only_known_ids_are_drafted(case, sampling):
    made = rig(case, [[124, 5, 6, 124, 5], [2, 127, 2]])  # ids of the padding, in the prompt
    for _ in range(6):
        draft = made.propose([5, 5], [sampling] * 2)
        assert all(0 <= token < WORDS for row in drafted(draft) for token in row)
        if draft.probs is not None:
            assert draft.probs.shape[-1] == TARGET.vocab_size
            assert not draft.probs[..., WORDS:].any()
        made.finish(draft, forced=[1, 5])


@every_drafter
def test_the_context_is_only_read(case):
    made = rig(case)
    context = made.context([3, 2, 0, 4], [GREEDY, SAMPLED, SAMPLED, GREEDY])
    before = copy.deepcopy((context.token_ids, context.limits, context.sampling))
    made.session.propose(context)
    assert (context.token_ids, context.limits, context.sampling) == before
    assert made.cache.lengths == [len(row) - 1 for row in made.rows]


@every_drafter
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_the_same_history_drafts_the_same(case, sampling):
    first, second = rig(case), rig(case)
    for limits in ([4, 4, 4, 4], [1, 4, 2, 0], [3, 3, 3, 3]):
        ours = first.propose(limits, [sampling] * 4)
        theirs = second.propose(limits, [sampling] * 4)
        for name in ("token_ids", "lengths", "probs", "confidence"):
            mine, other = getattr(ours, name), getattr(theirs, name)
            assert mine is other is None or torch.equal(mine, other), name
        first.finish(ours)
        second.finish(theirs)


@every_drafter
def test_asking_twice_in_one_round_drafts_the_same(case):
    made = rig(case)
    made.round([3, 3, 3, 3])
    first = made.propose([3, 3, 3, 3])
    assert drafted(made.propose([3, 3, 3, 3])) == drafted(first)


@every_drafter
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_batch_mates_change_nothing(case, sampling):
    limits = [4, 2, 3, 5]
    together = rig(case)
    alone = [rig(case, []) for _ in PROMPTS]
    for seed, (made, prompt) in enumerate(zip(alone, PROMPTS, strict=True)):
        made.admit(prompt, seed)
    for _ in range(4):
        draft = together.propose(limits, [sampling] * 4)
        for b, made in enumerate(alone):
            solo = made.propose([limits[b]], [sampling])
            assert drafted(solo)[0] == drafted(draft)[b]
            width = int(draft.lengths[b])
            if draft.probs is not None and width:
                assert torch.allclose(solo.probs[0, :width], draft.probs[b, :width], atol=1e-5)
            made.finish(solo)
        together.finish(draft)


@every_drafter
def test_rows_of_other_rules_and_temperatures_change_nothing(case):
    """The engine takes such rows apart, whatever a draft of this drafter carries."""
    rules = [("strict", 0.0), ("asd:budget=2", 0.0), ("strict", 0.8), ("fuzzy", 0.0)]
    decoder = Decoder(target=TARGET, drafter=build(case))
    requests = [
        Request(prompt=ids, policy=rule, settings={"temperature": t, "seed": row, "gamma": 3})
        for row, (ids, (rule, t)) in enumerate(zip(PROMPTS, rules, strict=True))
    ]
    together = decoder.generate(requests, max_new_tokens=8)
    for request, own in zip(requests, together, strict=True):
        (alone,) = decoder.generate([request], max_new_tokens=8)
        assert own.token_ids == alone.token_ids
        assert [t.kind for t in own.receipt] == [t.kind for t in alone.receipt]


@every_drafter
def test_rows_enter_and_leave(case):
    made = rig(case, PROMPTS[:2])
    made.round([3, 3])
    made.admit(PROMPTS[2])
    made.round([4, 1, 2])
    made.keep([2, 0])
    made.round([2, 5])
    made.admit(PROMPTS[3])
    made.keep([2, 1])
    made.round([3, 3])
    for row, prompt in zip(made.rows, (PROMPTS[3], PROMPTS[0]), strict=True):
        assert row[len(prompt) :] == plainly(TARGET, prompt, len(row) - len(prompt))
    assert drafted(made.propose([4, 4])) == drafted(rig(case, made.rows).propose([4, 4]))
    made.keep([])
    assert made.propose([]).token_ids.shape == (0, 0)
    made.admit(PROMPTS[1])
    assert drafted(made.propose([4])) == drafted(rig(case, [PROMPTS[1]]).propose([4]))


@every_drafter
def test_a_draft_follows_from_the_committed_tokens_alone(case):
    made = rig(case)
    for turn, count in enumerate([0, 4, 1, 3, 0, 0, 4, 2]):
        draft = made.propose([4, 4 if turn % 2 else 0, 3, 4])
        fresh = rig(case, made.rows).propose([4, 4 if turn % 2 else 0, 3, 4])
        assert drafted(draft) == drafted(fresh), f"round {turn}"
        made.finish(draft, forced=[count, 4 - count, 1, 0])


@every_drafter
def test_verified_greedily_it_is_the_target_alone(case):
    made = rig(case)
    for limits in ([4, 2, 0, 3], [1, 0, 5, 3], [4, 4, 4, 4], [0, 0, 0, 0], [2, 3, 4, 5]):
        made.round(limits)
        assert made.cache.lengths == [len(row) - 1 for row in made.rows]
    for row, prompt in zip(made.rows, PROMPTS, strict=True):
        assert row[len(prompt) :] == plainly(TARGET, prompt, len(row) - len(prompt))


@every_drafter
def test_probs_are_laws_its_tokens_can_come_from(case):
    made = rig(case)
    draft = made.propose([4, 0, 3, 4], [SAMPLED, SAMPLED, GREEDY, SAMPLED])
    if draft.probs is None:
        return  # point masses all
    assert draft.probs.dtype == torch.float32
    assert torch.allclose(draft.probs.sum(-1), torch.ones(4, draft.gamma), atol=1e-5)
    chosen = draft.probs.gather(-1, draft.token_ids[..., None]).squeeze(-1)
    assert (chosen > 0).all()
    assert (chosen[2] == 1).all(), "a greedy row is a point mass"


@every_drafter
def test_all_greedy_needs_no_probs(case):
    assert rig(case).propose([2, 2, 2, 2]).probs is None


@every_drafter
def test_confidence_is_a_share_and_nothing_for_padding(case):
    draft = rig(case).propose([4, 1, 0, 2], [SAMPLED, GREEDY, GREEDY, SAMPLED])
    if draft.confidence is None:
        return
    is_real = torch.arange(draft.gamma) < draft.lengths[:, None]
    assert ((draft.confidence > 0) == is_real).all()
    assert (draft.confidence <= 1).all()


@every_drafter
def test_its_law_is_handed_out_at_temperature_0_unless_it_has_none(case):
    made = rig(case)
    for limits in ([4, 0, 3, 1], [2, 4, 1, 3]):
        asked = replace(made.context(limits), wants_logprobs=True)
        draft = made.session.propose(asked)
        if build(case).is_certain:
            assert draft.logprobs is None
        elif draft.gamma:
            assert draft.logprobs.shape == (4, draft.gamma, TARGET.vocab_size)
            is_real = torch.arange(draft.gamma) < draft.lengths[:, None]
            laws = draft.logprobs[is_real]
            assert torch.allclose(laws.exp().sum(-1), torch.ones(len(laws)), atol=1e-5)
            assert (laws.argmax(-1) == draft.token_ids[is_real]).all()
            assert torch.isneginf(laws[:, WORDS:]).all()
        assert drafted(made.propose(limits)) == drafted(draft)
        made.finish(draft)


NEEDS_FEATURES = {"dflash", "dspark", "eagle3", "medusa"}


@every_drafter
def test_target_features_are_asked_for_by_those_who_read_them(case):
    taps = rig(case, []).session.taps
    assert bool(taps) == (case in NEEDS_FEATURES)
    assert all(-1 <= tap <= TARGET.num_layers for tap in taps)


@pytest.mark.parametrize("name", DRAFTERS.names())
def test_settings_are_frozen_named_and_strict(name):
    kind = DRAFTERS.load(name)
    made = build(name)
    assert isinstance(made, kind)
    assert made.type == name
    assert kind.idea
    assert kind.paper
    assert str(made).startswith(name)
    for knob, field in kind.model_fields.items():
        assert field.description or knob == "type", knob
    with pytest.raises(Exception, match="frozen"):
        made.type = name
    with pytest.raises(ConfigError, match=r"has no knob 'gama'"):
        drafter(name, gama=3)


@pytest.mark.parametrize(
    "spec",
    ["ngram", "ngram:max_match=6", "autoregressive:model=target", "self_speculative:skip=0+2"],
)
def test_a_spec_survives_being_read(spec):
    assert drafter(spec).spec == spec
    assert drafter(drafter(spec).spec) == drafter(spec)
