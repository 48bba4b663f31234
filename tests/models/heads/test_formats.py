import pytest

from lenity.errors import UnsupportedModelError
from lenity.models.heads.checkpoint import open_checkpoint
from lenity.models.heads.formats import Format, detect_format, format_of
from tests.models.heads.golden import FOLDER

GOLDEN = {
    "eagle3-safeai-a": "eagle3-safeai",
    "eagle3-speculators-a": "eagle3-speculators",
    "eagle3-deepspec-a": "eagle3-deepspec",
    "eagle3-tree-a": "eagle3-safeai",
    "peagle-a": "peagle",
    "dflash-zlab-a": "dflash-zlab",
    "dflash-speculators-a": "dflash-speculators",
    "dflash-deepspec-a": "dflash-deepspec",
    "dspark-deepspec-a": "dspark-deepspec",
    "medusa-a": "medusa",
}
BLOCK = {"fc.weight", "hidden_norm.weight", "norm.weight", "layers.0.self_attn.q_proj.weight"}
EAGLE = {"fc.weight", "midlayer.hidden_norm.weight", "midlayer.self_attn.q_proj.weight"}


@pytest.mark.parametrize(("name", "expected"), GOLDEN.items())
def test_golden_drafters_are_told_apart(name, expected):
    found = open_checkpoint(FOLDER / name / "drafter")
    assert detect_format(found.config, found.keys) == expected
    assert format_of(found, Format(expected)) == expected


@pytest.mark.parametrize(
    ("config", "keys", "expected"),
    [
        ({}, {"medusa_head.0.0.linear.weight", "model.norm.weight"}, "medusa"),
        ({}, {f"model.{key}" for key in EAGLE}, "eagle3-safeai"),
        ({"transformer_layer_config": {}}, BLOCK | {"markov_head.w1"}, "dspark-speculators"),
        ({"dflash_config": {"projector_type": "dspark"}}, BLOCK, "dspark-specforge"),
        ({"markov_rank": 8}, BLOCK, "dspark-deepspec"),
    ],
)
def test_other_layouts_are_told_apart(config, keys, expected):
    assert detect_format(config, keys) == expected


@pytest.mark.parametrize(
    ("config", "keys", "name"),
    [
        ({}, BLOCK | {"layers.0.attention_conv.weight"}, "DFlash2"),
        ({}, BLOCK | {"candidate_selector.w.weight"}, "DFlash2"),
        ({}, BLOCK | {"refiner_head.0.weight"}, "XPress"),
        ({}, BLOCK | {"prefix_gru.weight_ih"}, "Domino"),
        ({"dflash_config": {"projector_type": "domino"}}, BLOCK, "Domino"),
        ({}, {"mtp.fc.weight"}, "MTP"),
        ({}, {"mtp_layers.0.input_proj.weight"}, "MTP"),
        ({}, {"model.layers.61.eh_proj.weight"}, "MTP"),
        ({}, {"fc.weight", "layers.0.self_attn.q_proj.weight"}, "EAGLE-1"),
        ({}, {"hydra_head.0.weight"}, "Hydra"),
        ({}, {"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight"}, "autoregressive"),
        ({}, set(), "found|got"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(config, keys, name):
    with pytest.raises(UnsupportedModelError, match=name):
        detect_format(config, keys)


def test_another_family_names_its_drafter():
    with pytest.raises(UnsupportedModelError, match="drafter 'dflash'"):
        format_of(open_checkpoint(FOLDER / "dflash-zlab-a" / "drafter"), Format.PEAGLE)
    assert Format.PEAGLE.family == "eagle3"
