import json
import logging

import pytest
import torch

from lenity.errors import ConfigError, ModelMismatchError, UnsupportedModelError
from lenity.models.heads.checkpoint import open_checkpoint
from lenity.models.heads.eagle3_config import find_taps, read_config
from lenity.models.heads.formats import Format
from tests.models.heads.golden import FOLDER
from tests.models.heads.tiny import SHAPE, eagle3_folder, eagle3_tensors, write

SAFEAI, SPECULATORS = Format.EAGLE3_SAFEAI, Format.EAGLE3_SPECULATORS
IDS = "eagle_aux_hidden_state_layer_ids"


def read(folder, layers=6, size=24, **options):
    return read_config(
        open_checkpoint(folder), num_target_layers=layers, target_hidden_size=size, **options
    )


@pytest.mark.parametrize(
    ("found", "config", "expected"),
    [
        (SAFEAI, {}, (1, 17, 32)),  # hidden states 2, 18, 33 of 36 layers
        (SAFEAI, {IDS: [2, 18, 33]}, (1, 17, 32)),
        (SAFEAI, {IDS: [1, 17, 32]}, (1, 17, 32)),
        (SAFEAI, {"eagle_config": {IDS: [3, 5, 7]}}, (2, 4, 6)),
        (SPECULATORS, {IDS: [1, 3, 4]}, (0, 2, 3)),
        (SPECULATORS, {IDS: None}, (1, 17, 32)),
        (SPECULATORS, {IDS: [0, 3, 36]}, (-1, 2, 35)),
        (Format.EAGLE3_DEEPSPEC, {"target_layer_ids": [-1, 0, 35]}, (-1, 0, 35)),
    ],
)
def test_the_rule_of_the_taps(found, config, expected, caplog):
    caplog.set_level(logging.INFO, logger="lenity")
    assert find_taps(found, config, 3, 36) == expected
    assert str(expected) in caplog.text
    assert len(caplog.records) == 1
    assert find_taps(found, config, 3, 36, [5, 6, 7]) == (5, 6, 7)


def test_taps_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="Expected 5 taps"):
        find_taps(SAFEAI, {}, 5, 36)
    for config, override in (({IDS: [2, 3, 37]}, None), ({}, (0, 1, 36)), ({}, (-2, 1, 3))):
        with pytest.raises(ModelMismatchError, match="another depth"):
            find_taps(SAFEAI, config, 3, 36, override)


@pytest.mark.parametrize(
    ("name", "layers", "size", "expected"),
    [
        (
            "eagle3-safeai-a",
            7,
            32,
            {"draft_vocab_size": 56, "vocab_size": 96, "draft_length": None},
        ),
        (
            "eagle3-speculators-a",
            5,
            48,
            {
                "is_first_residual_normed": True,
                "is_input_normed": True,
                "is_tap_normed": False,
                "has_embedding": True,
                "draft_length": 3,
            },
        ),
        ("eagle3-deepspec-a", 6, 48, {"draft_length": 4, "has_embedding": True}),
        ("peagle-a", 5, 40, {"mask_token_id": 81, "is_parallel": True, "draft_length": 4}),
    ],
)
def test_golden_configs_are_understood(name, layers, size, expected):
    config = read(FOLDER / name / "drafter", layers, size)
    assert {key: getattr(config, key) for key in expected} == expected


def test_head_size_is_read_from_the_weights_where_it_is_not_written(tmp_path):
    folder = eagle3_folder(tmp_path / "d", target_size=24, vocab_size=40, config={"head_dim": 6})
    written = json.loads((folder / "config.json").read_text())
    del written["head_dim"]
    (folder / "config.json").write_text(json.dumps(written))
    assert read(folder).shape.head_dim == 6


def test_flags_that_mean_two_things_are_said(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="lenity")
    options = {"target_size": 24, "vocab_size": 40}
    folder = eagle3_folder(tmp_path / "a", config={"norm_output": True}, **options)
    assert read(folder).is_output_normed
    assert "norm_output=false" in caplog.text
    assert not read(folder, norm_output=False).is_output_normed
    nested = {"transformer_layer_config": {**SHAPE, "vocab_size": 40}, "architectures": ["x"]}
    tensors = eagle3_tensors(SHAPE, first="layers.0.", **options)
    assert not read(write(tmp_path / "b", nested, tensors)).is_first_residual_normed
    assert "no norm_before_residual" in caplog.text


def test_a_foreign_target_is_refused_with_key_and_shapes(tmp_path):
    folder = eagle3_folder(tmp_path / "d", target_size=24, vocab_size=40)
    with pytest.raises(ModelMismatchError) as error:
        read(folder, size=40)
    for part in ("'fc.weight'", "model.safetensors", "(32, 80)", "(32, 72)", "hidden size 40"):
        assert part in str(error.value)
    stated = eagle3_folder(
        tmp_path / "e", target_size=24, vocab_size=40, config={"target_hidden_size": 12}
    )
    with pytest.raises(ModelMismatchError, match="target_hidden_size 12"):
        read(stated)


def test_what_is_missing_from_a_config_is_named(tmp_path):
    options = {"target_size": 24, "vocab_size": 40}
    folder = eagle3_folder(tmp_path / "a", **options)
    (folder / "config.json").write_text(json.dumps({**SHAPE, "num_attention_heads": None}))
    with pytest.raises(ConfigError, match=r"'num_attention_heads'.*got None"):
        read(folder)
    tensors = eagle3_tensors(SHAPE, **options) | {"mask_hidden": torch.zeros(1, 1, 72)}
    with pytest.raises(ConfigError, match="mask_token_id"):
        read(write(tmp_path / "b", SHAPE, tensors))
    for odd in ({"hidden_act": "relu2"}, {"model_type": "gemma3_text"}):
        folder = eagle3_folder(tmp_path / "c", config=odd, **options)
        with pytest.raises(UnsupportedModelError, match="llama- or qwen-like"):
            read(folder)
