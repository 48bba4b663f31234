"""An audit at work: the point's own split, refusals, a deadline and a resumed run."""

import pytest

from lenity.errors import ConfigError, ModelMismatchError
from lenity.workbench.audit import judge
from lenity.workbench.audit_report import audit_report
from lenity.workbench.audit_run import questions_for, run_audit
from lenity.workbench.endpoint import Endpoint
from lenity.workbench.judge_prompts import JudgeSettings
from lenity.workbench.judge_run import CHECK
from lenity.workbench.rundir import RunDir
from lenity.workbench.samples import read_samples
from tests.toys import cycle_model
from tests.workbench.engine import serving
from tests.workbench.rig import timeless
from tests.workbench.studies import audit_settings, point, questions, questions_file, study


def test_the_split_is_the_points(tmp_path):
    frozen = point(questions_file(tmp_path))
    other = frozen.data.model_copy(update={"seed": 7, "share": 0.25})
    asked = questions_for(frozen.model_copy(update={"data": other}), questions())
    assert (asked.seed, asked.share) == (7, 0.25)
    assert questions_for(frozen.model_copy(update={"data": None}), questions()) == questions()


def test_no_audited_prompt_was_ever_tuned_on(tmp_path):
    data = questions_file(tmp_path)
    run, _ = run_audit(study(tmp_path / "run", data), point(data), audit_settings())
    own = study(tmp_path, data)
    tuned_on = {job.item_id for job in own.selection(questions(40), "discovery").jobs}
    assert not tuned_on & {record.item_id for record in run.records()}
    assert {record.family for record in run.records()} == {"odd", "even"}
    run.close()


def test_a_point_of_another_target_is_refused(tmp_path):
    data = questions_file(tmp_path)
    other = cycle_model(64, eos=(63,), tokenizer=study(tmp_path, data).target.tokenizer, name="x")
    with pytest.raises(ModelMismatchError, match="name"):
        run_audit(study(tmp_path / "run", data, target=other), point(data), audit_settings())
    assert not (tmp_path / "run").exists()


def test_a_target_without_a_tokenizer_is_refused(tmp_path):
    data = questions_file(tmp_path)
    bare = cycle_model(64, eos=(63,))
    with pytest.raises(ConfigError, match="a target with a tokenizer"):
        run_audit(study(tmp_path / "run", data, target=bare), point(data), audit_settings())


def test_time_that_is_up_leaves_a_run_to_go_on_with(tmp_path):
    data = questions_file(tmp_path)
    frozen, settings = point(data), audit_settings()
    run, missing = run_audit(study(tmp_path / "cut", data, minutes=1e-9), frozen, settings)
    assert sum(missing.values()) == 3 * 2 * 2 + 3 * 8
    run.pause(missing)
    run, missing = run_audit(study(tmp_path / "cut", data), frozen, settings)
    assert not missing
    run.finish()
    whole, _ = run_audit(study(tmp_path / "whole", data), frozen, settings)
    whole.finish()
    rows = [
        sorted(map(timeless, RunDir.open(tmp_path / name).records()), key=lambda r: r.key)
        for name in ("cut", "whole")
    ]
    assert rows[0] == rows[1]
    again, missing = run_audit(study(tmp_path / "cut", data), frozen, settings)
    assert again.is_finished
    assert not missing


def test_token_views_are_written_while_the_tokenizer_is_there(tmp_path):
    data = questions_file(tmp_path)
    run, _ = run_audit(study(tmp_path / "run", data), point(data), audit_settings())
    samples = read_samples(run.path)
    assert len(samples) == 4
    for sample in samples:
        for text in sample.texts:
            assert len(text.pieces) == len(text.kinds)
    run.close()


def longer_is_better(model, prompt):
    """A judge that counts characters."""
    if prompt == CHECK:
        return "OK"
    if prompt.startswith("Grade"):
        return "GRADE: 8"
    first, second = (part.split("</answer")[0] for part in prompt.split("<answer ")[1:])
    return f"BETTER: {'A' if len(first) > len(second) else 'B'}"


def test_a_judge_of_open_answers_stands_beside_the_verdict(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    data = questions_file(tmp_path)
    frozen = point(data)
    with serving(longer_is_better) as engine:
        asked = JudgeSettings(endpoint=Endpoint(url=engine.url, model="j"))
        settings = audit_settings(judge=asked)
        run, missing = run_audit(study(tmp_path / "run", data, minutes=1e-9), frozen, settings)
        run.pause(missing)
        run, missing = run_audit(study(tmp_path / "run", data), frozen, settings)
        run.finish()
        count = len(engine.requests)
        run_audit(study(tmp_path / "run", data), frozen, settings)
        assert len(engine.requests) == count
    found = judge(run)
    (opinion,) = found.judged
    assert opinion.num_graded == opinion.num_compared == 8
    assert opinion.difference.estimate == 0
    changed = sum(found.divergences.counts.values())
    assert (opinion.won, opinion.lost, opinion.tied) == (0, changed, 8 - changed)
    assert changed > 0
    report = audit_report(run, found, missing)
    assert report.own_tables[-1].name == "judge"
    assert "Judge: j at http://127.0.0.1" in report.disclosure.notes[-1]
    assert judge(RunDir.open(tmp_path / "run")).judged == found.judged


def test_a_judge_of_nothing_is_refused_before_anything_is_decoded(tmp_path):
    data = questions_file(tmp_path)
    asked = JudgeSettings(endpoint=Endpoint(url="http://h", model="j"))
    settings = audit_settings(questions=questions(spec="jsonl:scorer=exact"), judge=asked)
    with pytest.raises(ConfigError, match="--judge-all"):
        run_audit(study(tmp_path / "run", data), point(data), settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("status", [404, 400])
def test_a_judge_that_answers_nothing_is_refused_before_anything_is_decoded(
    tmp_path, monkeypatch, status
):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    data = questions_file(tmp_path)
    with serving(lambda *_: status) as engine:
        asked = JudgeSettings(endpoint=Endpoint(url=engine.url, model="j"))
        with pytest.raises(ConfigError, match=f"HTTP {status}: as told"):
            run_audit(study(tmp_path / "run", data), point(data), audit_settings(judge=asked))
    assert len(engine.requests) == 1
    assert not (tmp_path / "run").exists()
