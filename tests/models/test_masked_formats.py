import json

import pytest

from lenity.errors import ConfigError, UnsupportedModelError
from lenity.models.heads.checkpoint import open_checkpoint
from lenity.models.masked_formats import build_module, read_masked_config
from tests.models.masked_tiny import masked_config, masked_folder, masked_tensors


def read(folder, **kwargs):
    return read_masked_config(open_checkpoint(folder), **kwargs)


@pytest.mark.parametrize("dialect", ["dream", "llada"])
def test_every_parameter_has_a_published_key_and_every_key_a_parameter(dialect, tmp_path):
    config = read(masked_folder(tmp_path, dialect))
    module = build_module(config)
    shapes = {config.key(name): tuple(t.shape) for name, t in module.state_dict().items()}
    published = masked_tensors(dialect, 128)
    assert shapes == {key: tuple(tensor.shape) for key, tensor in published.items()}


def test_the_shift_is_told_by_the_architecture(tmp_path):
    assert read(masked_folder(tmp_path / "a", "dream")).is_shifted
    assert not read(masked_folder(tmp_path / "b", "llada")).is_shifted
    later = masked_folder(tmp_path / "c", "dream", architectures=["DreamForCausalLM"])
    assert not read(later).is_shifted
    assert read(later, is_shifted=True).is_shifted


def test_an_unknown_architecture_needs_to_be_told_its_shift(tmp_path):
    folder = masked_folder(tmp_path, "dream", architectures=["DreamXModel"])
    with pytest.raises(UnsupportedModelError, match=r"DreamXModel.*shift=true or shift=false"):
        read(folder)
    assert not read(folder, is_shifted=False).is_shifted


def test_words_are_those_of_the_stock_class(tmp_path):
    words = read(masked_folder(tmp_path, "llada", rope_theta=5e5, weight_tying=True)).words
    assert (words["hidden_size"], words["num_key_value_heads"]) == (32, 2)
    assert words["rope_parameters"] == {"rope_type": "default", "rope_theta": 5e5}
    assert words["tie_word_embeddings"]
    assert words["max_position_embeddings"] == 256


def test_defaults_where_a_config_is_silent(tmp_path):
    config = masked_config("dream", 128, 121)
    for name in ("num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "rope_theta"):
        del config[name]
    folder = masked_folder(tmp_path, "dream")
    (folder / "config.json").write_text(json.dumps(config))
    words = read(folder).words
    assert words["num_key_value_heads"] == 4
    assert words["rope_parameters"]["rope_theta"] == 10000.0


def test_scaled_positions_are_passed_on(tmp_path):
    scaling = {"type": "linear", "factor": 2.0}
    words = read(masked_folder(tmp_path, "dream", rope_scaling=scaling)).words
    assert words["rope_parameters"] == {
        "rope_type": "linear",
        "factor": 2.0,
        "rope_theta": 10000.0,
    }


def test_padding_and_mask_are_special_the_end_of_text_is_not(tmp_path):
    config = read(masked_folder(tmp_path / "a", "dream", pad_token_id=7, bos_token_id=9))
    assert config.special_ids == {121, 7, 9}
    padded = masked_folder(tmp_path / "b", "llada", pad_token_id=7, eos_token_id=[7, 8])
    assert read(padded).special_ids == {121}


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"model_type": "qwen2"}, UnsupportedModelError, "model_type 'qwen2'.*autoregressive"),
        ({"mask_token_id": None}, ConfigError, "'mask_token_id'.*got None"),
        ({"mask_token_id": 128}, ConfigError, "below the 128 rows"),
        ({"hidden_size": "big"}, ConfigError, "'hidden_size'.*got 'big'"),
        ({"use_sliding_window": True}, UnsupportedModelError, "full attention"),
        ({"prefix_attention": "sparse"}, UnsupportedModelError, "got 'sparse'"),
    ],
)
def test_what_cannot_be_read_is_refused(changes, error, says, tmp_path):
    with pytest.raises(error, match=says):
        read(_changed(tmp_path, changes))


def _changed(folder, changes):
    written = masked_folder(folder, "dream")
    config = masked_config("dream", 128, 121, **changes)
    (written / "config.json").write_text(json.dumps(config))
    return written


@pytest.mark.parametrize(
    "changes", [{"alibi": True}, {"layer_norm_type": "default"}, {"include_bias": True}]
)
def test_a_llada_that_is_no_llama_is_refused(changes, tmp_path):
    with pytest.raises(UnsupportedModelError, match=next(iter(changes))):
        read(masked_folder(tmp_path, "llada", **changes))


def test_a_causal_prefix_is_read(tmp_path):
    assert read(masked_folder(tmp_path / "a", "dream")).prefix == "full"
    causal = masked_folder(tmp_path / "b", "dream", prefix_attention="causal")
    assert read(causal).prefix == "causal"
