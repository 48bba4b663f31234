import re

import pytest
import torch
from transformers import PreTrainedModel

from lenity.errors import CacheError, ConfigError, OutOfMemoryError, UnsupportedModelError
from lenity.models.base import KVCache, LanguageModel
from lenity.models.causal import CausalLM
from tests.models.families import ATTENTION, SIZES, build, build_fresh, plain_logits

TOLERANCE = 1e-4
ACCEPTED = [[0, 4, 2], [3, 0, 1], [4, 4, 4], [1, 2, 0], [2, 2, 2]]
"""How many of four tokens each of three rows keeps, round by round."""


@pytest.fixture(scope="module", params=sorted(ATTENTION))
def model(request: pytest.FixtureRequest) -> CausalLM:
    return CausalLM(build(request.param), name=request.param)


def _tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(
        3, SIZES["vocab_size"], shape, generator=torch.Generator().manual_seed(seed)
    )


def _prefill(model: CausalLM, lengths: list[int]) -> tuple[KVCache, list[list[int]]]:
    """Run prompts of these lengths, padded to the longest, in one forward."""
    prompt = _tokens(len(lengths), max(lengths))
    cache = model.new_cache(len(lengths))
    model.hidden_states(prompt, cache)
    cache.commit(lengths)
    return cache, [prompt[row, :n].tolist() for row, n in enumerate(lengths)]


def _next_logits(model: CausalLM, cache: KVCache, tokens: torch.Tensor) -> torch.Tensor:
    return model.logits(model.hidden_states(tokens, cache).last)


def _assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    worst = (found - expected).abs().max() / expected.abs().max()
    assert worst < TOLERANCE, f"logits off by {worst:.2g} of their scale"


def test_it_is_a_language_model(model: CausalLM):
    assert isinstance(model, LanguageModel)
    assert isinstance(model.new_cache(2), KVCache)
    assert (model.vocab_size, model.hidden_size, model.num_layers) == (96, 32, 4)
    assert model.max_positions == 64
    assert model.unknown_ids.numel() == 0


def _assert_scripted_acceptance(model: CausalLM) -> None:
    cache, rows = _prefill(model, [11, 5, 14])
    for round_number, counts in enumerate(ACCEPTED):
        block = _tokens(3, 4, seed=round_number + 1)
        found = _next_logits(model, cache, block)
        for row, ids in enumerate(rows):
            expected = plain_logits(model.module, ids + block[row].tolist())[-4:]
            _assert_close(found[row], expected)
            ids += block[row, : counts[row]].tolist()
        cache.commit(counts)
    assert cache.lengths == [len(ids) for ids in rows]


def test_scripted_acceptance_equals_a_cache_free_forward(model: CausalLM):
    _assert_scripted_acceptance(model)


def test_one_row_one_token_at_a_time(model: CausalLM):
    cache, rows = _prefill(model, [9])
    for step in range(4):
        token = _tokens(1, 1, seed=step)
        found = _next_logits(model, cache, token)
        cache.commit([1])
        rows[0] += token[0].tolist()
        _assert_close(found[0, 0], plain_logits(model.module, rows[0])[-1])


def test_offset_writes_behind_what_is_not_committed(model: CausalLM):
    cache, rows = _prefill(model, [9, 4])
    block = _tokens(2, 3, seed=5)
    for offset in range(3):
        states = model.hidden_states(block[:, offset : offset + 1], cache, offset=offset)
    found = model.logits(states.last)
    for row, ids in enumerate(rows):
        expected = plain_logits(model.module, ids + block[row].tolist())[-1]
        _assert_close(found[row, 0], expected)
    again = _next_logits(model, cache, block)  # nothing was committed: the same again at offset 0
    _assert_close(again[:, -1:], found)


def test_rows_leave_and_join(model: CausalLM):
    cache, rows = _prefill(model, [11, 5, 14])
    cache.keep([2, 0])
    rows = [rows[2], rows[0]]
    newcomer = model.new_cache(1)
    prompt = _tokens(1, 20, seed=9)
    model.hidden_states(prompt, newcomer)
    newcomer.commit([20])
    cache.append(newcomer)
    rows.append(prompt[0].tolist())
    block = _tokens(3, 4, seed=3)
    found = _next_logits(model, cache, block)
    for row, ids in enumerate(rows):
        expected = plain_logits(model.module, ids + block[row].tolist())[-4:]
        _assert_close(found[row], expected)


def test_growing_beyond_the_first_allocation(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lenity.models.cache.CAPACITY_STEP", 4)
    _assert_scripted_acceptance(CausalLM(build("llama")))


def test_taps_are_the_hidden_states_of_transformers(model: CausalLM):
    prompt = _tokens(1, 12)
    states = model.hidden_states(prompt, model.new_cache(1), taps=(2, 0, -1, model.num_layers))
    with torch.no_grad():
        reference = model.module(input_ids=prompt, use_cache=False, output_hidden_states=True)
    # hidden_states[0] is the embedding, so layer i is entry i + 1; the last entry is normalised.
    expected = torch.cat([reference.hidden_states[i] for i in (3, 1, 0, -1)], dim=-1)
    assert states.features is not None
    torch.testing.assert_close(states.features, expected, rtol=1e-4, atol=1e-4)


def test_embeddings_come_from_the_table(model: CausalLM):
    ids = torch.tensor([[3, 7], [0, 1]])
    table = model.module.get_input_embeddings()
    torch.testing.assert_close(model.embed(ids), table(ids))


def test_the_last_tap_is_not_yet_normalised():
    model = CausalLM(build("llama"))
    states = model.hidden_states(_tokens(1, 5), model.new_cache(1), taps=(3,))
    assert states.features is not None
    assert not torch.allclose(states.features, states.last)
    with torch.no_grad():
        torch.testing.assert_close(model.module.model.norm(states.features), states.last)


def test_a_subset_of_layers_is_the_model_without_the_others(model: CausalLM):
    kept = (0, 1, 3)
    cache, rows = _prefill_subset(model, kept)
    block = _tokens(2, 3, seed=4)
    found = model.logits(model.hidden_states(block, cache, layers=kept, taps=(3,)).last)
    small = _without_layer(model, 2)
    for row, ids in enumerate(rows):
        _assert_close(found[row], plain_logits(small, ids + block[row].tolist())[-3:])


def test_a_subset_leaves_the_other_layers_alone(model: CausalLM):
    cache, rows = _prefill(model, [9, 4])
    model.hidden_states(_tokens(2, 3, seed=8), cache, layers=(0, 3))
    block = _tokens(2, 3, seed=4)
    found = _next_logits(model, cache, block)
    for row, ids in enumerate(rows):
        _assert_close(found[row], plain_logits(model.module, ids + block[row].tolist())[-3:])
    assert model.module.config.num_hidden_layers == 4


def _prefill_subset(model: CausalLM, kept: tuple[int, ...]) -> tuple[KVCache, list[list[int]]]:
    prompt, cache = _tokens(2, 11), model.new_cache(2)
    model.hidden_states(prompt, cache, layers=kept)
    cache.commit([11, 6])
    return cache, [prompt[0].tolist(), prompt[1, :6].tolist()]


def _without_layer(model: CausalLM, dropped: int) -> PreTrainedModel:
    """Build the family with one layer less and give it the weights of those that stay."""
    types = getattr(model.module.config, "layer_types", None)
    changes = {"num_hidden_layers": 3}
    if types is not None:
        changes["layer_types"] = [t for i, t in enumerate(types) if i != dropped]
    small = build_fresh(model.name, **changes)
    weights = {}
    for name, value in model.module.state_dict().items():
        parts = name.split(".")
        places = [i for i, part in enumerate(parts) if part.isdigit()][:1]
        for place in places:
            index = int(parts[place])
            if index == dropped:
                break
            parts[place] = str(index - (index > dropped))
        else:
            weights[".".join(parts)] = value
    small.load_state_dict(weights)
    return small


def test_the_head_keeps_soft_caps_and_scales():
    capped = CausalLM(build("gemma2"))
    loud = torch.randn(2, 3, 32, generator=torch.Generator().manual_seed(0)) * 1000
    logits = capped.logits(loud)
    cap = capped.module.config.final_logit_softcapping
    assert logits.shape == (2, 3, 96)
    assert logits.abs().max() <= cap
    bare = capped.module.lm_head(loud)
    torch.testing.assert_close(logits, cap * torch.tanh(bare / cap))


def test_nothing_asks_for_gradients():
    model = CausalLM(build("llama"))
    states = model.hidden_states(_tokens(1, 5), model.new_cache(1))
    assert not states.last.requires_grad
    assert not model.logits(states.last.requires_grad_()).requires_grad
    states.last.requires_grad_(False)
    torch.nn.Linear(32, 4)(states.last).sum().backward()  # and training on features works


def test_padding_beyond_the_last_position_does_no_harm():
    model = CausalLM(build("gpt2"))  # learned positions: there is no row 64
    cache, rows = _prefill(model, [62, 40])
    block = _tokens(2, 8, seed=2)
    found = _next_logits(model, cache, block)
    for row, real in enumerate((2, 8)):
        expected = plain_logits(model.module, rows[row] + block[row, :real].tolist())[-real:]
        _assert_close(found[row, :real], expected)


def test_eos_ids_may_be_many():
    module = build_fresh("llama")
    module.generation_config.eos_token_id = [5, 7]
    assert CausalLM(module).eos_token_ids == {5, 7}


@pytest.mark.parametrize("layers", [(), (1, 0), (0, 0), (4,), (-1,)])
def test_layers_that_cannot_run_are_refused(layers: tuple[int, ...]):
    model = CausalLM(build("llama"))
    with pytest.raises(ConfigError, match="between 0 and 3, rising"):
        model.hidden_states(_tokens(1, 2), model.new_cache(1), layers=layers)


def test_taps_outside_the_layers_that_run_are_refused():
    model = CausalLM(build("llama"))
    with pytest.raises(ConfigError, match="taps among the layers"):
        model.hidden_states(_tokens(1, 2), model.new_cache(1), layers=(0, 1), taps=(2,))


def test_rows_and_cache_must_fit():
    model = CausalLM(build("llama"))
    with pytest.raises(ConfigError, match="2 rows of the cache, got 1"):
        model.hidden_states(_tokens(1, 2), model.new_cache(2))


def test_a_foreign_cache_is_refused():
    from tests.toys import CountingCache

    model = CausalLM(build("llama"))
    with pytest.raises(CacheError, match="new_cache"):
        model.hidden_states(_tokens(1, 2), CountingCache(1))


def test_what_is_no_causal_model_is_refused():
    with pytest.raises(UnsupportedModelError, match="Linear"):
        CausalLM(torch.nn.Linear(2, 2))
    with pytest.raises(UnsupportedModelError, match="LlamaModel"):
        CausalLM(build_fresh("llama").model)


@pytest.mark.parametrize(
    ("count", "width", "size"),
    [(4, 4, 3 * 4 * 48), (2, 300, 3 * 2 * 300)],
    ids=["mlp", "mask"],
)
def test_activations_that_cannot_be_allocated_are_named_with_their_size(
    monkeypatch: pytest.MonkeyPatch, count: int, width: int, size: int
):
    model = CausalLM(build("llama"), name="tiny")
    assert model.module.config.intermediate_size == 48
    cache = model.new_cache(3)

    def full(*args: object, **kwargs: object) -> None:
        cache.slots.place([width - count] * 3, count)
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9")

    monkeypatch.setattr(model.module.model.layers[0].mlp, "forward", full)
    gib = re.escape(f"{size * 4 / 2**30:.3g} GiB")
    said = rf"activations of tiny need {gib} .* 3 rows of {count} tokens, with {width} cached"
    with pytest.raises(OutOfMemoryError, match=said):
        model.hidden_states(_tokens(3, count), cache)


def test_other_errors_of_a_forward_stay_what_they_are(monkeypatch: pytest.MonkeyPatch):
    model = CausalLM(build("llama"))

    def fail(error: Exception) -> None:
        def raise_it(*args: object, **kwargs: object) -> None:
            raise error

        monkeypatch.setattr(model.module.model.layers[0].mlp, "forward", raise_it)

    fail(RuntimeError("mat1 and mat2 shapes"))
    with pytest.raises(RuntimeError, match="mat1"):
        model.hidden_states(_tokens(1, 2), model.new_cache(1))
    fail(OutOfMemoryError("The KV cache needs 9 GiB"))  # has its buffer's name already
    with pytest.raises(OutOfMemoryError, match=r"^The KV cache needs"):
        model.hidden_states(_tokens(1, 2), model.new_cache(1))


def test_a_cache_that_was_filled_in_inference_mode_reads_on_outside(model: CausalLM):
    prompt, token = _tokens(1, 5), _tokens(1, 1, seed=1)
    found = []
    for is_inference in (False, True):
        cache = model.new_cache(1)
        with torch.inference_mode(is_inference):
            model.hidden_states(prompt, cache)
            cache.commit([5])
        found.append(_next_logits(model, cache, token))
    assert torch.equal(*found)
