"""Every emitted token has one log-probability, and it is the target's own.

Seen in llama.cpp#27972 (0.0 for every token), vllm#17876 and #33391 and
rMLX#542: values of the draft, of the first token only, or of other positions.
"""

from functools import cache

import pytest
import torch

from lenity.drafters.autoregressive import Autoregressive
from lenity.engine.decode import Decoder
from lenity.models.causal import CausalLM
from tests.cases.rig import (
    PROMPTS,
    Reference,
    build,
    check_accounts,
    cousin,
    pattern,
    runner_up,
    scripted,
)


@cache
def reference():
    """Small logits: at 24 nats float32 itself is off by 1e-5 after a few additions."""
    return Reference(CausalLM(build("llama", head_scale=1.0), name="tiny:llama"))


def target():
    return reference().model


GAMMA, COUNT, TOP = 5, 18, 5
RUNS = {
    "plain": (lambda known: None, "strict"),
    "strict": (lambda known: scripted(pattern(known, 0, 5, 2, None)), "strict"),
    "assistant": (lambda known: Autoregressive(model=cousin()), "strict"),
    "top_k": (lambda known: scripted(runner_up(known)), "top_k:k=2"),
    "asd": (lambda known: scripted(runner_up(known)), "asd:budget=inf,gate=inf,block_cap=none"),
    "priced": (lambda known: scripted(runner_up(known)), "priced:budget=inf,price=0"),
}


def check_receipts(result, logits, *, processed=None):
    """Against teacher-forced logits (N, V) of the emitted ids, float64."""
    law = logits.log_softmax(-1)
    chosen = logits if processed is None else processed
    assert len(result.receipt) == len(result.token_ids) == len(law)
    for receipt, row, own in zip(result.receipt, law, chosen, strict=True):
        assert receipt.logprob == pytest.approx(float(row[receipt.token_id]), abs=1e-5)
        assert receipt.logprob != 0.0  # the model is never certain
        best = row.topk(TOP)
        assert [token for token, _ in receipt.top_logprobs] == best.indices.tolist()
        assert [value for _, value in receipt.top_logprobs] == pytest.approx(
            best.values.tolist(), abs=1e-5
        )
        if receipt.kind == "relaxed":
            regret = float(own.max() - own[receipt.token_id])
            assert receipt.regret == pytest.approx(regret, abs=1e-5)
            assert receipt.regret > 0
            assert receipt.rank == int((own > own[receipt.token_id]).sum()) > 0
            assert receipt.choice_id == int(own.argmax()) != receipt.token_id
        else:
            assert (receipt.regret, receipt.rank, receipt.choice_id) == (0.0, None, None)
    check_accounts(result)


@pytest.mark.parametrize(
    ("name", "chunk_bytes"),
    [*((name, 1 << 28) for name in RUNS), ("strict", 4 * 128), ("asd", 4 * 128)],
)
def test_log_probabilities_are_the_teacher_forced_ones(name, chunk_bytes):
    """In one chunk of logits, and row by row."""
    drafter, rule = RUNS[name]
    known = reference()
    decoder = Decoder(
        target=target(), drafter=drafter(known), policy=rule, max_logits_bytes=chunk_bytes
    )
    results = decoder.generate(PROMPTS, max_new_tokens=COUNT, gamma=GAMMA, top_logprobs=TOP)
    for prompt, result in zip(PROMPTS, results, strict=True):
        ids = [*prompt, *result.token_ids]
        check_receipts(result, known.teacher_forced(ids, len(prompt)))
        assert (result.num_relaxed > 0) == (name in ("top_k", "asd", "priced"))
    without = decoder.generate(PROMPTS, max_new_tokens=COUNT, gamma=GAMMA)
    if name not in ("strict",):  # its pattern counts on
        for one, other in zip(without, results, strict=True):
            assert one.token_ids == other.token_ids
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-6)
            assert [t.rank for t in one.receipt] == [t.rank for t in other.receipt]


@pytest.mark.parametrize("kind", ["raw", "processed"])
@pytest.mark.parametrize("name", ["plain", "top_k"])
def test_raw_and_processed_log_probabilities_with_a_processor(name, kind):
    """The price of a relaxed token is always that of the logits the choice was made from."""
    drafter, rule = RUNS[name]
    known = reference()
    result = Decoder(target=target(), drafter=drafter(known), policy=rule).generate(
        PROMPTS[1],
        max_new_tokens=COUNT,
        gamma=GAMMA,
        top_logprobs=TOP,
        logprobs=kind,
        presence_penalty=2.5,
    )
    raw = known.teacher_forced([*PROMPTS[1], *result.token_ids], len(PROMPTS[1]))
    processed = raw.clone()
    for position in range(COUNT):
        seen = list(set(result.token_ids[:position]))
        processed[position, seen] -= 2.5
    assert not torch.equal(raw, processed)
    check_receipts(result, raw if kind == "raw" else processed, processed=processed)


def test_sampled_log_probabilities_know_no_temperature_and_no_filter():
    known = reference()
    results = Decoder(target=target(), drafter=Autoregressive(model=cousin())).generate(
        PROMPTS, max_new_tokens=COUNT, gamma=GAMMA, top_logprobs=TOP, temperature=1.3, top_k=20
    )
    for prompt, result in zip(PROMPTS, results, strict=True):
        ids = [*prompt, *result.token_ids]
        check_receipts(result, known.teacher_forced(ids, len(prompt)))


def test_a_certain_token_has_log_probability_zero():
    """Where p is 1, 0 is the right answer."""

    class Only:
        def start(self, prompt_ids):
            return 0

        def advance(self, state, token_id):
            return state + 1

        def apply(self, logits, state):
            return torch.full_like(logits, -float("inf")).index_fill(0, torch.tensor([state]), 0.0)

    result = Decoder(target=target(), drafter=scripted(runner_up(reference()))).generate(
        PROMPTS[1], max_new_tokens=4, gamma=GAMMA, processors=(Only(),), logprobs="processed"
    )
    assert (result.token_ids, result.logprobs) == ((0, 1, 2, 3), (0.0,) * 4)
