"""Sweeps without a model, from blocks to a report made again from the run alone."""

import shutil
import subprocess
import sys

import pytest

from lenity.errors import RunDirError
from lenity.workbench.manifest import MANIFEST
from lenity.workbench.report.write import write_report
from lenity.workbench.rundir import RunDir
from lenity.workbench.sweep_offline import RESULT, is_offline, offline_report, run_offline
from lenity.workbench.sweep_proposition import proposition_sweep
from lenity.workbench.sweep_survival import survival_sweep
from tests.workbench.logs import survival_run


def test_recorded_blocks_become_a_report(tmp_path):
    blocks = survival_run(tmp_path / "blocks")
    settings = survival_sweep(blocks, repetitions=3)
    run = run_offline(tmp_path / "run", settings, blocks)
    run.finish()
    shutil.rmtree(blocks)
    again = RunDir.open(tmp_path / "run")
    assert is_offline(again)
    report = offline_report(again)
    assert report.setting.models == "toy:target, toy:drafter"
    page = write_report(report, tmp_path / "report").read_text()
    assert "AUROC by position" in page
    assert (tmp_path / "report" / "tables" / "signals.csv").is_file()
    assert len(report.sweeps) == 7
    assert len(report.reliability) == 2
    assert run_offline(tmp_path / "run", settings, blocks).is_finished


def test_other_blocks_are_another_run(tmp_path):
    blocks = survival_run(tmp_path / "blocks")
    run_offline(tmp_path / "run", survival_sweep(blocks, repetitions=1), blocks).close()
    shutil.rmtree(blocks)
    survival_run(blocks, num=200)
    with pytest.raises(RunDirError, match="digests"):
        run_offline(tmp_path / "run", survival_sweep(blocks, repetitions=1), blocks)


def test_the_proposition_becomes_a_report(tmp_path):
    run = run_offline(tmp_path / "run", proposition_sweep(6, ["0.7"]))
    report = offline_report(run)
    run.close()
    assert [plot.key.partition("-")[0] for plot in report.sweeps] == ["passing", "bce", "auroc"]
    assert report.tables[0].name == "proposition"
    assert "geometric" in report.disclosure.protocols[0]


def test_what_another_lenity_computed_is_refused_by_file_and_field(tmp_path):
    run = run_offline(tmp_path / "run", proposition_sweep(6, ["0.7"]))
    run.close()
    file, manifest = tmp_path / "run" / RESULT, tmp_path / "run" / MANIFEST
    text = manifest.read_text()
    manifest.write_text(text.replace('"proposition"', '"survival"'))
    with pytest.raises(RunDirError, match=r"manifest\.json: settings\.offline: preset: expected"):
        offline_report(RunDir.open(tmp_path / "run"))
    manifest.write_text(text)
    file.write_text("{}x")
    with pytest.raises(RunDirError, match=r"diagnostics\.json: expected JSON.*damaged"):
        offline_report(RunDir.open(tmp_path / "run"))


def test_no_model_and_no_torch_is_loaded():
    probe = (
        "import sys; from lenity.workbench import sweep_offline; "
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
