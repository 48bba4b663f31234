import json

import pytest
from typer.testing import CliRunner

from lenity.cli.main import app
from lenity.models import loading
from tests.training import rig

RUN = ["--type", "medusa:num_heads=2", "--steps", "3", "--batch-size", "4", "--json"]


def run(*arguments):
    return CliRunner().invoke(app, ["train", "drafter", *map(str, arguments)])


def record(*arguments):
    return CliRunner().invoke(app, ["train", "replies", *map(str, arguments)])


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
    assert "--initial" in done.output


def test_replies_are_recorded_and_trained_on(tiny, tmp_path):
    file, asked = tmp_path / "replies.jsonl", ["--target", tiny, "-n", "6", "--count", "5"]
    done = record("--out", file, *asked, "--families", "maths,chat", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {line["family"] for line in lines} == {"maths", "chat"}
    assert found["replies"] == len(lines) == 5
    assert found["tokens"] == found["written"] == sum(len(line["token_ids"]) for line in lines)
    again = record("--out", file, *asked, "--families", "maths,chat")
    assert again.exit_code == 0, again.output
    assert "(0 of them now)" in " ".join(again.stdout.split())
    trained = run("--target", tiny, "--replies", file, "--out", tmp_path / "run", *RUN)
    assert trained.exit_code == 0, trained.output


def test_own_prompts_are_answered_until_there_are_enough_tokens(tiny, tmp_path):
    own, file = tmp_path / "own.txt", tmp_path / "replies.jsonl"
    own.write_text("One line.\n\nAnother line.\nA third line.\n")
    done = record("--out", file, "--target", tiny, "-n", "4", "--prompts", own, "--json")
    assert json.loads(done.stdout)["replies"] == 3
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {line["prompt"] for line in lines} == {"One line.", "Another line.", "A third line."}
    assert {line["family"] for line in lines} == {"own"}
    enough = record("--out", file, "--target", tiny, "--num-tokens", "2", "--json")
    assert json.loads(enough.stdout)["written"] == 0


def test_prompts_that_are_not_there_are_refused_before_a_model_is_loaded(tmp_path):
    unknown = record("--out", tmp_path / "x", "--target", "none/such", "--families", "mathss")
    assert unknown.exit_code == 2
    assert "Did you mean 'maths'?" in unknown.output
    missing = record("--out", tmp_path / "x", "--prompts", tmp_path / "none.txt")
    assert missing.exit_code == 2
    assert "none.txt" in missing.output
