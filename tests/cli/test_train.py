import json

import pytest
from typer.testing import CliRunner

from lenity.cli.main import app
from lenity.models import loading
from tests.training import rig

RUN = ["--type", "medusa:num_heads=2", "--steps", "3", "--batch-size", "4", "--json"]


def run(*arguments):
    return CliRunner().invoke(app, ["train", "drafter", *map(str, arguments)])


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    model = rig.target()
    monkeypatch.setattr(loading, "load", lambda name, **options: model)
    file = tmp_path / "replies.jsonl"
    file.write_text("".join(json.dumps(reply) + "\n" for reply in rig.replies(6)))
    return file


def test_a_run_ends_with_one_document_and_goes_on_when_asked_again(recorded, tmp_path):
    folder = tmp_path / "run"
    done = run("--replies", recorded, "--out", folder, *RUN)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["steps"] == 3
    assert document["bytes"] == (folder / "drafter" / "medusa_lm_head.safetensors").stat().st_size
    assert set(document["validation"]) >= {"all"}
    more = [*RUN[:3], "5", *RUN[4:], "--no-capture"]
    again = run("--replies", recorded, "--out", folder, *more)
    assert json.loads(again.stdout)["steps"] == 5


def test_people_get_a_table(recorded, tmp_path):
    done = run("--replies", recorded, "--out", tmp_path / "run", *RUN[:-1])
    assert done.exit_code == 0, done.output
    assert "tokens per pass" in done.stdout
    assert "3 steps" in done.stdout


def test_what_cannot_be_used_is_refused_before_a_model_is_loaded(tmp_path):
    missing = run("--replies", tmp_path / "none.jsonl", "--out", tmp_path / "run")
    assert missing.exit_code == 2
    assert "none.jsonl" in missing.output
    unknown = run("--replies", tmp_path, "--out", tmp_path / "run", "--type", "eagle4")
    assert unknown.exit_code == 2
    assert "eagle3" in unknown.output
    assert not (tmp_path / "run").exists()


def test_help_reads_the_settings_descriptions():
    done = run("--help")
    assert done.exit_code == 0
    assert "Optimiser steps" in done.output.replace("\n", " ")
