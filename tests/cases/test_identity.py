"""A model that drafts for itself is always right; what it still loses, rounding took.

Seen in llama.cpp#25618, mlx-examples#149 and vllm-metal#447: a cache one
token off hides behind any drafter but the target itself, and in bfloat16 every drafter diverges
from plain decoding at the same token, which is the verifier's doing and not the drafter's.
"""

import pytest
import torch

from lenity.engine.decode import Decoder
from lenity.models.causal import CausalLM
from tests.cases.rig import (
    PROMPTS,
    SELF,
    VARIANTS,
    Reference,
    build,
    follow,
    plain,
    scripted,
    target,
)


@pytest.mark.parametrize(("family", "attn"), VARIANTS)
def test_self_drafting_accepts_everything(family, attn):
    model = target(family, attn)
    expected = [result.token_ids for result in plain(model, PROMPTS, max_new_tokens=16)]
    for gamma in (1, 5):
        decoder = Decoder(target=model, drafter=SELF)
        found = decoder.generate(PROMPTS, max_new_tokens=16, gamma=gamma)
        assert [result.token_ids for result in found] == expected
        for result in found:
            assert result.acceptance_rate == 1.0
            assert all(r.accepted == r.evaluated == r.drafted for r in result.rounds)
            assert all(r.drafted == gamma for r in result.rounds[:-1])
            assert len(result.rounds) == -(-16 // (gamma + 1))


def wrong_after(known, ranks, *correct):
    """Right for ``correct[round]`` tokens, then the ones of these ranks, over and over.

    It counts rounds by committed length, so that it says the same to every caller.
    """

    def script(ids, limit):
        right = correct[len(ids) % len(correct)]
        wrong = [ranks[i % len(ranks)] for i in range(limit)]
        return follow(ids, [0 if i < right else wrong[i] for i in range(limit)], known)

    return script


def first_difference(one, other):
    pairs = enumerate(zip(one, other, strict=True))
    return next((i for i, (a, b) in pairs if a != b), None)


def score_as_blocks(model, prompt, result):
    """The control without a drafter: the emitted ids scored in the rounds' own widths.

    A fresh cache; where the drafter was wrong stands token 0. Returns the argmax of every row that
    emitted a token.
    """
    cache, chosen = model.new_cache(1), []
    if prompt[1:]:
        model.hidden_states(torch.tensor([prompt[:-1]]), cache)
        cache.commit([len(prompt) - 1])
    ids, start = [*prompt, *result.token_ids], len(prompt) - 1
    for record in result.rounds:
        block = ids[start : start + record.emitted]
        block += [0] * (record.evaluated + 1 - len(block))
        logits = model.logits(model.hidden_states(torch.tensor([block]), cache).last)[0]
        chosen += logits[: record.emitted].float().argmax(-1).tolist()
        cache.commit([record.emitted])
        start += record.emitted
    return chosen


@pytest.mark.parametrize(("family", "prompts"), [("llama", PROMPTS[::3]), ("gpt2", PROMPTS[1:3])])
def test_in_bfloat16_the_shape_of_the_pass_decides_and_not_the_drafter(family, prompts):
    """Three drafters, equal in how much of them is right, different in every wrong token.

    The passes have the same widths, so all ids are the same, first divergence from plain included.
    The control reproduces them without any drafter, and where they leave plain the two tokens are a
    tie: in float32 the same weights put them closer than bfloat16 can tell apart.
    """
    module = build(family, "sdpa", head_scale=1.0)
    exact = Reference(CausalLM(module))
    rounded = CausalLM(build(family, "sdpa", head_scale=1.0).to(torch.bfloat16))
    known, num_divergences = Reference(rounded), 0
    for prompt in prompts:
        (alone,) = plain(rounded, [prompt], max_new_tokens=56)
        results = [
            Decoder(target=rounded, drafter=scripted(wrong_after(known, ranks, 0, 2, 4))).generate(
                prompt, max_new_tokens=56, gamma=5
            )
            for ranks in ([-1], [40, 50], [70])
        ]
        assert len({result.token_ids for result in results}) == 1
        result = results[0]
        assert 0 < result.acceptance_rate < 1
        assert score_as_blocks(rounded, prompt, result) == list(result.token_ids)
        at = first_difference(alone.token_ids, result.token_ids)
        if at is not None:
            num_divergences += 1
            row = exact.row([*prompt, *alone.token_ids[:at]])
            one, other = row[alone.token_ids[at]], row[result.token_ids[at]]
            # half of the noise that bfloat16 activations leave on logits of this size
            assert abs(one - other) < 2**-4 * row.abs().max()
    if not num_divergences:
        pytest.skip("on this CPU bfloat16 kernels do not depend on the width: nothing diverged")
