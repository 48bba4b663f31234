"""A tune from traces to a point, a deadline, and going on."""

import json

import pytest

from lenity.workbench.config import FixedWork, NaturalEos
from lenity.workbench.operating_point import load_operating_point
from lenity.workbench.rundir import RunDir
from lenity.workbench.tune import TuneSettings
from lenity.workbench.tune_report import tune_report
from lenity.workbench.tune_run import POINT_FILE, run_tune
from tests.workbench.studies import DRAFTER, questions, questions_file, study


def settings(**changes):
    base = {
        "questions": questions(6),
        "drafter": DRAFTER,
        "gammas": (2, 4),
        "policies": ("asd:budget=1,gate=inf,block_cap=none", "priced:budget=4,price=0.5"),
        "trace_prompts": 4,
        "finalists": 2,
        "rungs": 2,
        "fixed": FixedWork(new_tokens=8, repeats=1, warmup_tokens=0),
        "natural": NaturalEos(max_new_tokens=80),
        "resamples": 200,
    }
    return TuneSettings.model_validate(base | changes)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune")
    data = questions_file(folder)
    run, point, missing = run_tune(study(folder / "run", data), settings())
    assert not missing
    run.close()
    return run, point


def test_the_point_is_what_was_chosen_and_says_why(done):
    run, point = done
    chosen = json.loads((run.path / "chosen.json").read_text())
    assert load_operating_point(run.path / POINT_FILE) == point
    assert point.chosen_by.run_id == run.manifest.run_id
    assert point.chosen_by.rule == chosen["rule"]
    assert point.data.num_prompts == 6
    assert point.audit is None
    assert point.is_off == (chosen["name"] == "plain")


def test_only_discovery_prompts_were_asked(done, tmp_path):
    run, _ = done
    own = study(tmp_path, questions_file(tmp_path))
    audit = {job.item_id for job in own.selection(questions(40), "audit").jobs}
    assert not audit & {record.item_id for record in run.records()}


def test_predictions_stand_beside_measurements(done):
    run, _ = done
    report = tune_report(run)
    (predicted,) = report.predicted
    assert all(point.predicted > 0 for point in predicted.points)
    assert report.frontier.points[0].role == "strict"
    assert report.opportunity.tasks[0].num_mismatches > 0
    assert report.verdict.outcome in ("chosen", "off")


def test_time_that_is_up_leaves_no_point_and_a_run_to_go_on_with(tmp_path):
    data = questions_file(tmp_path)
    run, point, missing = run_tune(study(tmp_path / "run", data, minutes=1e-9), settings())
    assert point is None
    assert missing == {"trace": 4}
    run.pause(missing)
    run, point, missing = run_tune(study(tmp_path / "run", data), settings())
    assert point is not None
    run.finish()
    again, point, missing = run_tune(study(tmp_path / "run", data), settings())
    assert again.is_finished
    assert point is None
    assert RunDir.open(tmp_path / "run").manifest.kind == "tune"
