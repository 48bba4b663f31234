"""Every command in a block of the documentation can be given, as far as its words go."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from lenity.cli.main import app

ROOT = Path(__file__).parent.parent
FILES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]


def commands(file):
    """The lines of a file's blocks that call lenity; a synopsis with optional parts is none."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", file.read_text(), re.DOTALL | re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", "\n".join(blocks)).splitlines()
    return [line for line in lines if line.startswith("lenity ") and "[-" not in line]


COMMANDS = [(file.name, line) for file in FILES for line in commands(file)]


def test_commands_are_found():
    assert {"README.md", "drafters.md", "skipping.md", "workbench.md"} <= {n for n, _ in COMMANDS}


@pytest.mark.parametrize("line", [line for _, line in COMMANDS])
def test_a_command_of_the_documentation_can_be_given(line):
    command = typer.main.get_command(app)
    words = shlex.split(line, comments=True)[1:]
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    context = command.make_context("lenity", words)
    assert not context.args, "words that no option or argument took"
