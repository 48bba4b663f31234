import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
MAX_LINES = 60
NAMES = sorted(file.stem for file in EXAMPLES.glob("*.py"))
RUN = [name for name in NAMES if name != "tiny_model"]  # what the others build


@pytest.mark.parametrize("name", RUN)
def test_an_example_runs_without_a_model(name, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) > 2


@pytest.mark.parametrize("name", NAMES)
def test_an_example_fits_on_a_screen(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < MAX_LINES
