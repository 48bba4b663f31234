"""The report of an audit says what the judge said."""

import pytest

from lenity.workbench.audit import judge
from lenity.workbench.audit_report import audit_report
from lenity.workbench.audit_run import run_audit
from tests.workbench.studies import audit_settings, point, questions, questions_file, study


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    data = questions_file(folder)
    settings = audit_settings(questions=questions(spec="jsonl:scorer=exact"))
    run, missing = run_audit(study(folder / "run", data), point(data), settings)
    found = judge(run)
    run.close()
    return run, found, audit_report(run, found, missing)


def test_the_card_is_the_decision(made):
    _, found, report = made
    assert report.verdict.outcome == found.decision.outcome
    assert report.verdict.gates == found.decision.gates
    assert report.verdict.num_prompts == 8
    assert report.operating_point["policy"] == "asd:budget=1,gate=inf,block_cap=none"


def test_parts_that_were_measured_are_there(made):
    run, found, report = made
    assert report.regret.budget == 1
    (arm,) = report.regret.arms
    assert sum(arm.histogram.counts) == 8
    assert [row.arm for row in report.latency.arms] == ["strict-a", "relaxed", "strict-b"]
    assert {p.role for p in report.frontier.points} == {"strict", "chosen"}
    assert report.frontier.points[1].relative_calls < 1, "jumping costs no more target passes"
    assert report.disclosure.run_ids == (run.manifest.run_id,)
    assert report.disclosure.divergences["policy"] == found.divergences.counts["policy"]
    assert [table.name for table in report.own_tables] == ["tasks", "natural_eos", "fixed_work"]
    assert len(report.samples) == 4


def test_what_is_missing_is_said(made):
    run, found, _ = made
    report = audit_report(run, found, {"relaxed": 3})
    assert "3 requests of relaxed" in report.missing[0].what
