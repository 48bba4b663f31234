"""``lenity report``: from a finished, read-only run."""

import json
import shutil

import pytest

from tests.cli.workbench import tuned

__all__ = ["tuned"]


def test_the_report_goes_beside_the_run(tuned, tmp_path, run_json):
    folder, made = tuned
    document = run_json("report", str(folder), "--to", str(tmp_path / "again"))
    assert document["run_id"] == made["run_id"]
    page = (tmp_path / "again" / "report.html").read_text()
    assert page == (folder / "report.html").read_text()


def test_a_run_of_another_kind_is_refused(tuned, tmp_path, run):
    folder, _ = tuned
    text = (folder / "manifest.json").read_text().replace('"kind": "tune"', '"kind": "trace"')
    (tmp_path / "manifest.json").write_text(text)
    done = run("report", str(tmp_path))
    assert done.exit_code == 2
    assert "got one of kind 'trace'" in done.stderr


@pytest.mark.parametrize("name", ["nowhere"])
def test_a_folder_without_a_run_is_refused(run, tmp_path, name):
    done = run("report", str(tmp_path / name))
    assert done.exit_code == 2


def test_two_runs_are_put_side_by_side(tuned, tmp_path, run, run_json):
    folder, made = tuned
    to = ("--to", str(tmp_path / "both"))
    document = run_json("report", str(folder), "--against", str(folder), *to)
    assert document["is_comparable"]
    assert document["differences"] == []
    assert document["run_ids"] == [made["run_id"]] * 2
    assert {row["equal"] for row in document["arms"]} == {1}
    assert (tmp_path / "both" / "report.html").is_file()
    assert "Side by side" in run("report", str(folder), "--against", str(folder), *to).stdout


def test_a_run_is_where_one_stands(tuned, tmp_path, run_json, monkeypatch):
    folder = tmp_path / "own"
    shutil.copytree(tuned[0], folder)
    monkeypatch.chdir(folder)
    page = tmp_path / "own-report" / "report.html"
    assert run_json("report", ".")["report"] == str(page)
    (folder / "tables").mkdir(exist_ok=True)
    monkeypatch.chdir(folder / "tables")
    assert run_json("report", "..")["report"] == str(page)
    both = run_json("report", "..", "--against", "..")
    assert both["report"] == str(tmp_path / "own-against-own" / "report.html")
    assert page.is_file()


def test_force_without_a_second_run_is_refused(tuned, run):
    done = run("report", str(tuned[0]), "--force")
    assert done.exit_code == 2
    assert "--against RUN" in done.stderr


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kind": "audit"}, "manifest.json needs the field settings.audit"),
        ({"kind": "sweep"}, "manifest.json needs the field settings.sweep"),
        ({"settings": {"tune": {"batch": 1}}}, "settings.tune needs the field questions: "),
        ({"kind": "audit", "settings": {"served": []}}, "manifest.json: settings.served: "),
    ],
)
def test_settings_of_another_lenity_are_refused_by_file_and_field(
    tuned, tmp_path, run, changes, told
):
    made = json.loads((tuned[0] / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(made | changes))
    done = run("report", str(tmp_path))
    assert done.exit_code == 2
    assert told in "".join(done.stderr.split("\n"))
