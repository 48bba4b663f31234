import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.heads.checkpoint import open_checkpoint
from lenity.models.heads.medusa import MedusaHeads, read_medusa
from tests.models.heads.golden import ATOL, FOLDER, golden, largest_difference

CPU = torch.device("cpu")
WEIGHTS = load_file(FOLDER / "medusa-a" / "drafter" / "medusa_lm_head.safetensors")
CONFIG = json.loads((FOLDER / "medusa-a" / "drafter" / "config.json").read_text())
HIDDEN, VOCAB = 48, 84


def read(folder):
    return read_medusa(open_checkpoint(folder), dtype=torch.float32, device=CPU)


def written(folder, tensors, file="medusa_lm_head.safetensors", **config):
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    if file.endswith(".pt"):
        torch.save(dict(tensors), folder / file)
    else:
        save_file({k: v.contiguous().clone() for k, v in tensors.items()}, folder / file)
    return folder


def without(*parts):
    return {k: v for k, v in WEIGHTS.items() if not any(part in k for part in parts)}


def test_the_golden_logits():
    case, heads = golden("medusa-a"), read(FOLDER / "medusa-a" / "drafter")
    for prompt in (0, 1):
        hidden = case.array(prompt, "hidden")[:, 0]
        logits = heads(hidden, case.target.logits)
        assert largest_difference(logits, case.array(prompt, "logits")) < ATOL
        assert torch.equal(logits.argmax(-1), case.array(prompt, "draft"))


def test_a_head_is_residual_blocks_and_a_map():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(5, HIDDEN, generator=generator, dtype=torch.float64)
    heads = read(FOLDER / "medusa-a" / "drafter").double()
    w = {k: v.double() for k, v in WEIGHTS.items()}
    for i in range(3):
        x = hidden @ w[f"{i}.0.linear.weight"].T + w[f"{i}.0.linear.bias"]
        expected = (hidden + x / (1 + (-x).exp())) @ w[f"{i}.1.weight"].T
        found = heads(hidden, torch.nn.Identity())[:, i]
        assert torch.allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("file", "prefix"),
    [
        ("medusa_lm_head.pt", ""),
        ("model.safetensors", "medusa_head."),
        ("pytorch_model.bin", "medusa_head."),
    ],
)
def test_every_file_it_comes_in(tmp_path, file, prefix):
    tensors = {prefix + k: v for k, v in WEIGHTS.items()}
    if prefix:  # a whole model
        tensors |= {
            "lm_head.weight": torch.zeros(VOCAB, HIDDEN),
            "model.norm.weight": torch.ones(4),
        }
    if file.endswith(".bin"):
        torch.save(tensors, tmp_path / file)
        (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    else:
        written(tmp_path, tensors, file)
    found = read(tmp_path).state_dict()
    assert found.keys() == WEIGHTS.keys()
    assert all(torch.equal(found[k], WEIGHTS[k]) for k in WEIGHTS)


def test_heads_are_counted_from_the_keys(tmp_path):
    heads = read(written(tmp_path, WEIGHTS, medusa_num_heads=5))
    assert len(heads) == 3
    tensors = {k: v for k, v in WEIGHTS.items() if k.startswith("0.")}
    assert len(read(written(tmp_path, tensors, medusa_num_heads=5))) == 1


def test_without_a_map_of_its_own_the_target_has_it(tmp_path):
    heads = read(written(tmp_path, without(".1.weight")))
    assert heads.vocab_size is None
    case, hidden = golden("medusa-a"), torch.randn(2, HIDDEN)
    states = heads(hidden, torch.nn.Identity())
    assert states.shape == (2, 3, HIDDEN)
    assert torch.equal(heads(hidden, case.target.logits), case.target.logits(states))


@pytest.mark.parametrize("has_map", [True, False])
def test_blocks_of_a_head_may_share_their_weights(tmp_path, has_map):
    repeated = {k: v for k, v in WEIGHTS.items() if "linear" in k}
    if has_map:
        repeated |= {f"{i}.3.weight": WEIGHTS[f"{i}.1.weight"] for i in range(3)}
    once = read(written(tmp_path, repeated, medusa_num_layers=3))
    every = dict(repeated)
    for i in range(3):
        for j in (1, 2):
            for part in ("weight", "bias"):
                every[f"{i}.{j}.linear.{part}"] = WEIGHTS[f"{i}.0.linear.{part}"]
    full = read(written(tmp_path, every, medusa_num_layers=3))
    hidden = torch.randn(4, HIDDEN)
    assert once.num_blocks == full.num_blocks == 3
    identity = torch.nn.Identity()
    assert torch.equal(once(hidden, identity), full(hidden, identity))
    assert not torch.equal(
        once(hidden, identity), read(FOLDER / "medusa-a/drafter")(hidden, identity)
    )


def test_only_the_heads_asked_for_run():
    heads = read(FOLDER / "medusa-a" / "drafter")
    hidden = torch.randn(2, HIDDEN)
    identity = torch.nn.Identity()
    assert torch.equal(heads(hidden, identity, 2), heads(hidden, identity)[:, :2])


def test_new_heads_have_published_names():
    heads = MedusaHeads(2, 1, HIDDEN, VOCAB)
    assert {k for k in WEIGHTS if k[0] in "01"} == set(heads.state_dict())


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (without("1.0.linear.bias"), ["1.0.linear.bias", "(48,)"]),
        (without("2.1.weight"), ["2.1.weight", "(84, 48)"]),
        (WEIGHTS | {"2.1.weight": torch.zeros(80, 48)}, ["2.1.weight", "(84, 48)", "(80, 48)"]),
        (
            WEIGHTS | {"1.0.linear.weight": torch.zeros(48, 40)},
            ["1.0.linear.weight", "(48, 48)", "(48, 40)"],
        ),
        ({"fc.weight": torch.zeros(2, 2)}, ["0.0.linear.weight", "fc.weight"]),
        (WEIGHTS | {"0.2.weight": torch.zeros(84, 48)}, ["0.2.weight", "belong to none"]),
    ],
    ids=["bias", "map", "vocabulary", "hidden", "foreign", "more"],
)
def test_what_does_not_fit_is_named(tmp_path, tensors, words):
    with pytest.raises(ModelMismatchError) as caught:
        read(written(tmp_path, tensors))
    assert all(word in str(caught.value) for word in [*words, "medusa_lm_head.safetensors"])


def test_a_truncated_file_is_one_error(tmp_path):
    file = written(tmp_path, WEIGHTS) / "medusa_lm_head.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ConfigError, match=r"medusa_lm_head\.safetensors.*damaged or cut off"):
        read(tmp_path)
