"""Logits processors see every position of a block as if it were decoded alone.

Seen in sglang#33643 (penalties weakened by the accepted length, min_new_tokens counted
in rounds), vllm#33251 and #18902 (counted twice, ignored) and vmlx-swift#357
(state shared by copies).
"""

from dataclasses import dataclass
from functools import cache

import pytest
import torch

from lenity.drafters.autoregressive import Autoregressive
from lenity.engine.decode import Decoder
from lenity.models.causal import CausalLM
from lenity.policies import POLICIES
from lenity.requests import GenerationSettings, Request
from tests.cases.rig import (
    PROMPTS,
    SELF,
    anti_oracle,
    build,
    check_accounts,
    cousin,
    hf_greedy,
    plain,
    reference,
    runner_up,
    scripted,
    target,
)

GAMMA, COUNT = 5, 20


@dataclass(frozen=True)
class Machine:
    """Seven states; in state s every token t with (t + s) % 3 == 0 is forbidden."""

    def start(self, prompt_ids):
        return len(prompt_ids) % 7

    def advance(self, state, token_id):
        return (3 * state + token_id + 1) % 7

    def forbids(self, state, token_id):
        return (token_id + state) % 3 == 0

    def apply(self, logits, state):
        tokens = torch.arange(len(logits))
        return logits.masked_fill((tokens + state) % 3 == 0, -float("inf"))


@dataclass(frozen=True)
class Witness:
    """Its state is every token so far; what it is shown must be one text growing."""

    def start(self, prompt_ids):
        return tuple(prompt_ids)

    def advance(self, state, token_id):
        return (*state, token_id)

    def apply(self, logits, state):
        tokens = torch.arange(len(logits))
        return logits.masked_fill((tokens + sum(state)) % 2 == 0, -float("inf"))


CONSTRAINTS = {
    "repetition": {"repetition_penalty": 1.7},
    "presence": {"presence_penalty": 6.0},
    "frequency": {"frequency_penalty": 4.0},
    "machine": {"processors": (Machine(),)},
    "witness": {"processors": (Witness(),)},
    "all": {
        "repetition_penalty": 1.2,
        "presence_penalty": 1.0,
        "frequency_penalty": 2.0,
        "processors": (Machine(), Witness()),
    },
}
DRAFTERS = {
    "ngram": lambda: "ngram:min_match=1",
    "self": lambda: SELF,  # the target without its processors: often right, never by itself
    "cousin": lambda: Autoregressive(model=cousin()),
    "runner-up": lambda: scripted(runner_up(reference())),
    "anti-oracle": lambda: scripted(anti_oracle(reference())),
}


@cache
def expect(name):
    """Plain decoding under a constraint, which is not what the target says without."""
    results = plain(target(), PROMPTS[:3], max_new_tokens=COUNT, **CONSTRAINTS[name])
    for prompt, result in zip(PROMPTS, results, strict=False):
        assert list(result.token_ids) != reference().greedy(prompt, COUNT)
    return results


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_a_processed_run_equals_the_plain_one(name, drafter):
    model, changes = target(), {"max_new_tokens": COUNT, **CONSTRAINTS[name]}
    expected = expect(name)
    found = Decoder(target=model, drafter=DRAFTERS[drafter](), max_batch_size=2).generate(
        PROMPTS[:3], gamma=GAMMA, **changes
    )
    for one, other in zip(expected, found, strict=True):
        assert one.token_ids == other.token_ids
        assert one.processor_states == other.processor_states
        assert one.processor_states
        check_accounts(other)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_repetition_penalty_is_the_one_of_transformers(family):
    model, prompt = target(family), PROMPTS[1]
    result = Decoder(target=model, drafter=SELF).generate(
        prompt, max_new_tokens=COUNT, gamma=GAMMA, repetition_penalty=1.7
    )
    assert list(result.token_ids) == hf_greedy(model, prompt, COUNT, repetition_penalty=1.7)


def test_the_count_penalties_by_hand():
    """A loop without blocks: z - presence - frequency * occurrences among the new tokens."""
    known, ids, new = reference(), list(PROMPTS[1]), []
    for _ in range(COUNT):
        row = known.row([*ids, *new]).clone()
        for token_id in set(new):
            row[token_id] -= 3.0 + 2.0 * new.count(token_id)
        new.append(int(row.argmax()))
    result = Decoder(target=target(), drafter=SELF).generate(
        ids, max_new_tokens=COUNT, gamma=GAMMA, presence_penalty=3.0, frequency_penalty=2.0
    )
    assert list(result.token_ids) == new


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_min_new_tokens_counts_tokens_and_not_rounds(drafter):
    """transformers' generate is the judge; self-drafting would be through it in two rounds."""
    prompt = PROMPTS[2]
    free = reference().greedy(prompt, COUNT)
    ending = CausalLM(build("llama"), name="tiny:llama")
    ending.eos_token_ids = frozenset({free[2]})
    for least in (0, 3, 7, 13):
        expected = hf_greedy(
            ending, prompt, COUNT, min_new_tokens=least, eos_token_id=free[2], pad_token_id=0
        )
        result = Decoder(target=ending, drafter=DRAFTERS[drafter]()).generate(
            prompt, max_new_tokens=COUNT, gamma=GAMMA, min_new_tokens=least
        )
        assert list(result.token_ids) == expected
        assert len(expected) >= max(least, 3)
        assert free[2] not in expected[: max(least - 1, 0)]


@pytest.mark.parametrize("policy", POLICIES.names())
def test_no_rule_accepts_a_forbidden_token(policy):
    """The drafter always offers the raw runner-up, forbidden a third of the time."""
    wide = {
        "asd": "asd:budget=inf,gate=inf,block_cap=none",
        "fuzzy": "fuzzy:divergence=js,threshold=0.7",
        "lenience": "lenience:ratio=1e-30",
        "priced": "priced:budget=inf,price=0",
        "top_k": "top_k:k=128",
    }.get(policy, policy)
    decoder = Decoder(target=target(), drafter=scripted(runner_up(reference())), policy=wide)
    machine = Machine()
    for prompt in PROMPTS[:3]:
        result = decoder.generate(prompt, max_new_tokens=COUNT, gamma=GAMMA, processors=(machine,))
        state = machine.start(prompt)
        for token_id in result.token_ids:
            assert not machine.forbids(state, token_id)
            state = machine.advance(state, token_id)
        assert result.processor_states == (state,)
        if policy != "strict":
            assert result.num_relaxed


def test_a_processed_row_leaves_its_neighbours_alone():
    base = {"max_new_tokens": COUNT, "gamma": GAMMA}
    requests = [
        Request(prompt=PROMPTS[0], settings=GenerationSettings(**base)),
        Request(prompt=PROMPTS[1], settings=GenerationSettings(**base, processors=(Machine(),))),
        Request(prompt=PROMPTS[2], settings=GenerationSettings(**base, repetition_penalty=1.7)),
    ]
    together = Decoder(target=target(), drafter=SELF).generate(requests)
    for request, result in zip(requests, together, strict=True):
        alone = Decoder(target=target()).generate(request)
        assert result.token_ids == alone.token_ids
        assert result.processor_states == alone.processor_states
