"""``lenity sweep`` on the tiny model."""

import json

import pytest
from typer.testing import CliRunner

from lenity.cli.main import app

WORDS = ("--task", "own_prompts:families=data", "--drafter", "ngram", "--prompts", "2", "-n", "10")


def test_a_sweep_records_every_value_and_goes_on(tiny, run_json, tmp_path):
    words = ("sweep", "budget", "-o", str(tmp_path / "run"), "-m", tiny, *WORDS)
    document = run_json(*words, "--value", "0", "--value", "4")
    assert document["missing"] == {}
    lines = (tmp_path / "run" / "records.jsonl").read_text().splitlines()
    arms = [json.loads(line)["arm"] for line in lines]
    assert sorted(set(arms)) == ["asd-budget-0", "asd-budget-4", "strict"]
    assert len(arms) == 6
    again = run_json(*words, "--value", "0", "--value", "4")
    assert again["run_id"] == document["run_id"]


def test_an_unknown_sweep_is_refused_before_a_model_is_loaded(run, tmp_path):
    done = run("sweep", "buget", "-o", str(tmp_path / "x"), "-m", "no/model", *WORDS)
    assert done.exit_code == 2
    assert "Did you mean 'budget'" in done.stderr


def test_what_is_decoded_needs_a_task_and_a_drafter(run, tmp_path):
    done = run("sweep", "budget", "-o", str(tmp_path / "x"), "-m", "no/model", "--task", "gsm8k")
    assert done.exit_code == 2
    assert "the drafter none" in done.stderr.replace("\n", " ")
    assert not (tmp_path / "x").exists()


# ---- verifier skipping

CAPTURE = ("--gamma", "4", "-n", "12", "--count", "6", "--epochs", "1", "--families", "maths,code")


@pytest.fixture(scope="module")
def pair(tiny, tmp_path_factory):
    """A target that drafts for itself, and a run of survival predictors for it."""
    folder = tmp_path_factory.mktemp("survival") / "run"
    drafter = f"autoregressive:model={tiny}"
    words = ["train", "survival", "-o", str(folder), "-m", tiny, "-d", drafter, *CAPTURE]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return {
        "run": folder,
        "asked": (
            *("-m", tiny, "--drafter", drafter, "--task", "own_prompts:families=data"),
            *("--prompts", "2", "-n", "12", "--gamma", "4", "--shadow"),
        ),
    }


def sweep(run_json, pair, preset, folder, *words):
    return run_json("sweep", preset, "-o", str(folder), *pair["asked"], *words)


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def test_recorded_blocks_are_judged_without_a_model(pair, run_json, run, tmp_path):
    words = ("sweep", "survival", "-o", str(tmp_path / "run"), "--from", str(pair["run"]))
    document = run_json(*words)
    assert document["missing"] == {}
    keys = {plot["key"] for plot in summary(tmp_path / "run")["sweeps"]}
    assert {"bce-all", "bce-at-risk", "permutation", "passing"} <= keys
    assert (tmp_path / "run" / "tables" / "positions.csv").is_file()
    assert run_json(*words) == document
    again = run_json("report", str(tmp_path / "run"), "--to", str(tmp_path / "again"))
    assert again["run_id"] == document["run_id"]
    page = (tmp_path / "again" / "report.html").read_text()
    assert page == (tmp_path / "run" / "report.html").read_text()
    assert run("sweep", "survival", "-o", str(tmp_path / "other")).exit_code == 2


def test_the_proposition_needs_nothing(pair, run, run_json, tmp_path):
    words = ("sweep", "proposition", "-o", str(tmp_path / "run"))
    done = run(*words, "--gamma", "6", "--value", "0.5")
    assert done.exit_code == 0, done.stderr
    assert "First K scores that pass" in done.stdout
    own = ("sweep", "proposition", "-o", str(tmp_path / "own"), "--from", str(pair["run"]))
    run_json(*own, "--value", "0.5")
    (own_plot, *_) = summary(tmp_path / "own")["sweeps"]
    assert own_plot["protocol"].endswith("accepted lengths of the blocks")


def test_learned_rules_are_drawn_on_the_same_drafts(pair, run_json, tmp_path):
    rules = ("raw:local=0.5,prefix=0.5", "marginal", "conditional", "top_k", "periodic")
    words = [word for rule in rules for word in ("--value", rule)]
    more = ("--predictor", str(pair["run"]), "--skip", "raw:min_prefix=1", "--family", "maths")
    sweep(run_json, pair, "skipping", tmp_path / "run", *words, *more)
    found = summary(tmp_path / "run")
    plots = {plot["key"]: plot for plot in found["sweeps"]}
    curves = {curve["label"]: curve for curve in plots["logprob"]["curves"]}
    assert set(curves) == {"strict", "raw", "marginal", "conditional", "top_k", "periodic"}
    assert [p["x"] for p in curves["strict"]["points"]] == [1]
    assert plots["logprob"]["x_label"] == "Target passes per token, strict = 1"
    calls = [p["x"] for p in curves["marginal"]["points"]]
    assert len(calls) == 7
    assert calls == sorted(calls, reverse=True)
    assert {"full_prefix", "strict_token", "throughput", "gain"} <= set(plots)
    # the target agrees with itself: what is skipped is what strict would have said
    agreed = {c["label"]: c["points"] for c in plots["full_prefix"]["curves"]}
    assert {p["y"]["estimate"] for p in agreed["periodic"]} == {1}
    specs = [
        row[2] for table in found["tables"] if table["name"] == "settings" for row in table["rows"]
    ]
    learned = [spec for spec in specs if spec.startswith("conditional")]
    assert len(learned) == 8
    assert all("min_prefix=1" in spec and "family=maths" in spec for spec in learned)
    assert not (tmp_path / "run" / "traces.jsonl").exists(), "nothing watched what is timed"


def test_k_min_is_moved_on_an_axis_with_its_break_even(pair, run_json, tmp_path):
    skip = ("--skip", "raw:local=0,prefix=0")
    sweep(run_json, pair, "min_prefix", tmp_path / "run", *skip, "--value", "1", "--value", "4")
    found = summary(tmp_path / "run")
    plots = {plot["key"]: plot for plot in found["sweeps"]}
    assert {"relative_calls", "relative_blocks", "throughput"} <= set(plots)
    curves = {curve["label"]: curve for curve in plots["throughput"]["curves"]}
    assert [p["x"] for p in curves["strict"]["points"]] == [1, 4]
    (costs,) = [table for table in found["tables"] if table["name"] == "costs"]
    assert plots["throughput"]["mark"]["x"] == costs["rows"][0][-1]
    (model,) = found["predicted"]
    assert model["points"][0]["label"] == "strict"
    assert "K* " in (tmp_path / "run" / "report.html").read_text()


def test_gates_are_left_out_in_turn(pair, run_json, tmp_path):
    more = ("--predictor", str(pair["run"] / "conditional" / "fold-0"))
    sweep(run_json, pair, "gate_ablation", tmp_path / "run", *more)
    plots = {plot["key"]: plot for plot in summary(tmp_path / "run")["sweeps"]}
    curves = {curve["label"]: curve for curve in plots["relative_calls"]["curves"]}
    assert set(curves) == {"strict", "raw", "conditional"}
    gates = ["both gates", "local only", "prefix only"]
    assert [p["x"] for p in curves["raw"]["points"]] == gates


def test_a_predictor_that_is_none_is_refused_before_a_model_is_loaded(run, tmp_path):
    words = ("sweep", "skipping", "-o", str(tmp_path / "x"), "-m", "no/model", *WORDS)
    done = run(*words, "--predictor", str(tmp_path))
    assert done.exit_code == 2
    assert "survival predictor" in done.stderr


@pytest.mark.parametrize(
    ("preset", "more", "told"),
    [
        ("gamma", ("--value", "2.5"), "from 1 to 1024"),
        ("matched_regret", ("--value", "margin:ratio=0.9/x"), "ratio: expected a number"),
        ("skipping", ("--value", "marginal:predictor=/nowhere/x,local=0.2"), "No such file"),
        ("skipping", ("--family", "poetry"), "among code, maths"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_a_model_is_loaded(
    run, tmp_path, preset, more, told
):
    words = ("sweep", preset, "-o", str(tmp_path / "x"), "-m", "no/model", *WORDS)
    done = run(*words, *more)
    assert done.exit_code == 2
    assert told in " ".join(done.stderr.split())
    assert not (tmp_path / "x").exists()


def test_rhos_that_are_one_plot_are_refused_before_anything_is_computed(run, tmp_path):
    words = ("sweep", "proposition", "-o", str(tmp_path / "x"))
    done = run(*words, "--value", "0.5", "--value", "0.5000000001")
    assert done.exit_code == 2
    assert "differ in their first six digits" in " ".join(done.stderr.split())
    assert not (tmp_path / "x").exists()
