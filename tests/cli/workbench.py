"""A tune on the tiny model, made once for the tests of several commands."""

import json

import pytest
from typer.testing import CliRunner

from lenity.cli.main import app

TASK = ("--task", "own_prompts:families=data", "--drafter", "ngram")
SMALL = (
    *("--prompts", "4", "--trace-prompts", "2", "--finalists", "1", "--rungs", "1"),
    *("--gamma", "2", "--work-tokens", "8", "-n", "12", "--policy", "asd:budget=8,gate=inf"),
)


@pytest.fixture(scope="session")
def tuned(tiny, tmp_path_factory):
    """The folder of a finished tune, and the document it printed."""
    folder = tmp_path_factory.mktemp("tuned") / "run"
    words = ["tune", "-o", str(folder), "-m", tiny, *TASK, *SMALL, "--json"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return folder, json.loads(done.stdout)
