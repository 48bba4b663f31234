import json
import logging
import shutil

import pytest

from lenity.errors import ConfigError, UnsupportedModelError
from lenity.models.heads.checkpoint import open_checkpoint
from lenity.models.heads.dflash_config import default_layer_ids, read_config
from lenity.models.heads.formats import Format
from tests.models.heads.golden import FOLDER


def read(name, num_target_layers=5, **options):
    checkpoint = open_checkpoint(FOLDER / name / "drafter")
    return read_config(checkpoint, num_target_layers=num_target_layers, **options)


def changed(tmp_path, name, change, **options):
    """Read a golden drafter whose config was changed in place by ``change``."""
    shutil.copytree(FOLDER / name / "drafter", tmp_path / "drafter")
    file = tmp_path / "drafter" / "config.json"
    config = json.loads(file.read_text())
    change(config)
    file.write_text(json.dumps(config))
    checkpoint = open_checkpoint(tmp_path / "drafter")
    return read_config(checkpoint, num_target_layers=5, **options)


@pytest.mark.parametrize(
    ("name", "form", "taps", "slots", "length"),
    [
        ("dflash-zlab-a", Format.DFLASH_ZLAB, (0, 1, 3), "fill_in", 5),
        ("dflash-speculators-a", Format.DFLASH_SPECULATORS, (0, 2, 3), "fill_in", 4),
        ("dflash-deepspec-a", Format.DFLASH_DEEPSPEC, (0, 1, 3), "anchor_first", 5),
        ("dspark-deepspec-a", Format.DSPARK_DEEPSPEC, (0, 1, 3), "anchor_first", 6),
    ],
)
def test_conventions_are_told_apart(caplog, name, form, taps, slots, length):
    with caplog.at_level(logging.INFO):
        config = read(name)
    assert (config.format, config.taps, config.slots) == (form, taps, slots)
    assert config.max_draft_length == length
    assert config.first_slot == (slots == "fill_in")
    assert config.is_causal == (False, False)
    assert str(taps) in caplog.text, "a wrong tap fails nowhere, so what was taken is logged"


@pytest.mark.parametrize("slots", ["fill_in", "anchor_first"])
def test_slots_and_taps_can_be_overridden(slots):
    config = read("dflash-zlab-a", slots=slots, taps=(-1, 2, 4))
    assert (config.slots, config.taps) == (slots, (-1, 2, 4))
    assert config.max_draft_length == (5 if slots == "fill_in" else 6)


def test_the_config_can_say_which_slots(tmp_path):
    config = changed(tmp_path, "dflash-speculators-a", lambda c: c.update(sample_from_anchor=True))
    assert config.slots == "anchor_first"


def test_a_nested_dspark_is_anchor_first(tmp_path):
    def nest(config):
        heads = {"projector_type": "dspark", "markov_rank": 8, "enable_confidence_head": True}
        named = {k: config.pop(k) for k in ("mask_token_id", "target_layer_ids")}
        for key in ("markov_rank", "markov_head_type", "enable_confidence_head"):
            config.pop(key)
        config.update(architectures=["DFlashDraftModel"], dflash_config=heads | named)

    config = changed(tmp_path, "dspark-deepspec-a", nest)
    assert config.format is Format.DSPARK_SPECFORGE
    assert (config.slots, config.markov_rank, config.has_confidence) == ("anchor_first", 8, True)


@pytest.mark.parametrize(
    ("target", "draft", "expected"),
    [
        (36, 5, (1, 9, 17, 25, 33)),
        (32, 5, (1, 8, 15, 22, 29)),
        (36, 1, (18,)),
        (30, 3, (1, 14, 27)),
    ],
)
def test_default_layers(target, draft, expected):
    assert default_layer_ids(target, draft) == expected


def test_absent_layer_ids_are_the_default(tmp_path):
    config = changed(
        tmp_path, "dflash-zlab-a", lambda c: c["dflash_config"].pop("target_layer_ids")
    )
    assert config.taps == (1, 2)


@pytest.mark.parametrize("stated", [True, False, None])
def test_sliding_layers_of_speculators(tmp_path, stated):
    def slide(config):
        layer = config["transformer_layer_config"]
        layer.update(layer_types=["sliding_attention", "full_attention"], sliding_window=8)
        config.pop("sliding_window_non_causal")
        if stated is not None:
            config["sliding_window_non_causal"] = stated

    config = changed(tmp_path, "dflash-speculators-a", slide)
    assert config.shape.windows == (8, None)
    assert config.is_causal == (not stated, False)
    assert config.is_window_from_anchor


@pytest.mark.parametrize(("stated", "expected"), [(None, (False, True)), (False, (False, False))])
def test_sliding_layers_of_zlab(tmp_path, stated, expected):
    def slide(config):
        config.update(layer_types=["full_attention", "sliding_attention"], sliding_window=8)
        config["is_causal"] = stated

    config = changed(tmp_path, "dflash-zlab-a", slide)
    assert config.shape.windows == (None, 8)
    assert config.is_causal == expected
    assert not config.is_window_from_anchor


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c["dflash_config"].pop("mask_token_id"), "mask_token_id"),
        (lambda c: c.update(block_size="six"), "block_size.*'six'"),
        (lambda c: c.update(block_size=1), "block_size of 2 or more.*got 1"),
        (lambda c: c["dflash_config"].update(target_layer_ids=[0, 1, 9]), "has 5.*9"),
        (lambda c: c["dflash_config"].update(target_layer_ids=[]), "has 5"),
    ],
    ids=["missing", "word", "small", "deep", "none"],
)
def test_what_cannot_be_is_named(tmp_path, change, words):
    with pytest.raises(ConfigError, match=words):
        changed(tmp_path, "dflash-zlab-a", change)


def test_an_unknown_markov_head_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"vanilla, gated, rnn.*'lstm'|lstm"):
        changed(tmp_path, "dspark-deepspec-a", lambda c: c.update(markov_head_type="lstm"))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda c: c["dflash_config"].update(projector_type="domino"), "Domino"),
        (lambda c: c.update(architectures=["DFlash2DraftModel"]), "DFlash2"),
        (lambda c: c["dflash_config"].update(input_embedding_scale=8.0), "input_embedding_scale"),
        (lambda c: c.update(shift_label=True), "shift_label"),
    ],
    ids=["domino", "dflash2", "scale", "shift"],
)
def test_variants_are_refused_by_name(tmp_path, change, name):
    with pytest.raises(UnsupportedModelError, match=name):
        changed(tmp_path, "dflash-zlab-a", change)
