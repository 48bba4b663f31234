"""The report of a sweep in its corners; tests/workbench/test_sweep_run.py has a whole one."""

from lenity.workbench.rundir import RunDir
from lenity.workbench.sweep_report import sweep_report
from lenity.workbench.sweep_run import run_sweep
from tests.workbench.studies import questions_file, study
from tests.workbench.test_sweep_run import settings


def test_a_sweep_that_recorded_nothing_says_so(tmp_path):
    data = questions_file(tmp_path)
    run, missing = run_sweep(study(tmp_path / "run", data, minutes=1e-9), settings())
    run.pause(missing)
    report = sweep_report(RunDir.open(tmp_path / "run"))
    assert report.sweeps == ()
    assert len(report.missing) == 4
