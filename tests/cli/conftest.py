import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from examples.tiny_model import save_tiny_model
from lenity.cli.main import app


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a small Llama with a byte tokenizer and a chat template."""
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def run() -> Callable[..., Any]:
    """Run a command line in this process."""

    def invoke(*arguments: str, stdin: str | None = None) -> Any:
        return CliRunner().invoke(app, list(arguments), input=stdin, catch_exceptions=False)

    return invoke


@pytest.fixture
def run_json(run) -> Callable[..., Any]:
    """Run a command line that prints one JSON document, and return the document."""

    def invoke(*arguments: str, stdin: str | None = None, exit_code: int = 0) -> Any:
        done = run(*arguments, "--json", stdin=stdin)
        assert done.exit_code == exit_code, done.stderr
        return json.loads(done.stdout)

    return invoke


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], str]:
    """Write a file and return its name."""

    def to(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return to
