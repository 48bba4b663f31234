import pytest
import torch

from lenity.errors import ConfigError, RegistryError
from lenity.training.recipe import (
    RECIPES,
    Outcome,
    initialise,
    layer_words,
    recipe,
    shape_of,
    vocabulary_map,
)
from tests.training import rig


def test_a_recipe_is_spelled_as_everything_else():
    found = recipe("eagle3:unroll=3,taps=1+2,draft_vocab_size=none")
    assert (found.unroll, found.taps, found.draft_vocab_size) == (3, (1, 2), None)
    assert recipe(found.spec.replace("None", "none")) == found
    assert recipe(found) is found
    with pytest.raises(RegistryError, match="eagle3"):
        recipe("eagle")
    with pytest.raises(ConfigError, match="unroll"):
        recipe("eagle3:unrol=3")


@pytest.mark.parametrize("name", RECIPES.names())
def test_first_weights_are_the_seeds(name):
    model = rig.target()
    tables = rig.tables(model)
    build = recipe(name).build
    first, second, other = (build(model, tables, seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_layers_are_shaped_as_the_targets():
    model = rig.target()
    shape = shape_of(layer_words(model, 2, None), has_qk_norm=True)
    config = model.module.config
    assert shape.hidden_size == config.hidden_size
    assert shape.intermediate_size == config.intermediate_size
    assert (shape.num_heads, shape.num_kv_heads) == (4, 2)
    assert shape.windows == (None, None)
    assert shape.has_qk_norm
    assert layer_words(model, 1, 10)["intermediate_size"] == 10


def test_norms_begin_at_one_and_biases_at_nothing():
    module = torch.nn.Sequential(torch.nn.Linear(400, 300), torch.nn.LayerNorm(300))
    initialise(module, 0)
    assert not module[0].bias.any()
    assert (module[1].weight == 1).all()
    assert module[0].weight.std().item() == pytest.approx(400**-0.5, rel=0.02)


def test_a_reduced_vocabulary_is_written_as_offsets_and_members():
    written = vocabulary_map(torch.tensor([1, 4, 5]), 7)
    assert written["d2t"].tolist() == [1, 3, 3]
    assert written["t2d"].nonzero()[:, 0].tolist() == [1, 4, 5]
    assert not vocabulary_map(torch.arange(7), 7)


def test_an_outcome_counts_right_tokens_where_there_is_one():
    hits = torch.tensor([[[True, True], [True, False]], [[False, True], [True, True]]])
    is_there = torch.tensor([[[True, True], [True, False]], [[True, False], [False, False]]])
    found = Outcome.of(torch.tensor(2.0), hits, is_there)
    assert found.accuracy.tolist() == pytest.approx([2 / 3, 1.0])
    assert (found.num_bases, float(found.loss)) == (3, 2.0)
    nothing = Outcome.of(torch.tensor(0.0), hits, torch.zeros_like(is_there))
    assert nothing.accuracy.tolist() == [0, 0]
