import subprocess
import sys
from pathlib import Path

import torch

from lenity.workbench.facts import TargetFacts
from lenity.workbench.provenance import (
    Provenance,
    Versions,
    checkout,
    collect,
    hardware,
    versions,
)

ROOT = Path(__file__).parents[2]


def git(folder, *arguments):
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def test_a_run_knows_where_it_comes_from(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    made = collect(
        target=TargetFacts(name="toy"),
        template_hash="abc",
        data={"toy@1": "r1"},
        argv=("/home/somebody/.venv/bin/lenity", "tune", "/home/somebody/prompts.jsonl"),
    )
    assert made.argv == ("lenity", "tune", "/home/somebody/prompts.jsonl")  # as typed
    assert made.environment["OMP_WAIT_POLICY"] == "PASSIVE"
    assert "hunter2" not in made.model_dump_json()
    assert made.versions.torch == torch.__version__
    assert made.threads == torch.get_num_threads()
    assert made.hardware.cores >= 1
    assert made.hardware.cpu
    assert Provenance.model_validate_json(made.model_dump_json()) == made


def test_what_decides_and_what_times_depend_on_are_apart():
    made = collect(target=TargetFacts(name="toy"), argv=())
    assert set(made.deciding()) == {
        "target",
        "drafters",
        "template_hash",
        "data",
        "counters_version",
    }
    other = made.model_copy(update={"versions": Versions(lenity="9", python="9"), "argv": ("x",)})
    assert other.deciding() == made.deciding()
    assert other.machine() != made.machine()


def test_versions_are_asked_for_without_importing():
    code = (
        "import sys\n"
        "from lenity.workbench.provenance import collect\n"
        "made = collect()\n"
        "assert made.versions.torch and made.versions.transformers\n"
        "assert made.threads is None and made.hardware.gpus == ()\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert versions().python == ".".join(map(str, sys.version_info[:3]))


def checked_out(folder):
    package = folder / "src" / "lenity"
    package.mkdir(parents=True)
    (package / "a.py").write_text("1")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    return package


def test_a_checkout_has_a_commit_and_says_when_it_is_dirty(tmp_path):
    package = checked_out(tmp_path)
    found = checkout(package)
    assert len(found.sha) == 40
    assert not found.is_dirty
    (tmp_path / "untracked").write_text("")
    assert not checkout(package).is_dirty
    (package / "a.py").write_text("2")
    assert checkout(package).is_dirty


def test_an_installed_package_has_none_even_inside_a_repository(tmp_path, monkeypatch):
    checked_out(tmp_path)
    inside = tmp_path / ".venv" / "lib" / "lenity"
    inside.mkdir(parents=True)
    assert checkout(inside) is None
    assert checkout(tmp_path / "nowhere") is None
    empty = tmp_path / "elsewhere" / "src" / "lenity"
    empty.mkdir(parents=True)
    git(tmp_path / "elsewhere", "init", "-q")
    assert checkout(empty) is None  # no commit yet
    monkeypatch.setenv("PATH", "")
    assert checkout(tmp_path / "src" / "lenity") is None  # no git


def test_the_machine_has_no_name():
    assert set(hardware().model_dump()) == {"cpu", "cores", "gpus"}
