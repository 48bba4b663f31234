import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

from lenity.engine.decode import Decoder
from lenity.engine.prepare import as_requests, make_sequence
from lenity.errors import ConfigError
from lenity.policies import policy
from lenity.processors import CountPenalty, MinNewTokens, RepetitionPenalty
from lenity.requests import GenerationSettings, Request
from tests.engine.text import Pieces, byte_tokenizer
from tests.toys import cycle_model

STRICT = policy("strict")


def row(prompt=(1, 2), *, target=None, rule=STRICT, index=0, request=None, **changes):
    request = request or Request(prompt=list(prompt) if isinstance(prompt, tuple) else prompt)
    settings = GenerationSettings.of(None, changes)
    return make_sequence(request, index, target or cycle_model(8), rule, settings)


@pytest.mark.parametrize(
    "prompt",
    ["text", [1, 2], (1, 2), np.array([1, 2]), torch.tensor([1, 2]), [{"role": "user"}]],
    ids=repr,
)
def test_one_prompt(prompt):
    requests, is_single = as_requests(prompt)
    assert is_single
    assert len(requests) == 1


def test_several_prompts():
    own = Request(prompt="b", name="mine")
    requests, is_single = as_requests(["a", own, [3, 4], torch.tensor([5]), np.array([6])])
    assert not is_single
    assert [r.prompt for r in requests] == ["a", "b", [3, 4], [5], [6]]
    assert requests[1] is own
    assert as_requests(own) == ([own], True)
    assert as_requests(torch.tensor([[1, 2], [3, 4]]))[0][1].prompt == [3, 4]
    assert as_requests([[1]]) == ([Request(prompt=[1])], False)
    assert as_requests([[{"role": "user"}], [{"role": "user"}]])[1] is False
    assert as_requests([]) == ([], False)


@pytest.mark.parametrize("prompts", [5, None, {1, 2}, torch.tensor(5), [1, "a"], ["a", None]])
def test_what_is_no_prompt_is_refused(prompts):
    with pytest.raises(ConfigError, match="text, token ids or chat messages"):
        as_requests(prompts)


def test_an_empty_prompt_is_refused():
    with pytest.raises(ConfigError, match="Request 0: expected at least one prompt token"):
        row(())
    with pytest.raises(ConfigError, match="Request 3: expected at least one prompt token"):
        row("", target=cycle_model(8, tokenizer=byte_tokenizer()), index=3)


@pytest.mark.parametrize("bad", [-1, 8, 10**12])
@pytest.mark.parametrize("field", ["prompt", "stop_token_ids", "strict_after"])
def test_ids_out_of_range_are_refused_with_their_position(field, bad):
    with pytest.raises(ConfigError, match=rf"{field}.*\[0, 8\), got {bad} at position 1"):
        row(**{field: (3, bad)})


@pytest.mark.parametrize("bad", [True, 2.5])
def test_ids_that_are_no_integers_are_refused(bad):
    # a checker of annotations may be faster
    with pytest.raises((ConfigError, TypeCheckError), match=r"integer token ids|prompt"):
        row([bad])


def test_text_chat_and_stop_strings_need_a_tokenizer():
    with pytest.raises(ConfigError, match="text needs a tokenizer, and toy:table has none"):
        row("hello")
    with pytest.raises(ConfigError, match="text needs a tokenizer"):
        row([{"role": "user", "content": "hello"}])
    with pytest.raises(ConfigError, match="stop strings need a tokenizer"):
        row(stop="x")
    target = cycle_model(256, tokenizer=byte_tokenizer())
    assert row("hi", target=target).token_ids == [104, 105]
    assert row([{"role": "user", "content": "hi"}], target=target).token_ids == [104, 105]


def test_a_prompt_longer_than_the_context_is_refused():
    target = cycle_model(8, max_positions=4)
    with pytest.raises(ConfigError, match=r"Request 0: .*toy:table, 4 tokens, got 5\. Shorten"):
        row((1, 2, 3, 4, 5), target=target)
    with pytest.raises(ConfigError, match="got 4"):  # no room for a new token
        row((1, 2, 3, 4), target=target)
    assert row((1, 2, 3), target=target).room == 1


def test_the_shorter_of_budget_and_context_is_the_room():
    target = cycle_model(8, max_positions=20)
    assert row(max_new_tokens=5, target=target).room == 5
    assert row(max_new_tokens=50, target=target).room == 18
    assert row(max_new_tokens=50).room == 50


@pytest.mark.parametrize("spec", ["asd", "lenience", "top_k", "priced"])
def test_a_greedy_rule_with_a_temperature_is_refused(spec):
    with pytest.raises(ConfigError, match=f"Request 0: {spec} is defined for greedy decoding"):
        row(rule=policy(spec), temperature=0.5)
    with pytest.raises(ConfigError, match="policy 'strict'"):
        row(request=Request(prompt=[1], policy=spec), temperature=0.5)
    own = Request(prompt=[1], settings=GenerationSettings(temperature=0.5))
    with pytest.raises(ConfigError, match=r"temperature 0\.5"):
        row(request=own, rule=policy(spec))
    assert row(rule=policy(spec)).requested_policy == spec
    assert row(temperature=0.5).policy == STRICT


def test_a_request_has_its_own_policy_settings_name_and_seed():
    own = Request(
        prompt=[1], settings=GenerationSettings(seed=40, gamma=2), policy="asd:budget=3", name="me"
    )
    made = row(request=own, index=7, seed=1, gamma=9)
    assert (made.name, made.seed, made.settings.gamma) == ("me", 40, 2)
    assert (made.requested_policy, made.policy.budget) == ("asd:budget=3", 3)
    shared = row(index=7, seed=1, gamma=9)
    assert (shared.name, shared.seed, shared.settings.gamma) == ("7", 8, 9)


def test_ending_ids_are_eos_and_stop_ids():
    target = cycle_model(8, eos=(7, 6))
    assert row(target=target, stop_token_ids=(2,)).ending_ids == {2, 6, 7}
    assert row(target=target, stop_token_ids=(2,), ignore_eos=True).ending_ids == {2}


def test_guarded_ids_are_ending_eos_and_special_ids():
    tokenizer = Pieces([bytes([i]) for i in range(8)], special_ids=frozenset({0}))
    target = cycle_model(8, eos=(7,), tokenizer=tokenizer)
    assert row(target=target, stop_token_ids=(2,)).guarded_ids == {0, 2, 7}
    # an ignored end of sequence is still a word of the template, never a bargain
    assert row(target=target, ignore_eos=True).guarded_ids == {0, 7}


def test_an_eos_id_that_the_head_has_no_row_for_ends_nothing():
    target = cycle_model(8, eos=(7, 99))
    assert row(target=target, min_new_tokens=2).ending_ids == {7}


def test_settings_become_processors_in_a_fixed_order():
    extra = MinNewTokens(count=1, ending_ids=frozenset({3}))
    made = row(
        target=cycle_model(8, eos=(7,)),
        repetition_penalty=1.5,
        presence_penalty=0.5,
        frequency_penalty=0.25,
        min_new_tokens=4,
        stop_token_ids=(2,),
        processors=(extra,),
    )
    assert made.processors == (
        RepetitionPenalty(penalty=1.5),
        CountPenalty(presence=0.5, frequency=0.25),
        MinNewTokens(count=4, ending_ids=frozenset({2, 7})),
        extra,
    )
    assert made.processor_states == (frozenset({1, 2}), {}, 0, 0)
    assert row().processors == ()
    assert row(frequency_penalty=0.5).processors == (CountPenalty(frequency=0.5),)
    assert row(presence_penalty=0.5).processors == (CountPenalty(presence=0.5),)


@pytest.mark.parametrize("prompts", [b"text", [b"text"]])
def test_bytes_are_no_prompt(prompts):
    with pytest.raises(ConfigError, match="Expected a"):
        Decoder(target=cycle_model()).generate(prompts)


def test_a_request_takes_its_settings_as_a_mapping():
    request = Request(prompt=[1], settings={"max_new_tokens": 3})
    assert len(Decoder(target=cycle_model()).generate(request).token_ids) == 3
    with pytest.raises(ConfigError, match="max_new_tokens"):
        Decoder(target=cycle_model()).generate(Request(prompt=[1], settings={"max_new_token": 3}))


@pytest.mark.parametrize(
    "prompt",
    [
        [torch.tensor(1), torch.tensor(2)],
        [np.int64(1), np.int32(2)],
        (np.int64(1), 2),
        torch.tensor([1, 2], dtype=torch.int32),
        range(1, 3),
    ],
    ids=["tensors", "numpy", "mixed", "int32", "range"],
)
def test_integers_of_any_kind_are_token_ids(prompt):
    (request,), is_single = as_requests(prompt)
    assert is_single
    assert row(request=request).token_ids == [1, 2]
    assert row(request=Request(prompt=prompt)).token_ids == [1, 2]
    assert [list(r.prompt) for r in as_requests([prompt, [3]])[0]] == [[1, 2], [3]]


@pytest.mark.parametrize(
    "bad",
    [[1.0], [np.float32(1)], [torch.tensor(1.0)], [torch.tensor(True)]],
    ids=["float", "numpy", "tensor", "bool"],
)
def test_numbers_that_are_no_ids_are_refused(bad):
    with pytest.raises(ConfigError, match="got"):
        Decoder(target=cycle_model()).generate(bad)
    with pytest.raises(ConfigError, match=r"Request 0: expected integer token ids, got"):
        Decoder(target=cycle_model()).generate(unchecked(bad))


def unchecked(prompt):
    """Return a request that the tests' checker of annotations would not let through."""
    request = Request(prompt=[1])
    object.__setattr__(request, "prompt", prompt)
    return request


@pytest.mark.parametrize("bad", [5, None, {"role": "user"}, b"x", torch.tensor(5)], ids=repr)
def test_a_request_without_a_prompt_is_refused(bad):
    with pytest.raises(ConfigError, match="Request 0: expected a text, token ids or chat mess"):
        Decoder(target=cycle_model()).generate(unchecked(bad))
