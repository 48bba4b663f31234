"""A judge asked over HTTP about two arms of a run."""

import json

import pytest

from lenity.errors import ConfigError
from lenity.tasks.base import Item, user
from lenity.tasks.gsm8k import Gsm8k
from lenity.tasks.mt_bench import MtBench
from lenity.workbench.endpoint import Endpoint
from lenity.workbench.judge_prompts import JudgeSettings
from lenity.workbench.judge_run import CHECK_TOKENS, ask_judge, check_judge, judge_for
from lenity.workbench.judgements import read_judgements
from lenity.workbench.rundir import RunDir
from tests.workbench.engine import serving
from tests.workbench.handmade import failed, text
from tests.workbench.made import manifest

ARMS = ("s", "r")
TASK = MtBench()
ITEMS = tuple(Item(id=str(i), messages=(user(f"question {i}"),)) for i in range(4))


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    """Reach this machine without a proxy."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def run(tmp_path):
    """Two arms: other words, the same words, a failure, and no second arm."""
    made = RunDir.create(tmp_path / "run", manifest())

    def line(arm, item, words):
        return text(1, arm=arm, task=TASK.label, item_id=item, text=words)

    made.append(
        *(line("s", str(i), f"s{i}") for i in range(4)),
        line("r", "0", "r0"),
        line("r", "1", "<think>so</think>s1"),
        failed(arm="r", task=TASK.label, item_id="2"),
    )
    with made:
        yield made


class Minutes:
    """A deadline after so many looks at it."""

    def __init__(self, looks):
        self.looks = looks

    @property
    def seconds_left(self):
        self.looks -= 1
        return self.looks


def fair(model, prompt):
    return "Fine.\nGRADE: 6" if prompt.startswith("Grade") else "BETTER: A"


def judge(engine, **changes):
    settings = JudgeSettings(endpoint=Endpoint(url=engine.url, model="j"), **changes)
    return judge_for(settings, [(TASK, ITEMS)])


def test_each_answer_is_graded_once_and_each_pair_in_both_orders(run):
    told = []
    with serving(fair) as engine:
        assert ask_judge(run, ARMS, judge(engine), progress=lambda *seen: told.append(seen)) == {}
        assert ask_judge(run, ARMS, judge(engine)) == {}
    prompts = [asked["messages"][0]["content"] for asked in engine.requests]
    answers = [p[p.index("<answer") :].split("\n")[1] for p in prompts]
    assert answers == ["s0", "r0", "s0", "r0", "s1"]
    assert all(asked["temperature"] == 0 for asked in engine.requests)
    assert [seen[:2] for seen in told] == [(i, 5) for i in range(1, 6)]
    lines = read_judgements(run)
    assert [line.grade for line in lines] == [6, 6, None, None, 6]
    assert [line.better for line in lines] == [None, None, "first", "first", None]
    assert lines[2].answers == lines[3].answers[::-1]
    assert lines[0].reply == "Fine.\nGRADE: 6"


def test_no_comparison_where_none_was_asked_for(run):
    with serving(fair) as engine:
        ask_judge(run, ARMS, judge(engine, compare=False))
    assert len(engine.requests) == 3


def test_a_failed_opinion_is_recorded_and_not_asked_again(run):
    replies = iter([400, "no idea", {"message": {"content": "Hm"}, "finish_reason": "length"}])
    with serving(lambda *asked: next(replies, None) or fair(*asked)) as engine:
        ask_judge(run, ARMS, judge(engine))
        ask_judge(run, ARMS, judge(engine))
    assert len(engine.requests) == 5
    first, second, third, *_ = read_judgements(run)
    assert {first.status, second.status, third.status} == {"failed"}
    assert first.error == "HTTP 400: as told"
    assert second.error == "expected a line 'GRADE: 1 to 10' in the reply, got none"
    assert third.error.endswith(
        "'BETTER: A, B or SAME' in the reply, got none, finish reason length"
    )
    assert second.reply == "no idea"


def test_time_that_is_up_is_gone_on_with(run):
    with serving(fair) as engine:
        left = ask_judge(run, ARMS, judge(engine), deadline=Minutes(3))
        assert left == {"the judge": 3}
        assert ask_judge(run, ARMS, judge(engine)) == {}
    assert len(engine.requests) == 5


def test_a_judge_that_is_gone_leaves_a_run_to_go_on_with(run):
    count = iter(range(100))
    with serving(lambda *asked: 404 if next(count) == 2 else fair(*asked)) as engine:
        with pytest.raises(ConfigError, match="HTTP 404"):
            ask_judge(run, ARMS, judge(engine))
        assert len(read_judgements(run)) == 2
        ask_judge(run, ARMS, judge(engine))
    assert len(engine.requests) == 6


def test_the_judges_thinking_is_no_opinion(run):
    with serving(lambda *_: "<think>\nGRADE: 1\n</think>\nGRADE: 9\nBETTER: SAME") as engine:
        ask_judge(run, ARMS, judge(engine))
    assert [line.grade for line in read_judgements(run)] == [9, 9, None, None, 9]


def test_the_key_is_sent_and_written_nowhere(run, monkeypatch):
    monkeypatch.setenv("THE_KEY", "s3cret")
    with serving(fair) as engine:
        settings = JudgeSettings(endpoint=Endpoint(url=engine.url, model="j"))
        ask_judge(run, ARMS, judge_for(settings, [(TASK, ITEMS)], "THE_KEY"))
    assert engine.headers[0]["Authorization"] == "Bearer s3cret"
    assert not any("s3cret" in file.read_text() for file in run.path.iterdir() if file.is_file())


def test_a_missing_key_is_said_before_anything_is_done(monkeypatch):
    monkeypatch.delenv("THE_KEY", raising=False)
    settings = JudgeSettings(endpoint=Endpoint(url="http://h", model="j"))
    with pytest.raises(ConfigError, match="THE_KEY"):
        judge_for(settings, [(TASK, ITEMS)], "THE_KEY")


def test_scored_tasks_are_judged_only_if_asked(run):
    settings = JudgeSettings(endpoint=Endpoint(url="http://h", model="j"))
    scored = (Gsm8k(), (Item(id="9", prompt="1 + 1"),))
    with pytest.raises(ConfigError, match=r"without right answers for the judge, got gsm8k@1"):
        judge_for(settings, [scored])
    assert len(judge_for(settings, [scored, (TASK, ITEMS)]).items) == 4
    every = settings.model_copy(update={"every_task": True})
    assert len(judge_for(every, [scored, (TASK, ITEMS)]).items) == 5
    assert judge_for(None, [scored]) is None
    assert ask_judge(run, ARMS, None) == {}


def test_other_tasks_of_the_run_are_left_alone(run):
    run.append(*(text(1, arm=a, task="gsm8k@1", item_id="9", text=a) for a in ARMS))
    with serving(fair) as engine:
        ask_judge(run, ARMS, judge(engine))
    assert "gsm8k" not in json.dumps([line.task for line in read_judgements(run)])


def test_a_judge_that_never_stops_thinking_has_no_opinion(run):
    with serving(lambda *_: "<think>\nGRADE: 1\nBETTER: A") as engine:
        ask_judge(run, ARMS, judge(engine))
    assert {line.status for line in read_judgements(run)} == {"failed"}


def test_a_judge_is_asked_one_short_thing_beforehand(tmp_path):
    with serving(lambda *_: {"message": {"content": None}, "finish_reason": "length"}) as engine:
        check_judge(judge(engine), tmp_path / "run")
    (asked,) = engine.requests
    assert asked["max_tokens"] == CHECK_TOKENS
    check_judge(None, tmp_path / "run")


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (404, r"HTTP 404.*Look at the URL.*That is the judge"),
        (503, r"answer of the judge 'j' at http.*HTTP 503.*leave the judge out"),
        (b"<html>", r"no answer in the reply: <html>\. Look at"),
    ],
)
def test_a_judge_that_gives_no_answer_is_refused_after_one_try(tmp_path, reply, told):
    with serving(lambda *_: reply) as engine, pytest.raises(ConfigError, match=told):
        check_judge(judge(engine), tmp_path / "run")
    assert len(engine.requests) == 1


def test_a_judge_that_is_not_there_is_refused(tmp_path):
    with serving(fair) as engine:
        gone = judge(engine)
    with pytest.raises(ConfigError, match=r"Expected an engine at http.*Start it"):
        check_judge(gone, tmp_path / "run")


def test_a_finished_run_needs_no_judge(run):
    run.finish()
    with serving(fair) as engine:
        check_judge(judge(engine), run.path)
    assert not engine.requests
