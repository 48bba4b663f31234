import json

import pytest
import torch

from lenity.drafters import drafter
from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.heads.checkpoint import open_checkpoint
from lenity.models.heads.made_for import FILE, MadeFor
from lenity.training.checkpoint import begin_with, known_ids, write_drafter
from lenity.training.recipe import RECIPES, Published, recipe
from tests.training import rig

HEADS = [name for name in RECIPES.names() if name != "masked_diffusion"]  # that is a whole model
SPECS = [*HEADS, "eagle3:is_tap_normed=false", "dspark:markov_kind=rnn,num_layers=1"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("spec", SPECS)
def test_our_readers_read_back_every_bit(spec, dtype, tmp_path):
    model, chosen = rig.target(layers=6), recipe(spec)
    tables = rig.tables(model)
    head = rig.wild(chosen.build(model, tables, 0))
    sizes = write_drafter(chosen.publish(head, model, tables), tmp_path, dtype)
    assert sizes.total == max(f.stat().st_size for f in tmp_path.iterdir())
    name = str(dtype).removeprefix("torch.")
    read = drafter(chosen.type, model=str(tmp_path), dtype=name)._heads(model)
    mine, its = head.state_dict(), read.state_dict()
    assert mine.keys() == its.keys()
    assert all(torch.equal(mine[key].to(dtype), its[key]) for key in mine)
    if chosen.type != "medusa":
        assert torch.equal(read.kept_ids, rig.KEPT)
        assert read.config.taps == chosen.tapped(6)


def test_a_folder_is_written_over_and_nothing_half_written_stays(tmp_path):
    first = Published(config={"a": 1}, tensors={"w": torch.zeros(2)})
    write_drafter(first, tmp_path)
    sizes = write_drafter(Published(config={"a": 2}, tensors={"w": torch.ones(300)}), tmp_path)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    config = json.loads((tmp_path / "config.json").read_text())
    assert config == {"a": 2, "torch_dtype": "bfloat16"}
    assert sizes.tensors == {"w": 600}


def test_weights_that_broke_are_not_published(tmp_path):
    broken = Published(config={}, tensors={"w": torch.tensor([1.0, float("nan")])})
    with pytest.raises(ConfigError, match="'w'"):
        write_drafter(broken, tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_target_stands_beside_the_published_files(tmp_path):
    made_for = MadeFor.of(rig.target())
    write_drafter(Published(config={}, tensors={"w": torch.ones(2)}), tmp_path, made_for=made_for)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["config.json", FILE, "model.safetensors"]
    assert open_checkpoint(tmp_path).made_for == made_for


BEGUN = ["eagle3", "medusa", "dspark", "dflash"]


@pytest.mark.parametrize("spec", BEGUN)
def test_weights_are_begun_with_bit_by_bit(spec, tmp_path):
    model, chosen = rig.target(layers=6), recipe(spec)
    tables = rig.tables(model)
    first, second = (chosen.build(model, tables, seed) for seed in (0, 1))
    write_drafter(chosen.publish(rig.wild(first), model, tables), tmp_path, torch.float32)
    checkpoint = open_checkpoint(tmp_path)
    begin_with(checkpoint, chosen.publish(second, model, tables))
    mine, its = first.state_dict(), second.state_dict()
    assert all(torch.equal(mine[key], its[key]) for key in mine)
    known = known_ids(checkpoint, rig.VOCABULARY)
    if spec == "medusa":
        assert known is None  # it has no map: the whole vocabulary is its own
    else:
        assert torch.equal(known, rig.KEPT)


def test_a_drafter_of_another_kind_is_not_begun_with(tmp_path):
    model = rig.target(layers=6)
    tables = rig.tables(model)
    one, other = recipe("eagle3:taps=1+2+3"), recipe("eagle3:taps=1+2+4")
    write_drafter(one.publish(one.build(model, tables, 0), model, tables), tmp_path)
    asked = other.publish(other.build(model, tables, 0), model, tables)
    with pytest.raises(ModelMismatchError, match="eagle_config"):
        begin_with(open_checkpoint(tmp_path), asked)
    longer = recipe("eagle3:taps=1+2+3,unroll=2")  # how it is trained may change
    begin_with(
        open_checkpoint(tmp_path), longer.publish(longer.build(model, tables, 1), model, tables)
    )
