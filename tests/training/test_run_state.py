import json

import pytest
import torch

from lenity.errors import RunDirError
from lenity.training.run_state import CURVE, SETTINGS, RunState, open_run, read_curve
from lenity.training.settings import TrainingSettings

SETTINGS_OF = TrainingSettings(recipe="medusa", steps=5)


def state(folder):
    head = torch.nn.Linear(2, 2)
    return RunState(folder, head, torch.optim.AdamW(head.parameters()), torch.arange(3))


def test_what_was_saved_is_what_is_gone_on_from(tmp_path):
    assert open_run(tmp_path, SETTINGS_OF, "x") is None
    first = state(tmp_path)
    first.head(torch.ones(1, 2)).sum().backward()
    first.optimizer.step()
    first.progress.step = 2
    first.save()
    for step in (1, 2, 3):
        first.report({"step": step})
    with (tmp_path / CURVE).open("a") as file:
        file.write('{"step": 4, "lo')
    saved = open_run(tmp_path, SETTINGS_OF, "x")
    second = state(tmp_path)
    second.restore(saved)
    assert torch.equal(second.head.weight, first.head.weight)
    assert second.progress.step == 2
    assert second.optimizer.state_dict()["state"].keys() == {0, 1}
    assert read_curve(tmp_path) == [{"step": 1}, {"step": 2}]
    assert saved["kept_ids"].tolist() == [0, 1, 2]


def test_a_run_goes_on_for_longer_but_not_with_other_settings(tmp_path):
    open_run(tmp_path, SETTINGS_OF, "x")
    longer = SETTINGS_OF.model_copy(update={"steps": 50})
    open_run(tmp_path, longer, "x")
    assert json.loads((tmp_path / SETTINGS).read_text())["steps"] == 50
    with pytest.raises(RunDirError, match=r"learning_rate=0\.1 .* got one with 0\.001"):
        open_run(tmp_path, SETTINGS_OF.model_copy(update={"learning_rate": 0.1}), "x")
    with pytest.raises(RunDirError, match="target='y'"):
        open_run(tmp_path, SETTINGS_OF, "y")
    (tmp_path / SETTINGS).write_text("{")
    with pytest.raises(RunDirError, match="settings of a run"):
        open_run(tmp_path, SETTINGS_OF, "x")
