"""The network by hand, its file, and drafters it was not made for."""

import json
import math

import pytest
import torch
from safetensors.torch import save_file

from lenity.errors import ConfigError, ModelMismatchError
from lenity.skipping.features import SCALARS, scalar_features
from lenity.skipping.survival import (
    DESCRIPTION,
    DROPOUT,
    WEIGHTS,
    Description,
    SurvivalPredictor,
    load_predictor,
)
from lenity.types import Draft
from tests.skipping.drafts import recorded


def made(hidden_size=3, width=4, seed=1, **more):
    """Return a predictor with random weights."""
    about = Description(estimand="conditional", hidden_size=hidden_size, width=width, **more)
    predictor = SurvivalPredictor(about)
    draw = torch.Generator().manual_seed(seed)
    for tensor in predictor.state_dict().values():
        tensor.copy_(torch.randn(tensor.shape, generator=draw))
    return predictor


def written(predictor, folder):
    folder.mkdir(exist_ok=True)
    (folder / DESCRIPTION).write_text(predictor.description.model_dump_json())
    save_file(predictor.state_dict(), folder / WEIGHTS, metadata={"made": "by a test"})
    return folder


def by_hand(predictor, inputs):
    """One position's logit, in float64, unit by unit."""
    state = {name: tensor.double() for name, tensor in predictor.state_dict().items()}
    x = [
        (value - m) * s
        for value, m, s in zip(
            inputs.tolist(), state["mean"].tolist(), state["scale"].tolist(), strict=True
        )
    ]
    for layer in range(4):
        weight, bias = state[f"layers.{layer}.weight"], state[f"layers.{layer}.bias"]
        x = [
            float(bias[o]) + sum(float(weight[o, i]) * x[i] for i in range(len(x)))
            for o in range(len(bias))
        ]
        if layer < 3:
            x = [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x]
    return x[0]


def test_scores_are_the_network_by_hand():
    predictor, draft = made(temperatures=(2.0, 0.5)), recorded([4, 2])
    found = predictor.scores(draft, [3, 9], ["code", None])
    scalars = scalar_features(draft, [3, 9], ["code", None])
    for row, length in enumerate([4, 2]):
        for j in range(length):
            inputs = torch.cat([draft.record.hidden[row, j], scalars[row, j]])
            temperature = 2.0 if j == 0 else 0.5  # the last one holds behind it
            logit = by_hand(predictor, inputs) / temperature
            assert float(found[row, j]) == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-5)
        assert not found[row, length:].any()


def test_a_folder_is_read_as_it_was_written(tmp_path):
    predictor = made()
    again = load_predictor(written(predictor, tmp_path / "p"))
    assert again.description == predictor.description
    assert again.name == str(tmp_path / "p")
    for name, tensor in predictor.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])


def test_dropout_keeps_the_mean_and_is_the_generators():
    predictor, inputs = made(width=64), torch.randn(2, 22, generator=torch.Generator())
    draws = [predictor(inputs, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], predictor(inputs)), "training drops, judging does not"
    assert DROPOUT == 0.1


def test_scalars_alone_need_no_record():
    predictor = made(hidden_size=0)
    assert predictor.input_size == len(SCALARS) == 19
    assert predictor.scores(recorded([4], hidden_size=7), [0]).shape == (1, 4)


def test_a_draft_of_nothing_has_no_scores():
    """Not even of a drafter with states: where nothing is drafted there is no record."""
    none = Draft(token_ids=torch.zeros(2, 0, dtype=torch.int64), lengths=torch.tensor([0, 0]))
    assert made().scores(none, [0, 0]).shape == (2, 0)


@pytest.mark.parametrize(("size", "got"), [(5, "5 numbers"), (None, "none")])
def test_another_drafters_state_is_refused(size, got):
    draft = recorded([4], hidden_size=size or 1)
    if size is None:
        object.__setattr__(draft, "record", None)
    with pytest.raises(ModelMismatchError, match=f"state of 3 numbers at each position, got {got}"):
        made(drafter="masked_diffusion").scores(draft, [0])


def test_what_is_no_predictor_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"No such file.*lenity train survival"):
        load_predictor(tmp_path)
    folder = written(made(), tmp_path / "p")
    weights = (folder / WEIGHTS).read_bytes()
    header = b'[{"mean": 1}]'
    listed = len(header).to_bytes(8, "little") + header
    for content in (weights[:40], weights[:-8], b"", listed):
        (folder / WEIGHTS).write_bytes(content)
        with pytest.raises(ConfigError, match="Expected a survival predictor in"):
            load_predictor(folder)
    (folder / WEIGHTS).write_bytes(weights)
    about = json.loads((folder / DESCRIPTION).read_text())
    for change, said in [
        ({"scalars": ["entropy"]}, "it reads other numbers: entropy"),
        ({"width": 5}, "size mismatch"),
        ({"temperatures": [0]}, "finite temperatures above 0"),
        ({"version": 2}, r"predictor\.json: version: expected 1, got 2"),
        ({"estimand": "joint"}, "estimand: expected 'marginal' or 'conditional', got 'joint'"),
    ]:
        (folder / DESCRIPTION).write_text(json.dumps(about | change))
        with pytest.raises(ConfigError, match=said):
            load_predictor(folder)


def test_weights_of_another_type_are_refused(tmp_path):
    folder = written(made(), tmp_path / "p")
    save_file({"mean": torch.zeros(22, dtype=torch.float64)}, folder / WEIGHTS)
    with pytest.raises(ConfigError, match="mean is F64, no F32"):
        load_predictor(folder)
