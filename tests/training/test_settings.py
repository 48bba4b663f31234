"""Settings of training runs: what is refused before anything is captured."""

import pytest
from pydantic import ValidationError

from lenity.training.settings import TrainingSettings


def test_a_masked_diffusion_drafter_begins_with_no_checkpoint():
    with pytest.raises(ValidationError, match="begins with no checkpoint"):
        TrainingSettings(recipe="masked_diffusion", initial="folder")
    assert TrainingSettings(recipe="eagle3", initial="folder").initial == "folder"


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"learning_rate": 0}, {"floor": 2}, {"x": 1}])
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(ValidationError):
        TrainingSettings(recipe="eagle3", **wrong)
