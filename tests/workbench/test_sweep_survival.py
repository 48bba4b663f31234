"""Settings of the sweep of recorded blocks, and what is refused."""

import pytest

from lenity.errors import ConfigError, RegistryError, RunDirError
from lenity.workbench.diagnosis import SignalGates
from lenity.workbench.sweep_survival import diagnose_all, survival_sweep
from tests.workbench.logs import survival_run


def test_all_logged_signals_are_looked_at(tmp_path):
    settings = survival_sweep(survival_run(tmp_path / "run"), repetitions=2)
    assert [own.signal for own in settings.gates] == ["raw", "marginal", "conditional"]
    assert settings.source.target == "toy:target"
    assert settings.source.gamma == 6
    assert len(set(settings.source.digests.values())) == 3
    found = diagnose_all(tmp_path / "run", settings)
    assert [own.blocks for own in found] == [300] * 3


def test_gates_can_be_given(tmp_path):
    folder = survival_run(tmp_path / "run")
    (folder / "blocks" / "blocks.json").unlink()
    settings = survival_sweep(folder, ["raw:local=0.5", "conditional"])
    assert settings.gates == (
        SignalGates(signal="raw", local=0.5, prefix=0.93),
        SignalGates(signal="conditional", local=0.9, prefix=0.9),
    )
    assert list(settings.source.digests) == ["raw", "conditional"]
    assert settings.source.drafter is None


def test_what_is_not_logged_is_refused(tmp_path):
    with pytest.raises(RunDirError, match="Expected logged blocks"):
        survival_sweep(tmp_path)
    folder = survival_run(tmp_path / "run")
    with pytest.raises(RegistryError, match="Did you mean 'marginal'"):
        survival_sweep(folder, ["marginl"])
    with pytest.raises(ConfigError, match=r"such as raw:local=0\.9"):
        survival_sweep(folder, ["raw:gate=0.5"])
    with pytest.raises(ConfigError, match="each signal once"):
        survival_sweep(folder, ["raw", "raw:local=0.5"])
    (folder / "marginal.jsonl").unlink()
    with pytest.raises(ConfigError, match="of raw, conditional, got marginal"):
        survival_sweep(folder, ["marginal"])
