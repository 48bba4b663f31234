"""``lenity audit`` on a frozen point: verdict, exit status, and what it writes into the point."""

import pytest

from lenity.workbench.operating_point import load_operating_point, save_operating_point
from tests.cli.workbench import tuned
from tests.workbench.engine import serving

__all__ = ["tuned"]

QUESTIONS = ("--task", "own_prompts:families=data", "--prompts", "4")
FEW = ("--work-prompts", "2", "--work-tokens", "8", "--repeats", "2", "-n", "12")


def drafting(tuned, tmp_path):
    """The tuned point, made to draft whatever the tune chose."""
    folder, _ = tuned
    point = load_operating_point(folder / "operating-point.yaml")
    if point.is_off:
        from lenity.workbench.facts import DrafterFacts

        point = point.model_copy(update={"drafter": DrafterFacts(spec="ngram"), "gamma": 2})
    file = tmp_path / "point.yaml"
    save_operating_point(point, file)
    return file


def test_an_audit_judges_and_writes_its_verdict(tuned, tmp_path, run_json):
    file = drafting(tuned, tmp_path)
    words = ("audit", str(file), "-o", str(tmp_path / "run"), *QUESTIONS, *FEW)
    document = run_json(*words, exit_code=1)  # four prompts accept nothing
    assert document["verdict"] in ("inconclusive", "rejected")
    assert document["divergences"]["defect"] == 0
    judged = load_operating_point(file)
    assert judged.audit.verdict == document["verdict"]
    assert judged.audit.run_id == document["run_id"]
    assert (tmp_path / "run" / "report.html").is_file()
    again = run_json(*words, exit_code=1)
    assert again["run_id"] == document["run_id"]


def test_tables_are_for_people(tuned, tmp_path, run):
    file = drafting(tuned, tmp_path)
    done = run("audit", str(file), "-o", str(tmp_path / "run"), *QUESTIONS, *FEW)
    assert done.exit_code == 1
    assert "Report:" in done.stdout
    assert "Tokens per pass" in done.stdout or "per" in done.stdout


def test_a_file_that_is_no_point_is_refused(run, write):
    done = run("audit", write("x.yaml", "target: 1"), "-o", "nowhere", *QUESTIONS)
    assert done.exit_code == 2
    assert "Expected an operating point" in done.stderr


def test_a_judge_is_asked_and_its_opinion_shown(tuned, tmp_path, run, run_json, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("JUDGE_KEY", "s3cret")
    file, folder = drafting(tuned, tmp_path), tmp_path / "run"
    with serving(lambda model, prompt: "GRADE: 4\nBETTER: SAME") as engine:
        judge = ("--judge-url", engine.url, "--judge-model", "j", "--judge-api-key-env")
        words = ("audit", str(file), "-o", str(folder), *QUESTIONS, *FEW, *judge, "JUDGE_KEY")
        document = run_json(*words, exit_code=1)
    (opinion,) = document["judge"]
    assert opinion["num_graded"] == 4
    assert opinion["difference"]["estimate"] == 0
    assert {asked["model"] for asked in engine.requests} == {"j"}
    assert engine.headers[0]["Authorization"] == "Bearer s3cret"
    assert not any("s3cret" in f.read_text() for f in folder.rglob("*") if f.is_file())
    assert "Judge: grades 0.00" in run(*words).stdout


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--judge-url", "http://h"), "--judge-url and --judge-model"),
        (("--judge-url", "h", "--judge-model", "j"), "http://"),
        (("--judge-all",), "with --judge-all, got neither"),
    ],
)
def test_half_a_judge_is_refused(tuned, tmp_path, run, more, told):
    file = drafting(tuned, tmp_path)
    done = run("audit", str(file), "-o", str(tmp_path / "run"), *QUESTIONS, *FEW, *more)
    assert done.exit_code == 2
    assert told in done.stderr
