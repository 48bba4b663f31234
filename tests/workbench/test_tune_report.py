"""The report of a tune in its corners; tests/workbench/test_tune_run.py has a whole one."""

from lenity.workbench.rundir import RunDir
from lenity.workbench.tune_report import tune_report
from lenity.workbench.tune_run import run_tune
from tests.workbench.studies import questions_file, study
from tests.workbench.test_tune_run import settings


def test_a_tune_that_only_traced_has_a_report(tmp_path):
    data = questions_file(tmp_path)
    run, _, missing = run_tune(study(tmp_path / "run", data, minutes=1e-9), settings())
    run.pause(missing)
    report = tune_report(RunDir.open(tmp_path / "run"))
    assert report.verdict is None
    assert report.frontier is None
    assert report.predicted == ()
    assert "4 requests of trace" in report.missing[0].what
