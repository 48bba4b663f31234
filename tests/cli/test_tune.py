"""From tune to audit to report on the command line, on a model of two layers."""

import json

import pytest

from lenity.workbench.operating_point import load_operating_point
from tests.cli.workbench import SMALL, TASK, tuned

__all__ = ["tuned"]


def test_a_point_is_written_and_read_back(tuned):
    folder, document = tuned
    point = load_operating_point(folder / "operating-point.yaml")
    assert document["operating_point"] == point.model_dump(mode="json")
    # which of the two it is depends on measured times: drafting, or off where plain decoding wins
    assert point.is_off or point.drafter.spec == "ngram"
    assert (folder / "report.html").is_file()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["state"] == "finished"
    assert document["run_id"] == manifest["run_id"]


def test_a_finished_tune_is_told_again_without_running(tuned, tiny, run_json):
    folder, document = tuned
    again = run_json("tune", "-o", str(folder), "-m", tiny, *TASK, *SMALL)
    assert again["digest"] == document["digest"]


def test_time_that_is_up_exits_1_and_says_what_is_missing(tiny, run, tmp_path):
    done = run(
        "tune", "-o", str(tmp_path / "cut"), "-m", tiny, *TASK, *SMALL, "--max-minutes", "0.01"
    )
    if done.exit_code:  # a fast machine may be done in time
        assert done.exit_code == 1
        assert "Time was up" in done.stderr
        assert "Give the same command" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--task", "nothing"), "Unknown task 'nothing'"),
        (("--task", "own_prompts", "--policy", "asd:budget=-1"), "budget"),
    ],
)
def test_bad_input_is_refused(tiny, run, tmp_path, options, message):
    done = run("tune", "-o", str(tmp_path / "x"), "-m", tiny, "--drafter", "ngram", *options)
    assert done.exit_code == 2
    assert message in done.stderr
