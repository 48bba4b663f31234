"""``lenity sweep`` on the tiny model."""

import json

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
