"""A report on disk: page, document, tables."""

import csv
import subprocess
import sys

import pytest

from lenity.errors import RunDirError
from lenity.workbench.report.write import read_report, write_report
from lenity.workbench.rundir import RunDir
from tests.workbench.made import manifest
from tests.workbench.report.sample import bare, frontier, report, tasks


def small(**changes):
    """A report without a plot, quick to draw."""
    return bare(tasks=tasks(), **changes)


def files_in(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


def test_page_document_and_tables_are_written(tmp_path):
    page = write_report(report(), tmp_path / "new" / "folder")
    assert page == tmp_path / "new" / "folder" / "report.html"
    assert sorted(files_in(page.parent)) == [
        "report.html",
        "summary.json",
        "tables/acceptance.csv",
        "tables/asd-block-cap.csv",
        "tables/asd-budget.csv",
        "tables/frontier.csv",
        "tables/latency.csv",
        "tables/opportunity.csv",
        "tables/predicted-tokens.csv",
        "tables/regret.csv",
        "tables/survival.csv",
        "tables/tasks.csv",
    ]
    assert read_report(page.parent) == report()
    with (page.parent / "tables" / "tasks.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["task"] == "gsm8k@1"
    assert float(rows[0]["gain"]) == 0.0812
    assert float(rows[0]["gain_low"]) == pytest.approx(0.0632)
    assert rows[3]["difference"] == ""


def test_the_same_report_gives_the_same_bytes(tmp_path):
    for folder in ("a", "b"):
        write_report(bare(frontier=frontier()), tmp_path / folder)
    assert files_in(tmp_path / "a") == files_in(tmp_path / "b")


def test_a_report_can_be_made_again_from_its_document(tmp_path):
    write_report(small(), tmp_path / "a")
    write_report(read_report(tmp_path / "a"), tmp_path / "b")
    assert files_in(tmp_path / "a") == files_in(tmp_path / "b")


def test_a_later_report_replaces_an_earlier_one(tmp_path):
    write_report(small(), tmp_path)
    write_report(small(summary="Again"), tmp_path)
    assert "Again" in (tmp_path / "report.html").read_text()
    assert not list(tmp_path.rglob("*.partial"))


def test_it_goes_into_a_run_that_goes_on_and_not_into_a_finished_one(tmp_path):
    run = RunDir.create(tmp_path / "run", manifest())
    write_report(small(), run.path)
    run.finish()
    assert "report.html" in run.manifest.files
    with pytest.raises(RunDirError, match=r"finished run .* Choose another folder"):
        write_report(small(title="Other"), run.path)
    run.verify()


@pytest.mark.parametrize("below", ["taken", "taken/below"])
def test_a_folder_that_cannot_be_made_is_refused(tmp_path, below):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(RunDirError, match=r"Expected a folder for a report.*taken"):
        write_report(report(), tmp_path / below)


def test_what_is_no_report_is_refused(tmp_path):
    with pytest.raises(RunDirError, match=r"Expected a report with a summary\.json"):
        read_report(tmp_path)
    (tmp_path / "summary.json").write_text('{"title": 3}')
    with pytest.raises(RunDirError, match="damaged"):
        read_report(tmp_path)
    newer = small().model_dump_json().replace('"schema_version":1', '"schema_version":99', 1)
    assert newer != small().model_dump_json()
    (tmp_path / "summary.json").write_text(newer.replace('"title"', '"heading"'))
    with pytest.raises(RunDirError, match="Expected schema version 1 or older"):
        read_report(tmp_path)


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_without_the_extra_it_says_what_to_install(tmp_path, missing):
    probe = (
        "import sys\n"
        f"sys.modules[{missing!r}] = None\n"
        "from lenity.errors import MissingExtraError\n"
        "from lenity.workbench.report.data import ReportData\n"
        "from lenity.workbench.report.write import check_installed, write_report\n"
        "from pathlib import Path\n"
        "data = ReportData(title='t', setting={'models': 'm', 'hardware': 'h'})\n"
        f"for ask in (lambda: write_report(data, Path({str(tmp_path)!r})), check_installed):\n"
        "    try:\n"
        "        ask()\n"
        "    except MissingExtraError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert (
        done.stdout
        == (
            f"A report needs jinja2 and matplotlib, of which {missing} is not installed. "
            f"Run: pip install 'lenity[report]'\n"
        )
        * 2
    )
    assert not list(tmp_path.iterdir())
