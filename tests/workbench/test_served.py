import json
import subprocess
import sys

import pytest

from lenity.errors import ConfigError, ProtocolError
from lenity.workbench.endpoint import Endpoint
from lenity.workbench.gates import Gate
from lenity.workbench.judge_prompts import JudgeSettings
from lenity.workbench.repetition import repeated_ngram_rate
from lenity.workbench.rundir import RunDir
from lenity.workbench.select import Questions
from lenity.workbench.served import (
    BASELINE,
    CANDIDATE,
    ServedSettings,
    ServedStudy,
    _reworded,
    in_words,
    is_served,
    judge_served,
    run_served,
    served_settings,
)
from lenity.workbench.verdicts import Quality
from tests.workbench.engine import serving

ROWS = 160


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    """Reach this machine without a proxy."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def data(tmp_path):
    """Questions whose answer is the number in them."""
    file = tmp_path / "questions.jsonl"
    rows = [{"prompt": f"say {i}", "reference": str(i), "id": f"q{i}"} for i in range(ROWS)]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def right(model, prompt):
    return prompt.removeprefix("say ")


def settings(engine, num_prompts=12, task="jsonl:scorer=contains", **changes):
    return ServedSettings(
        candidate=Endpoint(url=engine.url, model="relaxed"),
        baseline=Endpoint(url=engine.url, model="strict"),
        questions=Questions(tasks=(task,), num_prompts=num_prompts),
        **{"resamples": 200, **changes},
    )


def study(tmp_path, data, **changes):
    return ServedStudy(folder=tmp_path / "run", data=data, wait=[].append, **changes)


class Minutes:
    """A deadline after so many looks at it."""

    def __init__(self, looks):
        self.looks = looks

    @property
    def seconds_left(self):
        self.looks -= 1
        return self.looks


def test_equal_answers_are_accepted(tmp_path, data):
    told = []
    with serving(right) as engine:
        asked = settings(engine, num_prompts=70, margin=0.06)
        run, missing = run_served(
            study(tmp_path, data, progress=lambda *seen: told.append(seen[:2])), asked
        )
    with run:
        found = judge_served(run)
        assert not missing
        assert is_served(run)
        assert served_settings(run) == asked
    assert found.decision.outcome == "accepted", found.decision.words
    assert [gate.name for gate in found.decision.gates] == [
        "quality",
        "length",
        "truncation",
        "repetition",
        "loop",
    ]
    assert "the baseline's words" in found.decision.gates[1].words
    assert (told[0], told[-1]) == ((1, 140), (140, 140))
    assert {r["model"] for r in engine.requests} == {"relaxed", "strict"}
    records = list(run.records())
    assert [r.arm for r in records[:4]] == [BASELINE, CANDIDATE] * 2
    assert all(r.token_ids == () and r.rounds == () and r.score == 1 for r in records)
    assert all(record.wall_seconds > 0 for record in records)


def test_wrong_answers_are_rejected(tmp_path, data):
    with serving(lambda model, prompt: right(model, prompt) if model == "strict" else "no") as e:
        run, _ = run_served(study(tmp_path, data), settings(e, 40))
    with run:
        found = judge_served(run)
    assert found.quality.outcome is Quality.INFERIOR
    assert "quality" in found.decision.failed


def test_text_in_circles_is_rejected(tmp_path, data):
    def loops(model, prompt):
        answer = f"it is {right(model, prompt)} I think"
        return answer if model == "strict" else " ".join([answer] * 6)

    with serving(loops) as engine:
        run, _ = run_served(study(tmp_path, data), settings(engine, 40))
    with run:
        failed = judge_served(run).decision.failed
    assert set(failed) == {"length", "repetition", "loop"}


def test_a_baseline_that_solves_nothing_leaves_quality_undecided(tmp_path, data):
    with serving(lambda *_: "no") as engine:
        run, _ = run_served(study(tmp_path, data), settings(engine, 80, margin=0.06))
    with run:
        found = judge_served(run)
    assert not found.signal.has_signal
    assert found.quality.outcome is Quality.INCONCLUSIVE
    assert found.decision.outcome == "inconclusive"


def test_a_failed_request_is_recorded_as_failed(tmp_path, data):
    count = iter(range(1000))
    with serving(lambda model, prompt: 400 if next(count) == 3 else right(model, prompt)) as engine:
        run, missing = run_served(study(tmp_path, data), settings(engine))
    with run:
        found = judge_served(run)
    assert not missing
    failed = [r for r in run.records() if r.status == "failed"]
    assert len(failed) == 1
    assert failed[0].error == "HTTP 400: as told"
    assert found.quality.num_prompts == 11
    assert "failed in relaxed" in found.quality.excluded[0]


def test_time_that_is_up_is_gone_on_with(tmp_path, data):
    with serving(right) as engine:
        asked = settings(engine)
        run, missing = run_served(study(tmp_path, data, deadline=Minutes(8)), asked)
        run.pause(missing)
        assert missing == {BASELINE: 8, CANDIDATE: 9}
        assert len(engine.requests) == 7
        run, missing = run_served(study(tmp_path, data), asked)
        assert not missing
        assert len(engine.requests) == 24
        run.finish()
        run, missing = run_served(study(tmp_path, data), asked)
        assert len(engine.requests) == 24
    assert judge_served(run).quality.num_prompts == 12


def test_an_engine_that_is_gone_leaves_a_run_to_go_on_with(tmp_path, data):
    count = iter(range(1000))
    with serving(lambda model, prompt: 404 if next(count) == 5 else right(model, prompt)) as engine:
        asked = settings(engine)
        with pytest.raises(ConfigError, match="HTTP 404"):
            run_served(study(tmp_path, data), asked)
        assert len(RunDir.open(tmp_path / "run").keys) == 5
        run, missing = run_served(study(tmp_path, data), asked)
    run.close()
    assert not missing
    assert len(run.keys) == 24


def test_too_little_is_said_so(tmp_path, data):
    with serving(right) as engine:
        run, _ = run_served(study(tmp_path, data, deadline=Minutes(3)), settings(engine))
    with run, pytest.raises(ProtocolError, match="at least 2 prompts"):
        judge_served(run)


def test_a_judge_grades_what_rules_score(tmp_path, data):
    def both(model, prompt):
        if model == "j":
            return "GRADE: 3" if "no" in prompt.split("<answer>")[-1] else "GRADE: 7"
        return right(model, prompt) if model == "strict" else "no"

    with serving(both) as engine:
        judge = JudgeSettings(
            endpoint=Endpoint(url=engine.url, model="j"), compare=False, every_task=True
        )
        asked = settings(engine, judge=judge)
        run, missing = run_served(study(tmp_path, data, deadline=Minutes(30)), asked)
        assert missing == {"the judge": 19}
        run.pause(missing)
        run, missing = run_served(study(tmp_path, data), asked)
    with run:
        (opinion,) = judge_served(run).judged
    assert not missing
    assert opinion.num_graded == 12
    assert (opinion.strict_grade, opinion.num_compared) == (7, 0)


def test_a_task_without_right_answers_is_refused(tmp_path, data):
    with serving(right) as engine, pytest.raises(ConfigError, match="right answers"):
        run_served(study(tmp_path, data), settings(engine, task="jsonl"))
    assert not engine.requests


def test_conversations_are_sent_whole_and_prompts_as_a_turn(tmp_path):
    file = tmp_path / "mixed.jsonl"
    turns = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "say é"}]
    rows = [{"messages": turns, "reference": "é"}, {"prompt": "say ü", "reference": "ü"}]
    rows += [{"prompt": f"say {i}", "reference": str(i)} for i in range(8)]
    file.write_text("\n".join(map(json.dumps, rows)))
    with serving(right) as engine:
        asked = settings(engine, 10)
        whole = asked.questions.model_copy(update={"share": 0.001})
        asked = asked.model_copy(update={"questions": whole, "max_new_tokens": 5})
        run, _ = run_served(study(tmp_path, file), asked)
    run.close()
    sent = [r["messages"] for r in engine.requests]
    assert turns in sent
    assert [{"role": "user", "content": "say ü"}] in sent
    assert {r["max_tokens"] for r in engine.requests} == {5}
    assert all(record.score == 1 for record in run.records())


def test_words_stand_for_tokens(tmp_path, data):
    with serving(lambda *_: "a b\n a  b a b a b") as engine:
        run, _ = run_served(study(tmp_path, data), settings(engine, 2))
    run.close()
    record = next(iter(run.records()))
    assert in_words(record).token_ids == (0, 1) * 4
    assert repeated_ngram_rate(in_words(record).token_ids) == pytest.approx(3 / 5)
    assert in_words(record.model_copy(update={"text": None})).token_ids == ()


def test_gates_speak_of_the_baseline():
    gate = Gate(name="length", outcome="holds", words="0.9 of strict's tokens, surely under strict")
    assert _reworded(gate).words == "0.9 of the baseline's words, surely under the baseline"


def test_judging_imports_no_torch():
    probe = (
        "import sys, lenity.workbench.served, lenity.workbench.served_report\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", probe], check=True)


def test_a_judge_that_answers_nothing_is_refused_before_anything_is_asked(tmp_path, data):
    with serving(lambda model, prompt: 404 if model == "j" else right(model, prompt)) as engine:
        judge = JudgeSettings(endpoint=Endpoint(url=engine.url, model="j"), every_task=True)
        with pytest.raises(ConfigError, match=r"HTTP 404.* nothing was decoded"):
            run_served(study(tmp_path, data), settings(engine, judge=judge))
    assert [asked["model"] for asked in engine.requests] == ["j"]
    assert not study(tmp_path, data).folder.exists()
