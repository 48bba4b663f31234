"""The parts of the child that can be called outside a child; the rest is in test_sandbox."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lenity.tasks.sandbox_child as child


def test_reports_carry_the_nonce_and_are_whole_lines():
    reader, writer = os.pipe()
    child.reporter(writer, "abc")({"start": "x\ny"})
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        assert stream.read() == b'abc {"start": "x\\ny"}\n'


def test_parts_run_in_order_until_one_fails():
    begun = []
    parts = [
        {"label": "a", "namespace": "one", "code": "x = 1"},
        {"label": "b", "namespace": "one", "code": "assert x == 2, 'x is  not\\ntwo'"},
        {"label": "c", "namespace": "one", "code": "y = 1"},
    ]
    ending = child.run(parts, begun.append)
    assert begun == ["a", "b"]
    assert ending == {"outcome": "failed", "detail": "AssertionError: x is not two (line 1)"}
    assert child.run(parts[:1], begun.append) == {"outcome": "passed", "detail": ""}


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(AssertionError(), "failed"), (SystemExit(0), "exited"), (ValueError(), "error")],
)
def test_kinds_of_endings(error, outcome):
    assert child.outcome_of(error) == outcome


def test_an_error_is_one_line():
    assert child.describe(ValueError("a\n b")) == "ValueError: a b"
    assert len(child.describe(ValueError("x" * 10_000))) < 300


def guarded(code: str, folder: Path) -> str:
    """Run code in a process that has the guard alone: no namespaces, no Landlock, no limits."""
    program = (
        f"import sys\nsys.path.insert(0, {str(Path(child.__file__).parent)!r})\n"
        "from sandbox_child import install_guard, Path\n"
        f"install_guard(Path({str(folder)!r}))\n"
        f"try:\n    exec({code!r})\nexcept PermissionError as e:\n    print('refused', e)\n"
        "else:\n    print('done')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.split()[0]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("open('inside', 'w')", "done"),
        ("open('../outside', 'w')", "refused"),
        ("open('/etc/hostname')", "done"),
        ("import os; os.fork()", "refused"),
        ("import socket; socket.socketpair()", "done"),
        ("import socket; socket.socket().connect(('127.0.0.1', 9))", "refused"),
        ("import subprocess; subprocess.run(['true'])", "refused"),
        (
            "import multiprocessing.util as m; m.spawnv_passfds(b'/bin/true', [b'true'], [])",
            "refused",
        ),
        ("import os; os.mkdir('d'); os.rename('d', '../d')", "refused"),
    ],
)
def test_the_guard_holds_alone(code, said, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    assert guarded(code, folder) == said
    assert [file.name for file in tmp_path.iterdir()] == ["work"]


def test_limits_are_those_asked_for(tmp_path):
    program = (
        f"import sys\nsys.path.insert(0, {str(Path(child.__file__).parent)!r})\n"
        "import sandbox_child, json, resource as r\n"
        "limits = dict(memory_bytes=1 << 30, file_bytes=1000, open_files=20, processes=500)\n"
        "complete = sandbox_child.limit(limits, 7)\n"
        "print(json.dumps([complete, *(r.getrlimit(w)[0] for w in (r.RLIMIT_CPU, r.RLIMIT_FSIZE, "
        "r.RLIMIT_NOFILE, r.RLIMIT_CORE))]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    said = json.loads(done.stdout)
    assert said[1:] == [7, 1000, 20, 0]
    assert said[0] is True or sys.platform != "linux"
