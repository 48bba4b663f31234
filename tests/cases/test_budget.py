"""Exactly as many tokens as asked for, and no draft longer than what could still be emitted.

Seen in lattice#242, sglang#37450 and ik_llama#2358: one
token asked, four delivered; fewer than asked; counters that say something else than the ids.
"""

import pytest

from lenity.engine.decode import Decoder
from lenity.requests import GenerationSettings, Request
from tests.cases.rig import (
    PROMPTS,
    SELF,
    anti_oracle,
    check_accounts,
    empty,
    oracle,
    pattern,
    reference,
    runner_up,
    scripted,
    target,
    watched,
)

GAMMA = 5
COUNTS = [1, 2, GAMMA - 1, GAMMA, GAMMA + 1, 2 * GAMMA + 1]

DRAFTERS = {
    "oracle": lambda known: scripted(oracle(known)),
    "anti-oracle": lambda known: scripted(anti_oracle(known)),
    "runner-up": lambda known: scripted(runner_up(known)),
    "uneven": lambda known: scripted(pattern(known, 0, 3, None, 5)),
    "empty": lambda known: scripted(empty),
    "ngram": lambda known: "ngram:min_match=1",
    "self": lambda known: SELF,
}
RUNS = [
    *[(family, name, "strict") for family in ("llama", "gpt2") for name in DRAFTERS],
    ("llama", "runner-up", "asd:budget=inf,gate=inf,block_cap=none"),
]


def check_room(result, count):
    """No round drafts beyond what is left, less the token the target adds itself."""
    left = count
    for record in result.rounds:
        assert record.evaluated <= record.drafted <= left - 1
        assert record.emitted <= record.evaluated + 1
        left -= record.emitted
    assert left == count - len(result.token_ids)


@pytest.mark.parametrize(("family", "drafter", "policy"), RUNS)
def test_exactly_the_tokens_asked_for(family, drafter, policy):
    """A prompt of one token, and of five; the widths that the target really runs are watched."""
    model, known = target(family), reference(family)
    prompt = PROMPTS[0 if family == "llama" else 1]
    widths = []
    with watched(model.module, lambda args: widths.append(args["input_ids"].shape[1])):
        for count in COUNTS:
            widths.clear()
            decoder = Decoder(target=model, drafter=DRAFTERS[drafter](known), policy=policy)
            result = decoder.generate(prompt, max_new_tokens=count, gamma=GAMMA)
            assert len(result.token_ids) == count
            assert (result.finish_reason, result.stop_match) == ("length", None)
            assert result.num_target_passes == len(result.rounds)
            check_accounts(result)
            check_room(result, count)
            # a prefill, and then never wider than the tokens that may still come
            assert max(widths) <= max(count, len(prompt))


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_rows_of_one_batch_keep_their_own_count(drafter):
    requests = [
        Request(prompt=prompt, settings=GenerationSettings(max_new_tokens=count, gamma=GAMMA))
        for prompt, count in zip(PROMPTS * 2, [*COUNTS, 9, 3], strict=True)
    ]
    model, known = target(), reference()
    decoder = Decoder(target=model, drafter=DRAFTERS[drafter](known), max_batch_size=3)
    for request, result in zip(requests, decoder.generate(requests), strict=True):
        count = request.settings.max_new_tokens
        assert list(result.token_ids) == known.greedy(request.prompt, count)
        check_accounts(result)
        check_room(result, count)


@pytest.mark.parametrize("drafter", ["oracle", "anti-oracle", "self"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_context_is_filled_to_the_last_position(family, drafter):
    """A learned table has no row behind its end: drafts must stop before it, not crash."""
    model, known = target(family), reference(family)
    prompt = [(7 * i) % 128 for i in range(model.max_positions - 4)]
    result = Decoder(target=model, drafter=DRAFTERS[drafter](known)).generate(
        prompt, max_new_tokens=20, gamma=GAMMA
    )
    assert list(result.token_ids) == known.greedy(prompt, 4)
    assert result.finish_reason == "context"
    check_accounts(result)
    check_room(result, 4)


@pytest.mark.parametrize("drafter", ["oracle", "anti-oracle", "self"])
def test_a_row_at_the_end_of_the_context_survives_a_wide_neighbour(drafter):
    """The neighbour's block pads the full row beyond the last learned position."""
    model, known = target("gpt2"), reference("gpt2")
    full = [(7 * i) % 128 for i in range(model.max_positions - 2)]
    decoder = Decoder(target=model, drafter=DRAFTERS[drafter](known))
    at_end, beside = decoder.generate([full, PROMPTS[1]], max_new_tokens=12, gamma=GAMMA)
    assert list(at_end.token_ids) == known.greedy(full, 2)
    assert at_end.finish_reason == "context"
    assert list(beside.token_ids) == known.greedy(PROMPTS[1], 12)
