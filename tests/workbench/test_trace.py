"""Traces at rest: what goes in comes out, to the last bit, and what does not fit is refused."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lenity.errors import ProtocolError, RunDirError
from lenity.workbench.lines import LineLog
from lenity.workbench.trace import (
    TRACE_VERSION,
    RequestTrace,
    TracedRound,
    append_traces,
    check_strict,
    read_traces,
)
from tests.workbench.traces import by_hand, run, tiny

singles = st.floats(width=32, allow_nan=False)


def written(path, *traces):
    with LineLog(path, sync=False) as log:
        append_traces(log, traces)
    return path


@pytest.mark.parametrize("divergence", [False, True])
def test_a_run_survives_the_disk(tmp_path, divergence):
    outs, traces = run(tiny(), [[0], [1, 2]], divergence=divergence, gamma=3, max_new_tokens=12)
    path = written(tmp_path / "traces.jsonl", *traces)
    assert list(read_traces(path)) == traces
    for out, trace in zip(outs, traces, strict=True):
        assert trace.is_whole
        assert trace.num_emitted == len(out.token_ids)
        assert (trace.policy, trace.gamma, trace.finish_reason) == ("strict", 3, "length")
        assert trace.key == ("strict", 0, "toy@1", trace.item_id)


@given(st.lists(singles, min_size=1, max_size=6).map(tuple))
def test_float32_values_are_read_back_exactly(values):
    fixed = dict.fromkeys(("draft_logit", "regret"), values)
    size = len(values)
    seen = TracedRound(
        start=1,
        draft_ids=(1,) * size,
        top_ids=(2,) * (size + 1),
        top_logit=(0.0, *values),
        accepted=0,
        emitted=1,
        **fixed,
    )
    again = TracedRound.model_validate_json(seen.model_dump_json())
    assert again == seen
    assert np.array(again.regret, dtype=np.float32).tolist() == list(seen.regret) == list(values)


def test_the_fewest_digits_are_written():
    text = by_hand(((0.1, None), 1)).model_dump_json()
    assert '"regret":[0.1,0.0]' in text


def test_a_torn_last_line_is_left_out_and_filters_filter(tmp_path):
    one, two = by_hand(((1.0,), 1)), by_hand(((None,), 2), item_id="2")
    path = written(tmp_path / "t", one, two)
    with path.open("a") as file:
        file.write('{"arm": "str')
    assert list(read_traces(path)) == [one, two]
    assert list(read_traces(path, where=lambda t: t.item_id == "2")) == [two]
    assert list(read_traces(tmp_path / "nothing")) == []


def test_a_damaged_line_and_a_newer_version_are_refused(tmp_path):
    path = written(tmp_path / "t", by_hand(((1.0,), 1)))
    line = json.loads(path.read_text())
    assert line["schema_version"] == TRACE_VERSION
    for change, message in [
        ({"rounds": 3}, r"line 1: rounds: expected a list, got 3.*damaged"),
        ({"schema_version": TRACE_VERSION + 1, "novel": 1}, "newer one"),
    ]:
        path.write_text(json.dumps({**line, **change}) + "\n")
        with pytest.raises(RunDirError, match=message):
            list(read_traces(path))


@pytest.mark.parametrize(
    "change",
    [
        {"top_ids": (3,)},
        {"regret": ()},
        {"draft_rank": (0, 1)},
        {"second_logit": (1.0,)},
        {"divergence": {"js": (0.1, 0.2)}},
        {"guarded": (1,)},
        {"accepted": 2},
        {"accepted": 0, "emitted": 2},
    ],
)
def test_a_round_whose_parts_do_not_fit_is_refused(change):
    known = by_hand(((None,), 2)).rounds[0]
    assert known.accepted == 1
    with pytest.raises(ValidationError, match="do not fit"):
        TracedRound.model_validate({**known.model_dump(), **change})


def test_rounds_that_overlap_are_refused_and_gaps_are_known():
    good = by_hand(((None,), 2), ((1.0,), 1))
    later = good.rounds[1].model_copy(update={"start": 6})
    gap = good.model_copy(update={"rounds": (good.rounds[0], later)})
    assert not gap.is_whole
    early = good.rounds[1].model_dump() | {"start": 4}
    with pytest.raises(ValidationError, match="a round at 4, before 5"):
        RequestTrace.model_validate({**good.model_dump(), "rounds": (good.rounds[0], early)})
    with pytest.raises(ProtocolError, match="gaps"):
        check_strict([good, gap], "a test")


def test_skipped_rounds_leave_gaps():
    skipping = tiny(skip="periodic:period=2,count=2")
    outs, traces = run(skipping, [[0], [5]], gamma=3, max_new_tokens=20)
    for out, trace in zip(outs, traces, strict=True):
        verified = [r for r in out.rounds if r.target_passes]
        assert [r.emitted for r in trace.rounds] == [r.emitted for r in verified]
        assert not trace.is_whole
    with pytest.raises(ProtocolError, match="gaps"):
        check_strict(traces, "a test")


@pytest.mark.parametrize("change", [{"policy": "asd"}, {"temperature": 0.7}])
def test_only_greedy_strict_runs_are_strict(change):
    check_strict([by_hand(((1.0,), 1))], "a test")
    with pytest.raises(ProtocolError, match=r"strict run at temperature 0 for a test.*Trace the"):
        check_strict([by_hand(((1.0,), 1), **change)], "a test")


def test_rounds_that_were_never_committed_are_left_out():
    outs, (whole,) = run(tiny(), [[0]], gamma=3, max_new_tokens=12)
    _, (longer,) = run(tiny(), [[0]], gamma=3, max_new_tokens=20)
    assert len(longer.rounds) > len(whole.rounds)
    seen = [r.model_copy() for r in longer.rounds]

    from lenity.engine.tracing import RoundTrace

    rounds = [RoundTrace(**r.model_dump()) for r in seen]
    cut = RequestTrace.of(outs[0], rounds, arm="strict", task="toy@1", item_id="0")
    end = len(outs[0].prompt_ids) + len(outs[0].token_ids)
    assert cut.rounds
    assert all(r.start + r.emitted <= end for r in cut.rounds)


def test_mismatches_are_told_by_id():
    assert by_hand(((None, 0.0, None, 2.0), 2)).rounds[0].mismatches == (1, 3)


def test_reading_needs_no_torch():
    probe = (
        "import sys, lenity.workbench.trace, lenity.workbench.opportunity, "
        "lenity.workbench.seed_point, lenity.workbench.replay\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
