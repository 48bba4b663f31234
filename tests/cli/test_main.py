import os
import shlex
import subprocess
import sys
from typing import Any

import pytest

import lenity


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["list", "--help"]])
def test_help_imports_no_torch(arguments: list[str]):
    probe = (
        "import sys\n"
        "from lenity.cli.main import app\n"
        f"sys.argv = ['lenity', *{arguments!r}]\n"
        "try:\n    app()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = {'torch', 'transformers', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_help_names_every_command(run):
    done = run("--help")
    assert done.exit_code == 0
    assert all(name in done.stdout for name in ("generate", "demo", "list", "doctor"))


def test_version(run):
    assert run("--version").stdout.strip() == lenity.__version__


def test_what_lenity_refuses_is_a_message_and_exit_2(run):
    done = run("generate", "hi", "--policy", "adsd")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "Did you mean 'asd'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_command_is_exit_2(run):
    assert run("genrate").exit_code == 2


def test_threads_wait_passively_unless_told_otherwise(run, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "x")  # put back what was there, whatever happens
    monkeypatch.delenv("OMP_WAIT_POLICY")
    run("list", "policies")
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    run("list", "policies")
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"


COMMAND = "from lenity.cli.main import app; app()"


def _start(*arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", COMMAND, *arguments]
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, env=buffered, **streams)


@pytest.mark.parametrize(
    "arguments",
    [("policies",), ("policies", "--json"), ("models", "--json")],
    ids=["table", "long", "short"],  # what fits a buffer is only missed when it is flushed
)
def test_a_reader_that_goes_away_ends_it_without_a_word(arguments):
    with _start("list", *arguments, stdout=subprocess.PIPE) as child:
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 141


def test_a_full_disk_is_a_message():
    with open("/dev/full", "w") as full, _start("list", "policies", stdout=full) as child:
        said = child.stderr.read().decode()
    assert child.returncode == 2
    assert "No space left on device. Free some" in said
    assert "Traceback" not in said


def test_closed_streams_are_no_mistake():
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(COMMAND)} list policies"
    done = subprocess.run(["/bin/sh", "-c", f"{command} <&- >&-"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_option_of_another_type_is_told_in_our_words(run):
    done = run("generate", "hi", "--gamma", "1.5")
    assert done.exit_code == 2
    assert "Input should" not in done.stderr
    assert "1.5" in done.stderr or "integer" in done.stderr
