import subprocess
import sys
from pathlib import Path

import pytest

from lenity.errors import ProtocolError
from lenity.tasks.base import Score
from lenity.workbench.config import Arm, FixedWork, NaturalEos, pair, triplet
from lenity.workbench.jobs import Job
from lenity.workbench.protocols import (
    Deadline,
    Outcome,
    fixed_work,
    natural_eos,
    plan_fixed_work,
    plan_natural_eos,
)
from lenity.workbench.rundir import RECORDS, RunDir
from tests.toys import cycle_model
from tests.workbench.killed_run import SETTINGS as KILLED
from tests.workbench.killed_run import go
from tests.workbench.made import manifest
from tests.workbench.rig import RELAXED, Memory, arms_of, jobs_of, skip_by_two, timeless

ROOT = Path(__file__).parents[2]
WORK = FixedWork(new_tokens=6, repeats=2, block_size=2, warmup_tokens=0)


def order(sink):
    return [(r.repeat, r.arm, r.item_id) for r in sink.rows]


def test_arms_take_turns_block_by_block_and_blocks_rotate():
    sink = Memory()
    fixed_work(arms_of(), jobs_of(3), WORK.model_copy(update={"repeats": 3}), sink)
    blocks = [["q0", "q1"], ["q2"]]
    expected = [
        (repeat, arm, item)
        for repeat, first in ((0, 0), (1, 1), (2, 0))
        for block in (blocks[first], blocks[1 - first])
        for arm in ("strict-a", "relaxed", "strict-b")
        for item in block
    ]
    assert order(sink) == expected


def test_fixed_work_is_equal_work_whatever_would_end_a_request():
    arms = arms_of(model=cycle_model(eos=(3, 4)))
    sink = Memory()
    outcome = fixed_work(arms, jobs_of(4), WORK, sink)
    assert outcome.is_complete
    assert outcome.done == outcome.total == len(sink.rows) == 24
    assert {len(r.token_ids) for r in sink.rows} == {6}
    assert {r.finish_reason for r in sink.rows} == {"length"}
    assert any(3 in r.token_ids[:-1] for r in sink.rows)
    relaxed = [r for r in sink.rows if r.arm == "relaxed"]
    assert sum(len(r.relaxed) for r in relaxed) > 0


def test_natural_eos_stops_by_itself_and_is_scored():
    scored = []

    def scorer(record):
        scored.append(record.key)
        return Score(value=float(record.token_ids[-1] == 12), detail="")

    jobs = [*jobs_of(3), Job(task="toy@1", item_id="far", prompt_ids=(13,), max_new_tokens=4)]
    sink = Memory()
    outcome = natural_eos(
        arms_of(*pair(RELAXED, with_plain=True), model=cycle_model(eos=(12,))),
        jobs,
        NaturalEos(block_size=4),
        sink,
        scorer=scorer,
    )
    assert outcome.is_complete
    assert [r.arm for r in sink.rows] == ["plain"] * 4 + ["strict"] * 4 + ["relaxed"] * 4
    assert {r.finish_reason for r in sink.rows if r.item_id != "far"} == {"stop"}
    far = [r for r in sink.rows if r.item_id == "far"]
    assert {(len(r.token_ids), r.finish_reason, r.score) for r in far} == {(4, "length", 0.0)}
    assert {r.score for r in sink.rows if r.item_id != "far"} == {1.0}
    assert scored == [r.key for r in sink.rows]
    assert {r.token_ids for r in sink.rows if r.item_id == "q0" and r.arm != "relaxed"} == {
        tuple(range(1, 13))
    }


def test_settings_may_allow_another_length_than_the_task():
    (first, _), *_ = plan_natural_eos(pair(RELAXED), jobs_of(1), NaturalEos(max_new_tokens=9))
    assert first.settings[0].max_new_tokens == 9
    (first, _), *_ = plan_natural_eos(pair(RELAXED), jobs_of(1), NaturalEos())
    assert first.settings[0].max_new_tokens == 256
    assert not first.settings[0].ignore_eos


def test_a_request_keeps_its_seed_in_every_arm_and_block():
    jobs = jobs_of(5)
    settings = FixedWork(block_size=2, repeats=2, seed=100, temperature=1.0)
    turns = [turn for turns in plan_fixed_work(triplet(RELAXED), jobs, settings) for turn in turns]
    seeds = {
        (job.item_id, own.seed)
        for turn in turns
        for job, own in zip(turn.jobs, turn.settings, strict=True)
    }
    assert seeds == {(f"q{i}", 100 + i) for i in range(5)}
    again = NaturalEos(block_size=2, repeats=2, seed=100, temperature=1.0)
    turns = [turn for turns in plan_natural_eos(pair(RELAXED), jobs, again) for turn in turns]
    seeds = {
        (turn.repeat, job.item_id, own.seed)
        for turn in turns
        for job, own in zip(turn.jobs, turn.settings, strict=True)
    }
    assert seeds == {(r, f"q{i}", 100 + 5 * r + i) for r in range(2) for i in range(5)}


def test_rows_of_fixed_work_begin_together_those_of_natural_eos_follow_each_other():
    sizes = {}
    for protocol, settings in (
        (fixed_work, WORK.model_copy(update={"block_size": 4, "repeats": 1})),
        (natural_eos, NaturalEos(block_size=4)),
    ):
        sink = Memory()
        protocol(
            arms_of(*pair(RELAXED.renamed("relaxed", batch_size=2)), model=cycle_model(eos=(12,))),
            jobs_of(4),
            settings,
            sink,
        )
        sizes[protocol] = [[c.batch_size for c in r.rounds][-1] for r in sink.rows[:4]]
    assert sizes[natural_eos][:3] == [2, 2, 2]  # the next prompt stood in for the one that ended
    assert sizes[fixed_work] == [2, 2, 2, 2]


@pytest.fixture(scope="module")
def unbroken():
    sink = Memory()
    fixed_work(arms_of(), jobs_of(3), WORK, sink)
    return [timeless(r) for r in sink.rows]


@pytest.mark.parametrize("after", [1, 8, 17])
def test_a_run_that_was_stopped_ends_with_the_records_of_one_that_was_not(
    tmp_path, unbroken, after
):
    """Stopped between two requests, from outside the loop."""

    class Stopping:
        def __init__(self, run):
            self.run = run

        def __contains__(self, key):
            return key in self.run

        def append(self, *records):
            self.run.append(*records)
            if len(self.run.keys) == after:
                raise KeyboardInterrupt

    with RunDir.create(tmp_path, manifest()) as run, pytest.raises(KeyboardInterrupt):
        fixed_work(arms_of(), jobs_of(3), WORK, Stopping(run))
    seen = []
    with RunDir.create(tmp_path, manifest()) as run:
        outcome = fixed_work(
            arms_of(), jobs_of(3), WORK, run, progress=lambda *now: seen.append(now)
        )
        assert [timeless(r) for r in run.records()] == unbroken
    assert outcome.is_complete
    assert seen[0][:2] == (after, 18)
    assert len(seen) == 18 - after + 1  # nothing was done again


@pytest.mark.parametrize("at", [2, 9, 17])
def test_a_request_that_was_cut_short_is_decoded_again_from_its_start(tmp_path, unbroken, at):
    """Stopped by an error in the middle of a request: its first half is nowhere."""
    calls = []

    def script(ids, limit):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return skip_by_two(ids, limit)

    with RunDir.create(tmp_path, manifest()) as run, pytest.raises(KeyboardInterrupt):
        fixed_work(arms_of(script=script), jobs_of(3), WORK, run)
    with RunDir.create(tmp_path, manifest()) as run:
        fixed_work(arms_of(script=script), jobs_of(3), WORK, run)
        assert [timeless(r) for r in run.records()] == unbroken


def test_a_killed_process_is_gone_on_with(tmp_path):
    """SIGKILL in the middle of a line, twice; then to the end, equal to an unbroken run."""
    for lives in (4, 9):
        command = [sys.executable, "-m", "tests.workbench.killed_run", str(tmp_path / "a")]
        done = subprocess.run([*command, str(lives)], cwd=ROOT, check=False)
        assert done.returncode == -9
        assert not (tmp_path / "a" / RECORDS).read_bytes().endswith(b"\n")
    outcome = go(tmp_path / "a")
    assert outcome.is_complete
    assert outcome.total == KILLED.repeats * 3 * 5
    go(tmp_path / "b")
    broken, whole = (RunDir.open(tmp_path / name) for name in "ab")
    assert [timeless(r) for r in broken.records()] == [timeless(r) for r in whole.records()]
    assert len(broken.manifest.resumed) == 2
    assert len({r.output_hash for r in broken.records()}) > 1


class Clock:
    """Moves by so many seconds with every record."""

    def __init__(self, sink, seconds):
        self.sink, self.seconds = sink, seconds

    def __call__(self):
        return len(self.sink.rows) * self.seconds


@pytest.mark.parametrize(("minutes", "done"), [(0.0, 0), (0.99, 4), (1.0, 4), (1.01, 5), (9.0, 12)])
def test_time_that_is_up_ends_a_run_with_what_it_has(minutes, done):
    """15 seconds a request: no call begins behind the deadline, and one that began is kept."""
    sink = Memory()
    settings = WORK.model_copy(update={"repeats": 1})
    deadline = Deadline(minutes, clock=Clock(sink, 15.0))
    outcome = fixed_work(arms_of(), jobs_of(4), settings, sink, deadline=deadline)
    assert (outcome.done, outcome.total, len(sink.rows)) == (done, 12, done)
    assert outcome.is_complete == (done == 12)
    assert sum(outcome.missing.values()) == 12 - done
    if done == 5:
        assert outcome.missing == {"strict-a": 2, "relaxed": 2, "strict-b": 3}
        assert str(outcome) == (
            "5 of 12 requests recorded; missing: 2 of strict-a, 2 of relaxed, 3 of strict-b"
        )


def test_a_round_that_would_not_end_in_time_is_not_begun():
    """The first block took some time; a second like it has less left."""
    sink = Memory()
    settings = WORK.model_copy(update={"repeats": 1})

    class Short(Deadline):
        @property
        def seconds_left(self):
            return 1e-9 if len(sink.rows) == 6 else 1e9

    outcome = fixed_work(arms_of(), jobs_of(4), settings, sink, deadline=Short())
    assert outcome.missing == {"strict-a": 2, "relaxed": 2, "strict-b": 2}
    again = fixed_work(arms_of(), jobs_of(4), settings, sink)
    assert again.is_complete


def test_a_deadline_counts_from_its_start():
    now = [100.0]
    deadline = Deadline(2.0, clock=lambda: now[0])
    now[0] += 90
    assert deadline.seconds_left == 30
    assert Deadline().seconds_left == float("inf")


def test_a_failed_request_is_told_and_not_tried_again():
    jobs = [*jobs_of(2), Job(task="toy@1", item_id="foreign", prompt_ids=(99,))]
    sink = Memory()
    outcome = fixed_work(arms_of(), jobs, WORK.model_copy(update={"repeats": 1}), sink)
    assert (outcome.done, outcome.failed, outcome.is_complete) == (9, 3, True)
    assert str(outcome) == "9 of 9 requests recorded, 3 of them failed"
    again = fixed_work(arms_of(), jobs, WORK.model_copy(update={"repeats": 1}), sink)
    assert (again.done, again.failed, len(sink.rows)) == (9, 0, 9)


def test_what_is_complete_is_not_warmed_up():
    arms = arms_of(Arm(name="plain", gamma=0))
    settings = FixedWork(new_tokens=2, repeats=1, warmup_tokens=4)
    sink = Memory()
    fixed_work(arms, jobs_of(2), settings, sink)
    forwards = arms.target.num_forwards
    # a prompt's pass and then one forward a token, for the warm-up and both requests
    assert forwards == (1 + 4) + 2 * (1 + 2)
    fixed_work(arms, jobs_of(2), settings, sink)
    assert arms.target.num_forwards == forwards


def test_work_that_cannot_be_equal_is_refused_before_it_begins():
    arms = arms_of(model=cycle_model(max_positions=20))
    fits = Job(task="toy@1", item_id="fits", prompt_ids=(1,) * 14)
    fixed_work(arms, [fits], WORK, Memory())
    long = Job(task="toy@1", item_id="long", prompt_ids=(1,) * 15)
    with pytest.raises(ProtocolError, match=r"toy@1 long has 15 tokens.*at most 5 new"):
        fixed_work(arms, [fits, long], WORK, Memory())
    for protocol, settings in ((fixed_work, WORK), (natural_eos, NaturalEos())):
        with pytest.raises(ProtocolError, match="toy@1 fits 2 times"):
            protocol(arms, [fits, fits], settings, Memory())
        with pytest.raises(ProtocolError, match="at least one prompt"):
            protocol(arms, [], settings, Memory())


def test_an_outcome_reads_in_one_line():
    done = Outcome(done=3, total=3, failed=0, seconds=1.0, missing={})
    assert str(done) == "3 of 3 requests recorded"
