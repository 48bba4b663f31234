"""``lenity replay``: predictions from a run's traces."""

from tests.cli.workbench import tuned

__all__ = ["tuned"]


def test_rules_are_predicted_and_labelled(tuned, run_json):
    folder, _ = tuned
    document = run_json("replay", str(folder), "-p", "strict", "-p", "asd:budget=0")
    assert document["label"] == "predicted"
    strict, zero = document["rules"]
    assert strict["tokens_per_target_pass"] == zero["tokens_per_target_pass"] >= 1
    assert zero["regret_per_request"] == 0


def test_a_table_says_that_it_is_a_prediction(tuned, run):
    folder, _ = tuned
    done = run("replay", str(folder / "traces.jsonl"), "-p", "asd:budget=8,gate=inf")
    assert done.exit_code == 0
    assert "Predicted from" in done.stdout


def test_a_gamma_beyond_the_traces_is_refused(tuned, run):
    folder, _ = tuned
    done = run("replay", str(folder), "-p", "strict", "--gamma", "50")
    assert done.exit_code == 2
    assert "gamma" in done.stderr


def test_of_a_sweep_strict_alone_is_replayed(tiny, run_json, tmp_path):
    folder = str(tmp_path / "run")
    words = ("--task", "own_prompts:families=data", "--drafter", "ngram", "--prompts", "2")
    run_json("sweep", "gamma", "-o", folder, "-m", tiny, *words, "-n", "8", "--value", "2")
    document = run_json("replay", folder, "-p", "asd:budget=4")
    assert document["requests"] == 2
