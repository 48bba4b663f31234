"""``lenity audit-served`` against an engine in a thread."""

import json

import pytest

from tests.workbench.engine import serving


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    """Reach this machine without a proxy."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def words(tmp_path):
    """The command without its URL."""
    rows = [{"prompt": f"say {i}", "reference": str(i)} for i in range(160)]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return (
        *("audit-served", "--model", "relaxed", "-o", str(tmp_path / "run"), "--prompts", "70"),
        *("-t", "jsonl:scorer=contains", "--data", str(tmp_path / "q.jsonl"), "--margin", "0.06"),
    )


def right(model, prompt):
    return prompt.removeprefix("say ")


def test_an_engine_as_good_as_its_baseline_is_accepted(words, tmp_path, run_json):
    with serving(right) as engine, serving(right) as other:
        urls = ("--url", engine.url, "--baseline-url", other.url, "--baseline-model", "strict")
        document = run_json(*words, *urls, "--max-minutes", "60")
        again = run_json(*words, *urls)
    assert document["verdict"] == "accepted"
    assert document["ledger"] is None
    assert document["numbers"]["baseline"] == 1
    assert again["run_id"] == document["run_id"]
    assert len(engine.requests) == len(other.requests) == 70
    assert {r["model"] for r in other.requests} == {"strict"}
    assert (tmp_path / "run" / "report.html").is_file()
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["state"] == "finished"
    told = run_json("report", str(tmp_path / "run"), "--to", str(tmp_path / "again"))
    assert told["run_id"] == document["run_id"]


def test_a_worse_one_is_not(words, run):
    with serving(lambda model, prompt: right(model, prompt) if model == "strict" else "no") as e:
        done = run(*words, "--url", e.url, "--baseline-model", "strict", "--api", "completions")
    assert done.exit_code == 1
    assert "rejected" in done.stdout
    assert "keeps no ledger" in done.stdout
    assert e.paths[0] == "/v1/completions"


def test_a_judge_may_be_one_of_the_engines(words, run_json):
    with serving(lambda m, p: right(m, p) if p.startswith("say") else "GRADE: 10") as engine:
        urls = ("--url", engine.url, "--baseline-model", "strict")
        judge = ("--judge-url", engine.url, "--judge-model", "j", "--judge-all")
        document = run_json(*words, *urls, *judge)
    assert document["judge"][0]["relaxed_grade"] == 10
    assert len(engine.requests) == 1 + 3 * 70  # one to see whether the judge answers


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--url", "http://h/v1"), "--baseline-url or --baseline-model"),
        (("--url", "h", "--baseline-model", "m"), "http://"),
        (("--url", "http://h", "--baseline-model", "m", "--api", "grpc"), "api"),
        (
            ("--url", "http://h", "--baseline-model", "m", "--judge-api-key-env", "KEY"),
            "with --judge-api-key-env",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(words, run, more, told):
    done = run(*words, *more)
    assert done.exit_code == 2
    assert told in done.stderr
