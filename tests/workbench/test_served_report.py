import json

import pytest

from lenity.workbench.report.write import write_report
from lenity.workbench.served import judge_served, run_served
from lenity.workbench.served_report import served_report
from tests.workbench.engine import serving
from tests.workbench.test_served import data, direct, right, settings, study

__all__ = ["data", "direct"]


def circling(model, prompt):
    if prompt.endswith("7"):
        return 400
    return right(model, prompt) if model == "strict" else "x x x x x x"


@pytest.fixture
def made(tmp_path, data):
    """A report, and the run it is of."""
    with serving(circling) as engine:
        run, missing = run_served(study(tmp_path, data), settings(engine, 40))
    with run:
        yield served_report(run, judge_served(run), missing), run


def test_the_report_says_what_it_cannot_know(made):
    report, run = made
    notes = " ".join(report.disclosure.notes)
    assert "keeps no ledger" in notes
    assert "in words between white space" in notes
    assert "Speed is not judged" in notes
    assert "The baseline scores" in notes
    assert report.verdict.outcome == "rejected"
    assert report.verdict.gain is None
    assert report.regret is None
    assert report.disclosure.run_ids == (run.manifest.run_id,)
    failed = [r for r in run.records() if r.status == "failed"]
    assert failed
    assert len(report.disclosure.failed_samples) == len(failed)


def test_tables_hold_both_arms(made):
    report, _ = made
    tasks, arms = report.own_tables
    assert [c.label for c in tasks.columns[2:4]] == ["Baseline score", "Candidate score"]
    row = tasks.rows[0]
    cells = dict(zip([c.key for c in tasks.columns], row, strict=True))
    assert cells["baseline_score"] == 1
    assert cells["candidate_score"] == 0
    assert cells["difference"].estimate == -1
    first, second = (dict(zip([c.key for c in arms.columns], r, strict=True)) for r in arms.rows)
    assert (first["words"], second["words"]) == (1, 6)
    assert second["repetition"] == pytest.approx(2 / 3)


def test_it_is_written_as_a_page(made, tmp_path):
    page = write_report(made[0], tmp_path / "out")
    assert "keeps no ledger" in page.read_text()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["kind"] == "audit"


def test_families_are_slices(tmp_path):
    rows = [
        {"prompt": f"say {i}", "reference": str(i), "family": "odd" if i % 2 else "even"}
        for i in range(100)
    ]
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))

    def fails_odd(model, prompt):
        answer = right(model, prompt)
        return "no" if model == "relaxed" and int(answer) % 2 else answer

    with serving(fails_odd) as engine:
        run, _ = run_served(study(tmp_path, file), settings(engine, 30))
    with run:
        report = served_report(run, judge_served(run))
    assert report.worst_slice.name == "jsonl@1, odd"
    assert report.own_tables[-1].name == "slices"
    assert [c.label for c in report.own_tables[-1].columns[2:4]] == ["Baseline", "Candidate"]


def test_one_engine_twice_is_said_so(tmp_path, data):
    with serving(right) as engine:
        asked = settings(engine)
        asked = asked.model_copy(update={"baseline": asked.candidate})
        run, _ = run_served(study(tmp_path, data), asked)
    with run:
        report = served_report(run, judge_served(run), {"candidate": 3})
    assert "Both arms are one engine" in report.disclosure.notes[-1]
    assert report.missing[0].what == "3 requests of candidate"
