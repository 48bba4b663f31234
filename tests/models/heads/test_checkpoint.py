import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from lenity.errors import ConfigError, LenityError, ModelMismatchError, UnsupportedModelError
from lenity.models.heads.checkpoint import fill, open_checkpoint
from tests.models.heads.golden import FOLDER

CPU = {"dtype": torch.float32, "device": torch.device("cpu")}
TENSORS = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.ones(2)}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    save_file(TENSORS, tmp_path / "model.safetensors")
    return tmp_path


def linear():
    with torch.device("meta"):
        return nn.Linear(3, 2)


def test_a_module_gets_its_tensors(folder):
    found = open_checkpoint(folder)
    assert found.keys == {"weight", "bias"}
    assert found.shape("weight") == (2, 3)
    assert found.config == {"model_type": "llama"}
    filled = fill(linear(), found, **CPU)
    assert torch.equal(filled.weight, TENSORS["weight"])
    assert not filled.weight.requires_grad
    assert not filled.training


def test_names_are_mapped_and_dtypes_are_changed(folder):
    save_file({f"x.{k}": v for k, v in TENSORS.items()}, folder / "model.safetensors")
    filled = fill(
        linear(),
        open_checkpoint(folder),
        names=lambda name: f"x.{name}",
        dtype=torch.bfloat16,
        device=torch.device("cpu"),
    )
    assert filled.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("layout", ["bin", "sharded", "sharded-bin", "pt", "odd-name"])
def test_every_layout_of_files_is_read(folder, layout):
    (folder / "model.safetensors").unlink()
    parts = {"part-1": {"weight": TENSORS["weight"]}, "part-2": {"bias": TENSORS["bias"]}}
    if layout.startswith("sharded"):
        suffix, stem = ("bin", "pytorch_model") if "bin" in layout else ("safetensors", "model")
        for part, tensors in parts.items():
            file = folder / f"{part}.{suffix}"
            torch.save(tensors, file) if suffix == "bin" else save_file(tensors, file)
        where = {"weight": f"part-1.{suffix}", "bias": f"part-2.{suffix}"}
        index = folder / f"{stem}.{suffix}.index.json"
        index.write_text(json.dumps({"weight_map": where}))
    elif layout == "odd-name":
        save_file(TENSORS, folder / "drafter.safetensors")
    else:
        name = {"bin": "pytorch_model.bin", "pt": "medusa_lm_head.pt"}[layout]
        torch.save(TENSORS, folder / name)
    filled = fill(linear(), open_checkpoint(folder), **CPU)
    assert torch.equal(filled.weight, TENSORS["weight"])
    assert torch.equal(filled.bias, TENSORS["bias"])


def test_a_missing_shard_is_named(folder):
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"weight": "gone.safetensors"}}))
    with pytest.raises(ConfigError, match=r"gone\.safetensors, which model\.safetensors\.index"):
        open_checkpoint(folder)
    index.write_text('{"weight_map": 3}')
    with pytest.raises(ConfigError, match="weight_map"):
        open_checkpoint(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.99])
def test_a_truncated_file_is_one_error_with_its_name(folder, name, share):
    (folder / "model.safetensors").unlink()
    whole = {"weight": torch.zeros(64, 64)}
    save_file(whole, folder / name) if name.endswith("safetensors") else torch.save(
        whole, folder / name
    )
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(share * len(content))])
    with pytest.raises(ConfigError, match=rf"{name} \(\d+ bytes\).*damaged"):
        open_checkpoint(folder).tensor("weight")


def test_a_pickle_with_more_than_tensors_is_refused(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"weight": torch.zeros(1), "step": 3}, folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="dict of tensors"):
        open_checkpoint(folder)
    torch.save(nn.Linear(1, 1), folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="more than tensors"):
        open_checkpoint(folder)


def test_a_wrong_shape_names_file_key_and_both_shapes(folder):
    with torch.device("meta"):
        wide = nn.Linear(5, 2)
    with pytest.raises(ModelMismatchError) as error:
        fill(wide, open_checkpoint(folder), **CPU)
    for part in ("'weight'", "model.safetensors", "(2, 5)", "(2, 3)"):
        assert part in str(error.value)


def test_missing_keys_are_named_with_what_is_there(folder):
    save_file({"bias": TENSORS["bias"]}, folder / "model.safetensors")
    with pytest.raises(ModelMismatchError) as error:
        fill(linear(), open_checkpoint(folder), **CPU)
    for part in ("'weight'", "(2, 3)", "model.safetensors", "found 'bias'"):
        assert part in str(error.value)
    with pytest.raises(ModelMismatchError, match="'gone'"):
        open_checkpoint(folder).shape("gone")


def test_unexpected_keys_are_refused_unless_they_are_known(folder):
    extra = {"verifier_norm.weight": torch.ones(2), "d2t": torch.ones(2), "gate.w": torch.ones(1)}
    save_file(TENSORS | extra, folder / "model.safetensors")
    with pytest.raises(ModelMismatchError, match=r"1 that belong to none.*'gate\.w'"):
        fill(linear(), open_checkpoint(folder), ignored=["d2t"], **CPU)
    fill(linear(), open_checkpoint(folder), ignored=["d2t", "gate.*"], **CPU)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(folder, value):
    broken = TENSORS | {"bias": torch.tensor([0.0, value])}
    save_file(broken, folder / "model.safetensors")
    with pytest.raises(ModelMismatchError, match=r"'bias' of .*model\.safetensors"):
        fill(linear(), open_checkpoint(folder), **CPU)


def test_what_is_not_there_is_said(tmp_path, folder):
    for name in (str(tmp_path / "nothing"), "./nothing", str(folder / "config.json")):
        with pytest.raises(ConfigError, match="folder with a drafter"):
            open_checkpoint(name)
    with pytest.raises(ConfigError, match=r"nobody/nothing.*hub"):
        open_checkpoint("nobody/nothing")  # tests run offline
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"weights in .*got none"):
        open_checkpoint(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"JSON in .*config\.json"):
        open_checkpoint(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(ConfigError, match="got a list"):
        open_checkpoint(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"config\.json, which is not there"):
        open_checkpoint(folder)


def test_a_quantised_drafter_is_refused(folder):
    (folder / "config.json").write_text('{"quantization_config": {"quant_method": "fp8"}}')
    with pytest.raises(UnsupportedModelError, match="quantised"):
        open_checkpoint(folder)


@pytest.mark.parametrize("name", sorted(f.name for f in FOLDER.iterdir() if f.is_dir()))
def test_a_cut_golden_drafter_is_one_error(tmp_path, name):
    copied = shutil.copytree(FOLDER / name / "drafter", tmp_path / "drafter")
    file = next(f for f in copied.iterdir() if f.suffix in (".safetensors", ".bin"))
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(LenityError, match=file.name):
        open_checkpoint(copied)


def test_whole_golden_drafters_open():
    for folder in FOLDER.iterdir():
        if folder.is_dir():
            found = open_checkpoint(folder / "drafter")
            for file in (folder / "drafter").glob("*.safetensors"):
                assert found.keys == set(load_file(file))


def test_a_home_of_nobody_is_refused():
    with pytest.raises(ConfigError, match="a home here, got '~nouser/drafter'"):
        open_checkpoint("~nouser/drafter")
