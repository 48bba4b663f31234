"""Where a request ends is decided inside the block, before anything else sees its tokens.

Seen in HF#48039 and #47912, sglang#31599 and
onnxruntime-genai#2528: a stop string or end id inside an accepted block was missed,
reported as a length stop, or leaked what stood behind it.
"""

import pytest

from lenity.drafters.autoregressive import Autoregressive
from lenity.engine.decode import Decoder
from lenity.models.causal import CausalLM
from tests.cases.rig import (
    PROMPTS,
    SELF,
    CharTokenizer,
    anti_oracle,
    build,
    check_accounts,
    cousin,
    oracle,
    pattern,
    reference,
    runner_up,
    scripted,
    target,
)

PROMPT = PROMPTS[2]
GAMMA = 5


@pytest.fixture(scope="module")
def model():
    return CausalLM(build("llama"), tokenizer=CharTokenizer(), name="tiny:llama")


@pytest.fixture(scope="module")
def expected():
    """What the target says when nothing stops it."""
    return reference().greedy(PROMPT, 24)


DRAFTERS = {
    "none": lambda: None,
    "oracle": lambda: scripted(oracle(reference())),
    "anti-oracle": lambda: scripted(anti_oracle(reference())),
    "uneven": lambda: scripted(pattern(reference(), 1, 4, 0, 3)),
    "assistant": lambda: Autoregressive(model=cousin()),
    "self": lambda: SELF,
}


def stopped(ids, stop, room, *, include):
    """(number of ids, reason, text): character by character, as if there were no blocks."""
    text = ""
    for count, token_id in enumerate(ids, start=1):
        text += CharTokenizer().decode([token_id])
        if stop in text:
            at = text.index(stop)
            return count, "stop", text[: at + (len(stop) if include else 0)]
        if count == room:
            return count, "length", text
    raise AssertionError("the run is too short")


@pytest.mark.parametrize(
    ("drafter", "include"),
    [*((name, False) for name in DRAFTERS if name != "self"), ("oracle", True)],
)
def test_stop_string_anywhere_in_a_block(model, expected, drafter, include):
    """Two characters that end at 0-based position 2, 5 (bonus), 6 (two rounds) and 11.

    The same block crosses the budget behind the string, exactly at its end, or in its middle.
    """
    for last in (2, 5, 6, 11):
        stop = CharTokenizer().decode(expected[last - 1 : last + 1])
        for room in (last, last + 1, last + 2, 24):
            decoder = Decoder(target=model, drafter=DRAFTERS[drafter]())
            result = decoder.generate(
                PROMPT, stop=stop, max_new_tokens=room, gamma=GAMMA, include_stop=include
            )
            count, reason, text = stopped(expected, stop, room, include=include)
            assert list(result.token_ids) == expected[:count]
            assert (result.finish_reason, result.text) == (reason, text)
            assert result.stop_match == (stop if reason == "stop" else None)
            check_accounts(result)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_stream_never_shows_what_the_stop_takes_away(model, expected, drafter):
    stop = CharTokenizer().decode(expected[5:8])
    _, _, text = stopped(expected, stop, 24, include=False)
    decoder = Decoder(target=model, drafter=DRAFTERS[drafter]())
    shown = ""
    for chunk in decoder.stream(PROMPT, stop=stop, max_new_tokens=24, gamma=GAMMA):
        shown += chunk.text
        assert text.startswith(shown)
    assert shown == text == chunk.generation.text
    assert chunk.generation.finish_reason == "stop"


def test_the_earliest_of_several_stops_wins(model, expected):
    early, late = (CharTokenizer().decode(expected[i : i + 2]) for i in (2, 4))
    result = Decoder(target=model, drafter=DRAFTERS["oracle"]()).generate(
        PROMPT, stop=(late, early), max_new_tokens=24, gamma=GAMMA
    )
    assert (result.stop_match, list(result.token_ids)) == (early, expected[:4])


def test_a_stop_string_does_not_reach_into_the_prompt(model, expected):
    stop = CharTokenizer().decode([PROMPT[-1], expected[0]])
    result = Decoder(target=model, drafter=DRAFTERS["oracle"]()).generate(
        PROMPT, stop=stop, max_new_tokens=12, gamma=GAMMA
    )
    assert (result.finish_reason, list(result.token_ids)) == ("length", expected[:12])


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("at", [2, 5, 6])
def test_an_end_id_anywhere_in_a_block(expected, drafter, at):
    """As end-of-sequence id of the model, one of a list, and as a stop id of the request."""
    end = expected[at]
    count = expected.index(end) + 1
    ending = CausalLM(build("llama"), name="tiny:llama")
    ending.eos_token_ids = frozenset({126, end} - set(expected[: count - 1]))
    for model, changes in ((ending, {}), (target(), {"stop_token_ids": (end,)})):
        result = Decoder(target=model, drafter=DRAFTERS[drafter]()).generate(
            PROMPT, max_new_tokens=24, gamma=GAMMA, **changes
        )
        assert list(result.token_ids) == expected[:count]
        assert (result.finish_reason, result.stop_match) == ("stop", end)
        check_accounts(result)
    result = Decoder(target=ending, drafter=DRAFTERS[drafter]()).generate(
        PROMPT, max_new_tokens=24, gamma=GAMMA, ignore_eos=True
    )
    assert (list(result.token_ids), result.finish_reason) == (expected, "length")


@pytest.mark.parametrize("policy", ["strict", "asd:budget=inf,gate=inf,block_cap=none"])
def test_an_end_id_in_a_draft_is_only_a_proposal(expected, policy):
    """The drafter ends every block at once; the target does not, and no rule may relax that."""
    known = reference()
    end = known.rank(PROMPT, 1)
    assert end not in expected
    result = Decoder(
        target=target(), drafter=scripted(lambda ids, limit: [end] * limit), policy=policy
    ).generate(PROMPT, max_new_tokens=24, gamma=GAMMA, stop_token_ids=(end,))
    assert (list(result.token_ids), result.finish_reason) == (expected, "length")
    # the control: where the id ends nothing, the open rule takes it
    free = Decoder(
        target=target(), drafter=scripted(lambda ids, limit: [end] * limit), policy=policy
    ).generate(PROMPT, max_new_tokens=24, gamma=GAMMA)
    assert (end in free.token_ids) == (policy != "strict")


def test_an_end_id_is_never_relaxed_away(expected):
    """The drafter offers the runner-up where the target ends; an open rule must not take it."""
    end = expected[3]
    assert end not in expected[:3]

    def script(ids, limit):
        out = oracle(reference())(ids, limit)
        return [
            runner_up(reference())([*ids, *out[:i]], 1)[0] if t == end else t
            for i, t in enumerate(out)
        ]

    open_rule = "asd:budget=inf,gate=inf,block_cap=none"
    result = Decoder(target=target(), drafter=scripted(script), policy=open_rule).generate(
        PROMPT, max_new_tokens=24, gamma=GAMMA, stop_token_ids=(end,)
    )
    assert (list(result.token_ids), result.finish_reason) == (expected[:4], "stop")
    loose = Decoder(
        target=target(), drafter=scripted(script), policy=open_rule + ",relax_special=true"
    ).generate(PROMPT, max_new_tokens=24, gamma=GAMMA, stop_token_ids=(end,))
    assert loose.token_ids[:3] == tuple(expected[:3])
    assert loose.token_ids[3] != end
