import pytest
from pydantic import ValidationError

from lenity.errors import ConfigError
from lenity.processors import MinNewTokens
from lenity.requests import GenerationSettings, Request
from lenity.sampling import Sampling


def test_defaults_are_plain_greedy():
    settings = GenerationSettings()
    assert settings.sampling == Sampling()
    assert settings.sampling.is_greedy
    assert (settings.gamma, settings.max_new_tokens) == (5, 128)
    assert (settings.stop, settings.stop_token_ids, settings.processors) == ((), (), ())


def test_sampling_takes_the_four_filters():
    settings = GenerationSettings(temperature=0.7, top_k=5, top_p=0.9, min_p=0.1)
    assert settings.sampling == Sampling(temperature=0.7, top_k=5, top_p=0.9, min_p=0.1)


def test_changes_are_laid_over_what_was_set():
    base = GenerationSettings(gamma=3, seed=7)
    merged = GenerationSettings.of(base, {"seed": 8, "max_new_tokens": 2})
    assert (merged.gamma, merged.seed, merged.max_new_tokens) == (3, 8, 2)
    assert base.seed == 7
    assert GenerationSettings.of(None, {}) == GenerationSettings()
    assert GenerationSettings.of(base, {}) == base
    # an explicit default in the changes wins over the base
    assert GenerationSettings.of(base, {"gamma": 5}).gamma == 5


def test_one_string_is_one_stop():
    assert GenerationSettings(stop="END").stop == ("END",)
    assert GenerationSettings(stop=["a", "b"]).stop == ("a", "b")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("max_new_token", "max_new_tokens"), ("temprature", "temperature"), ("gama", "gamma")],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(name, nearest):
    with pytest.raises(ConfigError, match=f"no knob '{name}'.*{nearest}"):
        GenerationSettings.of(None, {name: 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gamma", -1),
        ("gamma", 1025),
        ("max_new_tokens", 0),
        ("min_new_tokens", -1),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", 0),
        ("top_p", 0),
        ("top_p", 1.1),
        ("min_p", 2),
        ("seed", -1),
        ("seed", 2**63),
        ("repetition_penalty", 0),
        ("repetition_penalty", float("inf")),
        ("presence_penalty", float("nan")),
        ("frequency_penalty", float("inf")),
        ("stop", ""),
        ("stop", ("a", "")),
        ("top_logprobs", -1),
        ("top_logprobs", 101),
        ("logprobs", "cooked"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=f"generation: {name}: "):
        GenerationSettings.of(None, {name: value})


def test_a_processor_that_keeps_its_state_in_itself_is_refused():
    def hugging_face_style(input_ids, scores):
        return scores

    with pytest.raises(ConfigError, match="start, advance and apply, got function"):
        GenerationSettings.of(None, {"processors": (hugging_face_style,)})
    fine = MinNewTokens(count=1, ending_ids=frozenset())
    assert GenerationSettings(processors=(fine,)).processors == (fine,)


def test_settings_are_frozen_and_refuse_what_they_do_not_know():
    with pytest.raises(ValidationError):
        GenerationSettings().gamma = 3
    with pytest.raises(ValidationError):
        GenerationSettings(gama=3)


def test_a_request_is_frozen():
    request = Request(prompt=[1])
    with pytest.raises(AttributeError):
        request.prompt = [2]
    assert (request.settings, request.policy, request.name) == (None, None, None)
