import pytest

from lenity.drafters import drafter
from lenity.engine.decode import Decoder
from lenity.errors import ConfigError, ProtocolError
from lenity.requests import GenerationSettings
from lenity.tasks.base import Score
from lenity.types import FinishReason, Generation, RoundRecord, StageSeconds
from lenity.workbench.arms import MAX_ERROR_LENGTH, Arms, share_wall, to_record
from lenity.workbench.config import Arm
from lenity.workbench.identities import check_identities
from lenity.workbench.jobs import Job
from lenity.workbench.records import KIND_LETTERS
from lenity.workbench.rundir import RunDir
from lenity.workbench.trace import read_traces
from lenity.workbench.trace_log import TraceLog
from tests.cases.rig import CharTokenizer, target
from tests.toys import ScriptedDrafter, cycle_model
from tests.workbench.made import manifest
from tests.workbench.rig import RELAXED, arms_of, jobs_of, skip_by_two, timeless

SETTINGS = GenerationSettings(max_new_tokens=12, gamma=3)


def run(arms, jobs, settings=SETTINGS, **more):
    return arms.run(arms.arms[-1], jobs, [settings] * len(jobs), **more)


def test_a_record_is_what_the_decoder_returned():
    arms = arms_of(RELAXED, model=cycle_model(tokenizer=CharTokenizer()))
    (record,) = run(arms, jobs_of(1), repeat=2)
    result = Decoder(
        target=cycle_model(tokenizer=CharTokenizer()),
        drafter=ScriptedDrafter(script=skip_by_two),
        policy=RELAXED.policy,
    ).generate([9, 0], SETTINGS)
    check_identities(record)
    assert record.key == ("relaxed", 2, "toy@1", "q0")
    assert record.token_ids == result.token_ids
    assert record.logprobs == result.logprobs
    assert record.text == result.text
    assert record.finish_reason == "length"
    assert record.kinds == "".join(KIND_LETTERS[token.kind] for token in result.receipt)
    assert {"x", "r"} < set(record.kinds)
    assert len(record.relaxed) == result.num_relaxed == 4
    assert record.regret_spent == result.regret_spent == 2.0
    for entry in record.relaxed:
        receipt = result.receipt[entry.position]
        assert (entry.regret, entry.rank, entry.choice_id) == (0.5, 1, receipt.choice_id)
    counted = [(r.drafted, r.accepted, r.emitted, r.regret_units) for r in record.rounds]
    assert counted == [(r.drafted, r.accepted, r.emitted, r.regret_units) for r in result.rounds]
    assert record.prefill_seconds > 0
    seconds = sum(r.seconds for r in record.rounds) + record.prefill_seconds
    assert record.wall_seconds > seconds > 0


def round_of(seconds, batch_size):
    stages = StageSeconds(draft=seconds / 4, target=seconds / 2, commit=seconds / 4)
    return RoundRecord(
        drafted=0,
        evaluated=0,
        accepted=0,
        emitted=1,
        relaxed=0,
        regret_units=0,
        batch_size=batch_size,
        seconds=stages,
    )


def generation_of(prefill, *rounds):
    return Generation(
        prompt_ids=(1,),
        token_ids=(),
        text=None,
        finish_reason=FinishReason.LENGTH,
        stop_match=None,
        receipt=(),
        rounds=rounds,
        requested_policy="strict",
        effective_policy="strict",
        drafter="none",
        gamma=0,
        prefill_seconds=prefill,
    )


def test_a_requests_wall_is_its_own_stages_and_its_part_of_the_rest():
    """Ten shared seconds, five alone, two for each prompt; one second more was between rounds."""
    short = generation_of(2.0, round_of(10.0, 2))
    long = generation_of(2.0, round_of(10.0, 2), round_of(5.0, 1))
    assert share_wall([short, long], 20.0) == pytest.approx([12 * 20 / 19, 17 * 20 / 19])
    assert share_wall([long], 13.0) == pytest.approx([17 * 13 / 12])
    alone = generation_of(1.0, round_of(3.0, 1))
    assert share_wall([alone], 4.5) == pytest.approx([4.5])
    assert share_wall([generation_of(0.0)] * 2, 1.0) == [0.5, 0.5]


def test_requests_of_a_batch_are_as_they_would_be_alone():
    jobs = jobs_of(5)
    together = run(arms_of(RELAXED.renamed("relaxed", batch_size=2)), jobs)
    alone = [record for job in jobs for record in run(arms_of(RELAXED), [job])]
    assert [r.token_ids for r in together] == [r.token_ids for r in alone]
    assert {c.batch_size for r in together for c in r.rounds} == {1, 2}


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_bad_request_is_recorded_as_failed_and_takes_no_other_with_it(batch_size):
    arms = arms_of(
        RELAXED.renamed("relaxed", batch_size=batch_size), model=cycle_model(max_positions=40)
    )
    jobs = jobs_of(4)
    jobs[1] = Job(task="toy@1", item_id="long", prompt_ids=(1,) * 50)
    jobs[3] = Job(task="toy@1", item_id="foreign", prompt_ids=(99,), family="far")
    records = run(arms, jobs)
    assert [r.item_id for r in records] == ["q0", "long", "q2", "foreign"]
    assert [r.status for r in records] == ["ok", "failed", "ok", "failed"]
    assert [r.family for r in records] == [None, None, None, "far"]
    assert records[1].error.startswith("ConfigError: Request toy@1 long: expected a prompt shorter")
    assert records[1].prompt_ids == jobs[1].prompt_ids
    assert [timeless(records[0])] == [
        timeless(r) for r in run(arms_of(RELAXED, model=cycle_model(max_positions=40)), jobs[:1])
    ]


def test_a_long_error_is_cut():
    def explode(ids, limit):
        raise RuntimeError("x" * 5000)

    (record,) = run(arms_of(RELAXED, script=explode), jobs_of(1))
    assert record.status == "failed"
    assert len(record.error) == MAX_ERROR_LENGTH
    assert record.error.startswith("RuntimeError: xxx")


def test_ctrl_c_leaves_no_record():
    """The decoder answers it with what it had; here that is not taken for a result."""
    calls = []

    def interrupted(ids, limit):
        calls.append(ids)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return skip_by_two(ids, limit)

    arms = arms_of(RELAXED, script=interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(arms, jobs_of(2))
    calls.clear()
    calls.extend("ab")
    with pytest.raises(KeyboardInterrupt):
        arms.warm_up(arms.arms[0], jobs_of(1), SETTINGS)


def test_answers_are_scored_and_a_broken_scorer_is_a_failure():
    def scorer(record):
        if record.item_id == "q1":
            raise ValueError("no such answer")
        if record.item_id == "q2":
            return None
        return Score(value=0.5, detail="half right")

    records = run(arms_of(RELAXED), jobs_of(3), scorer=scorer)
    assert (records[0].score, records[0].score_detail) == (0.5, "half right")
    assert (records[1].status, records[1].error) == (
        "failed",
        "scorer: ValueError: no such answer",
    )
    assert records[1].token_ids
    assert (records[2].status, records[2].score) == ("ok", None)


def test_arms_that_cannot_be_are_refused_before_anything_runs():
    with pytest.raises(ProtocolError, match="different names, got a, a"):
        Arms(cycle_model(), [Arm(name="a"), Arm(name="a")])
    for changes in ({"drafter": None}, {"gamma": 0}):
        arm = Arm(**{"name": "r", "drafter": "ngram", "policy": "asd", **changes})
        with pytest.raises(ConfigError, match="asd in arm r to judge"):
            Arms(cycle_model(), [arm])


def test_equal_specs_share_one_drafter():
    given = drafter("ngram")
    arms = [
        Arm(name="a", drafter="ngram"),
        Arm(name="b", drafter="ngram", policy="top_k:k=2"),
        Arm(name="c", drafter="self_speculative:skip=1"),
        Arm(name="d", drafter="self_speculative:skip=1", gamma=2),
    ]
    made = Arms(target(), arms, drafters={"ngram": given})
    assert set(made.drafters) == {"ngram", "self_speculative:skip=1"}
    assert made.drafters["ngram"] is given
    decoders = made._decoders
    assert decoders["a"].drafter is decoders["b"].drafter is given
    assert decoders["c"].drafter is decoders["d"].drafter


def test_a_warm_up_needs_one_prompt_that_works():
    arms = arms_of(RELAXED)
    bad = Job(task="toy@1", item_id="bad", prompt_ids=(99,))
    arms.warm_up(RELAXED, [bad, bad, *jobs_of(1)], SETTINGS)
    with pytest.raises(ConfigError, match="got 99"):
        arms.warm_up(RELAXED, [bad, bad, bad, *jobs_of(1)], SETTINGS)


def test_a_record_of_nothing_is_still_one():
    record = to_record(generation_of(0.0), "a", jobs_of(1)[0])
    assert (record.token_ids, record.kinds, record.wall_seconds) == ((), "", 0.0)


def test_traces_are_those_of_the_records_and_written_once(tmp_path):
    jobs = jobs_of(3)
    with RunDir.create(tmp_path, manifest(kind="trace")) as recorded:
        for _ in range(2):  # killed before the records were written, and begun again
            with TraceLog(recorded) as log:
                arms = arms_of(RELAXED.renamed("relaxed", batch_size=2), traces=log)
                records = run(arms, jobs)
        traces = list(read_traces(log.path))
    assert [trace.key for trace in traces] == [record.key for record in records]
    for trace, record in zip(traces, records, strict=True):
        assert trace.num_emitted == len(record.token_ids)
        assert [r.accepted for r in trace.rounds] == [r.accepted for r in record.rounds]
        assert trace.policy == RELAXED.policy
        assert trace.is_whole


def test_a_trace_stands_beside_its_own_request_when_another_fails(tmp_path):
    with RunDir.create(tmp_path, manifest(kind="trace")) as recorded, TraceLog(recorded) as log:
        bad = Job(task="toy@1", item_id="bad", prompt_ids=(99,))
        records = run(arms_of(RELAXED, traces=log), [bad, *jobs_of(2)])
        traces = list(read_traces(log.path))
    assert [r.status for r in records] == ["failed", "ok", "ok"]
    assert [t.item_id for t in traces] == ["q0", "q1"]


def test_a_skipping_arm_counts_what_no_target_saw():
    arm = RELAXED.renamed(
        "skipping", policy="strict", skip="periodic:period=2,count=2", shadow=True
    )
    (record,) = run(arms_of(arm), jobs_of(1))
    check_identities(record)
    assert record.kinds.count("s") == sum(r.skipped for r in record.rounds) > 0
    assert [r.shadow_accepted is not None for r in record.rounds] == [
        r.skipped > 0 for r in record.rounds
    ]
