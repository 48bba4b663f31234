"""``lenity report``: from a finished, read-only run."""

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
