import json

import pytest
import torch

from lenity.errors import ConfigError
from lenity.skipping import skip_rule
from lenity.skipping.calibration import Calibration, read_calibration, tempered
from lenity.types import Draft
from tests.skipping.drafts import asked


def test_a_logit_is_divided_by_its_positions_temperature():
    found = tempered(torch.tensor([[0.9, 0.9, 0.9], [0.5, 1.0, 0.0]]), (2.0, 0.5))
    cooled, sharpened = 3 / 4, 81 / 82  # odds 9 -> 3 and 81
    assert found[0].tolist() == pytest.approx([cooled, sharpened, sharpened], rel=1e-6)
    assert found[1].tolist() == [0.5, 1.0, 0.0]
    assert found.dtype is torch.float64


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_what_is_no_probability_stays_none(value):
    assert torch.isnan(tempered(torch.tensor([[value]], dtype=torch.float64), (1.0,))).all()


def test_no_positions_are_no_numbers():
    assert tempered(torch.zeros(2, 0), (1.0,)).shape == (2, 0)


def test_a_file_is_read_as_it_was_written(tmp_path):
    made = Calibration(temperatures=(1.5, 0.8), drafter="x", blocks=3, error_before=0.1)
    (tmp_path / "c.json").write_text(made.model_dump_json())
    assert read_calibration(tmp_path / "c.json") == made


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"temperatures": []}, "temperatures: expected at least 1 items"),
        ({"temperatures": [1, 0]}, r"temperatures\.1: expected more than 0, got 0"),
        ({"temperatures": [float("inf")]}, "finite"),
        ({"temperatures": [1], "other": 2}, "other"),
        ([1.0], "got"),
    ],
)
def test_what_is_no_calibration_is_refused(content, said, tmp_path):
    (tmp_path / "c.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=rf"temperatures of a drafter's .*c\.json.*{said}"):
        read_calibration(tmp_path / "c.json")


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"no/c\.json.*--calibrate"):
        read_calibration("no/c.json")
    for name in ("~nobody-of-that-name/c.json", "a\0b"):
        with pytest.raises(ConfigError, match="Expected temperatures"):
            read_calibration(name)


def rule(file, **knobs):
    spec = f"conditional:predictor=confidence,calibration={file},local=0,min_prefix=0"
    return skip_rule(spec, **knobs)


def test_the_gates_see_the_calibrated_product(tmp_path):
    file = tmp_path / "c.json"
    row = torch.tensor([[0.9, 0.9, 0.9]])
    draft = Draft(
        token_ids=torch.zeros(1, 3, dtype=torch.int64), lengths=torch.tensor([3]), confidence=row
    )
    file.write_text(Calibration(temperatures=(2.0,)).model_dump_json())
    # as it is said: .9, .81, .729; calibrated: .75, .5625, .4219
    bare = skip_rule("conditional:predictor=confidence,local=0,min_prefix=0,prefix=0.75")
    assert bare.prefix_length(asked(draft)).tolist() == [2]
    assert rule(file, prefix=0.749).prefix_length(asked(draft)).tolist() == [1]
    assert rule(file, prefix=0.42).prefix_length(asked(draft)).tolist() == [3]
    kept = rule(file, prefix=0.42)
    kept.prefix_length(asked(draft))
    file.unlink()
    assert kept.prefix_length(asked(draft)).tolist() == [3], "read once"
    assert skip_rule(kept.spec).spec == kept.spec


def test_only_a_drafters_own_confidence_takes_a_calibration():
    with pytest.raises(ConfigError, match="leave calibration out"):
        skip_rule("conditional:predictor=run/fold-0,calibration=c.json")
