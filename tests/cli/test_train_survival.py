import json

import pytest
import torch
from typer.testing import CliRunner

from lenity.cli.main import app
from lenity.skipping import skip_rule
from lenity.skipping.calibration import read_calibration
from lenity.workbench.diagnostics import read_blocks

SMALL = ["--gamma", "4", "-n", "8", "--count", "6", "--epochs", "1", "--families", "maths,code"]


def train(*arguments):
    return CliRunner().invoke(app, ["train", "survival", *map(str, arguments)])


@pytest.fixture
def asked(tiny):
    return ["--target", tiny, "--drafter", f"autoregressive:model={tiny}", *SMALL]


def test_a_run_ends_with_predictors_logs_and_one_document(asked, tmp_path):
    folder = tmp_path / "run"
    done = train("--out", folder, *asked, "--calibrate", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["prompts"] == 6
    assert set(found["signals"]) == {"raw", "marginal", "conditional"}
    for name, signal in found["signals"].items():
        assert len(read_blocks(folder / f"{name}.jsonl").lengths) == found["blocks"]
        assert [outcome["gates"] for outcome in signal["ablation"]] == ["full", "local", "prefix"]
        assert sum(b["count"] for b in signal["reliability"]) > 0
        assert signal["permutation"]["before"] >= 0
        assert 0 <= signal["prefix_calibration_error"] <= 1
    rule = skip_rule(f"conditional:predictor={folder / 'conditional' / 'fold-0'}")
    temperatures = rule.loaded(torch.device("cpu")).description.temperatures
    assert temperatures, "calibration was asked for"
    calibration = read_calibration(folder / "confidence.json")
    assert calibration.model_dump(mode="json") == found["confidence"]
    assert calibration.drafter.startswith("autoregressive:")
    assert calibration.blocks == found["blocks"]
    blocks = {file: file.stat().st_mtime_ns for file in (folder / "blocks").iterdir()}
    again = train("--out", folder, *asked, "--calibrate", "--json")
    assert json.loads(again.stdout) == found
    assert {file: file.stat().st_mtime_ns for file in (folder / "blocks").iterdir()} == blocks


def test_people_get_a_table(asked, tmp_path):
    short = ["--estimands", "marginal", "--scalars-only", "--calibrate"]
    done = train("--out", tmp_path / "run", *asked, *short)
    assert done.exit_code == 0, done.output
    assert "shuffled" in done.stdout
    assert "of 6 prompts" in done.stdout.replace("\n", " ")
    assert "temperatures in confidence.json" in done.stdout.replace("\n", " ")
    assert not (tmp_path / "run" / "conditional").exists()


def test_an_unknown_estimand_is_refused_before_a_model_is_loaded(tmp_path):
    done = train("--out", tmp_path / "run", "--drafter", "ngram", "--estimands", "joint")
    assert done.exit_code == 2
    assert "among marginal, conditional, got 'joint'" in done.output.replace("\n", " ")
    assert not (tmp_path / "run").exists()
