import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from lenity.cli.curves import SUPPOSED, print_curves, read_acceptance
from lenity.engine.curves import CostCurves, expected_tokens, predict_speedup, recommend
from lenity.errors import ConfigError
from tests.models.heads.golden import FOLDER

TARGET = str(FOLDER / "medusa-a" / "target")
MEDUSA = f"medusa:model={FOLDER / 'medusa-a' / 'drafter'}"


@pytest.fixture
def curves(run_json, tmp_path, monkeypatch):
    """The curves of a command line, its files in a folder of the test's."""
    monkeypatch.setenv("LENITY_CACHE", str(tmp_path / "cache"))

    def measure(*options):
        return run_json("doctor", "--model", TARGET, "--curves", *options)["curves"]

    return measure


def shown(report):
    console = Console(file=io.StringIO(), width=100)
    print_curves(console, report)
    return " ".join(console.file.getvalue().split())


def test_costs_acceptance_prediction_and_what_was_measured(curves, tmp_path):
    found = curves("--drafter", MEDUSA)
    costs = CostCurves.model_validate(found["costs"])
    assert Path(found["file"]).parent == tmp_path / "cache" / "curves"
    assert CostCurves.read(Path(found["file"])) == costs
    assert {(c.width, c.batch) for c in costs.passes} == {
        (w, b) for w in (1, 2, 4, 8, 16) for b in (1, 2, 4)
    }
    assert {c.gamma for c in costs.drafts} == {1, 2, 3}, "three heads"
    trial, share = found["trial"], found["drafting_share"]
    assert trial["gamma"] == len(trial["conditional"]) == 3
    assert found["conditional"] == trial["conditional"]
    assert trial["measured"] > 0
    assert trial["predicted"] == predict_speedup(
        costs, trial["conditional"], 3, drafting_share=share
    )
    for row in found["predictions"]:
        asked = (found["conditional"], row["gamma"])
        assert row["tokens"] == expected_tokens(*asked, drafting_share=share)
        assert row["speedup"] == predict_speedup(
            costs, *asked, batch=row["batch"], drafting_share=share
        )
    for row in found["advice"]:
        best = recommend(costs, found["conditional"], batch=row["batch"], drafting_share=share)
        assert (row["gamma"], row["speedup"]) == (best.gamma, best.speedup)
    said = shown(found)
    assert f"predicted {trial['predicted']:.2f}, measured {trial['measured']:.2f}" in said
    assert "Conditional acceptance by position" in said
    assert all(f"Batch {b}: " in said for b in (1, 2, 4))


def test_rounds_without_a_draft_are_counted(curves):
    found = curves("--drafter", "ngram", "--gamma", "2")
    costs, share = CostCurves.model_validate(found["costs"]), found["drafting_share"]
    assert 0 < share < 1, "lookup does not always find something"
    conditional = found["trial"]["conditional"]
    assert len(conditional) == found["trial"]["gamma"] == 2
    assert found["trial"]["predicted"] == predict_speedup(
        costs, conditional, 2, drafting_share=share
    )


def test_a_given_acceptance_saves_the_trial(curves):
    found = curves("--drafter", "ngram", "--acceptance", "0")
    assert "trial" not in found
    assert found["conditional"] == [0.0] * 15
    assert [row["gamma"] for row in found["advice"]] == [0, 0, 0]
    assert "Batch 2: off. No gamma is predicted to be faster" in shown(found)


def test_without_a_drafter_acceptance_is_supposed(curves):
    found = curves()
    assert found["costs"]["drafter"] is None
    assert {row["acceptance"] for row in found["supposed"]} == set(SUPPOSED)
    assert "drafts taken as free" in shown(found)


def test_what_people_read_ends_with_the_curves(run, tmp_path, monkeypatch):
    monkeypatch.setenv("LENITY_CACHE", str(tmp_path))
    done = run("doctor", "-m", TARGET, "--curves", "--acceptance", "0.9,0.8")
    assert done.exit_code == 0
    said = done.stdout.partition("\ncurves\n")[2]
    assert "Predicted speed over plain, by batch and gamma" in said
    (file,) = (tmp_path / "curves").iterdir()
    assert json.loads(file.read_text())["schema_version"] == 1


def test_scattered_timings_are_admitted(curves):
    found = curves("--acceptance", "0.5")
    note = "Do not trust predictions"
    assert note in shown(found | {"is_noisy": True})
    assert note not in shown(found | {"is_noisy": False})


def test_acceptances_are_read():
    assert read_acceptance("0.8,0.7") == [0.8, 0.7]
    assert read_acceptance("1") == [1]
    for wrong in ("1.2", "-0.1", "high", "0.8;0.7", "", "nan"):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            read_acceptance(wrong)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--curves"], "--model with --curves"),
        (["--drafter", "ngram"], "--drafter"),
        (["--acceptance", "0.5"], "--acceptance"),
        (["--model", TARGET, "--curves", "--gamma", "3"], "--gamma"),
        (["--model", TARGET, "--curves", "--acceptance", "2"], "between 0 and 1"),
        (["--model", TARGET, "--curves", "--drafter", "ngramm"], "Did you mean"),
    ],
)
def test_options_that_would_do_nothing_are_exit_2(run, options, said):
    done = run("doctor", *options)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
