import pytest

from lenity.errors import RunDirError
from lenity.workbench.rundir import RunDir
from lenity.workbench.trace import TRACES, RequestTrace, TracedRound, read_traces
from lenity.workbench.trace_log import TraceLog
from tests.workbench.made import manifest


def trace(item):
    traced = TracedRound(
        start=2,
        draft_ids=(),
        top_ids=(3,),
        top_logit=(1.0,),
        draft_logit=(),
        regret=(),
        accepted=0,
        emitted=1,
    )
    return RequestTrace(
        arm="strict",
        task="toy@1",
        item_id=item,
        policy="strict",
        drafter="none",
        gamma=0,
        prompt_length=2,
        rounds=(traced,),
    )


def test_each_requests_trace_is_kept_once(tmp_path):
    with RunDir.create(tmp_path, manifest(kind="trace")) as run:
        with TraceLog(run) as log:
            log.append([trace("a"), trace("b")])
            log.append([trace("b"), trace("c")])
        with log.path.open("a") as file:
            file.write('{"torn')
        with TraceLog(run, divergence=True) as again:
            assert again.divergence
            again.append([trace("a"), trace("d")])
    assert again.path == tmp_path / TRACES
    assert [t.item_id for t in read_traces(again.path)] == ["a", "b", "c", "d"]


def test_a_finished_run_takes_no_traces(tmp_path):
    run = RunDir.create(tmp_path, manifest(kind="trace"))
    run.finish()
    with pytest.raises(RunDirError, match="finished"):
        TraceLog(run)
