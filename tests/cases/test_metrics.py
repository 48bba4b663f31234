"""A benchmark that measures what it says, and leaves nothing behind between two arms.

Seen in HF#28759/#40739 (the number of draft tokens of one call changed the next one's),
tokenspeed#1132 (repeats of one seed gave false precision) and dynamo#12918 (ignored stops, and
quality read off them).
"""

from dataclasses import replace

import numpy as np
import pytest

from lenity.drafters import drafter
from lenity.models.causal import CausalLM
from lenity.tasks.base import Score
from lenity.workbench.arms import Arms
from lenity.workbench.config import Arm, FixedWork, NaturalEos, strict_of, triplet
from lenity.workbench.jobs import Job
from lenity.workbench.metrics import Counts
from lenity.workbench.protocols import fixed_work, natural_eos
from lenity.workbench.rundir import RunDir
from lenity.workbench.triplets import make_triplets, prompt_gain
from tests.cases.rig import PROMPTS, build, cousin, reference
from tests.workbench.made import manifest

RELAXED = Arm(
    name="relaxed",
    drafter="cousin",
    policy="asd:budget=6,gate=inf,block_cap=none",
    gamma=3,
)
JOBS = [
    Job(task="toy@1", item_id=f"q{i}", prompt_ids=tuple(prompt))
    for i, prompt in enumerate([*PROMPTS, PROMPTS[3][:6], PROMPTS[2][::-1]])
]
NEW_TOKENS = 10


def model(eos=()):
    made = CausalLM(build("llama"), name="tiny:llama")
    made.eos_token_ids = frozenset(eos)
    return made


def arms_of(*arms, eos=()):
    drafts = drafter("autoregressive", model=cousin(noise=0.3))
    return Arms(model(eos), arms, drafters={"cousin": drafts})


def trace(record):
    """What happened round by round, times aside."""
    return [(r.drafted, r.evaluated, r.accepted, r.emitted, r.relaxed) for r in record.rounds]


def by_key(records, arm):
    return {(r.repeat, r.item_id): r for r in records if r.arm == arm}


def check_stricts(records, first="strict-a", last="strict-b"):
    before, after = by_key(records, first), by_key(records, last)
    assert before.keys() == after.keys()
    for key, record in before.items():
        assert record.output_hash == after[key].output_hash
        assert trace(record) == trace(after[key])
    return before


@pytest.fixture(scope="module", params=[1, 3], ids=["alone", "batched"])
def fixed(request, tmp_path_factory):
    """Strict, relaxed, strict in one process: six prompts, two repeats of one seed."""
    arms = arms_of(*triplet(RELAXED.renamed("relaxed", batch_size=request.param)), eos=[3, 44])
    settings = FixedWork(new_tokens=NEW_TOKENS, repeats=2, block_size=3, warmup_tokens=0, seed=1)
    with RunDir.create(tmp_path_factory.mktemp("run"), manifest()) as run:
        assert fixed_work(arms, JOBS, settings, run).is_complete
        return list(run.records())


def test_strict_is_what_it_was_before_a_relaxed_arm_ran(fixed):
    before = check_stricts(fixed)
    for (_, item), record in before.items():
        prompt = next(job.prompt_ids for job in JOBS if job.item_id == item)
        assert list(record.token_ids) == reference().greedy(prompt, NEW_TOKENS)
    relaxed = by_key(fixed, "relaxed")
    assert sum(len(r.relaxed) for r in relaxed.values()) > 0
    assert any(r.output_hash != before[key].output_hash for key, r in relaxed.items())
    for (repeat, item), record in relaxed.items():  # nor does a budget live on
        assert record.output_hash == relaxed[0, item].output_hash, repeat
        assert record.regret_spent <= 6


def test_arms_of_fixed_work_did_the_same_amount_of_it(fixed):
    for arm in ("strict-a", "relaxed", "strict-b"):
        counts = Counts.of(by_key(fixed, arm).values())
        assert (counts.requests, counts.failed) == (12, 0)
        assert counts.emitted == 12 * NEW_TOKENS
    assert {r.finish_reason for r in fixed} == {"length"}


def test_no_quality_is_read_off_ignored_stops(fixed):
    assert {r.score for r in fixed} == {None}


def test_the_drift_between_the_stricts_is_there_to_be_reported(fixed):
    found = make_triplets(fixed, "relaxed", max_drift=float("inf"))
    assert [t.repeat for t in found.kept] == [0, 1]
    assert found.dropped == ()
    assert found.largest_drift > 0
    slowed = [
        r.model_copy(update={"wall_seconds": 2 * r.wall_seconds}) if r.arm == "strict-b" else r
        for r in fixed
    ]
    assert make_triplets(slowed, "relaxed").kept == ()
    assert all("drift" in d.reason for d in make_triplets(slowed, "relaxed").dropped)


def test_more_repeats_of_one_seed_make_an_interval_no_narrower(fixed):
    """The same clocks eight times over are no more evidence: prompts are what is resampled."""
    copies = [r.model_copy(update={"repeat": r.repeat + 2 * i}) for i in range(8) for r in fixed]
    intervals = []
    for records in (fixed, copies):
        found = make_triplets(records, "relaxed", max_drift=float("inf"))
        assert len(found.kept) == len(records) // 18
        rng = np.random.default_rng(0)
        intervals.append(prompt_gain(records, found, "relaxed", rng, resamples=400))
    once, often = intervals
    assert (often.low, often.high) == pytest.approx((once.low, once.high))
    assert once.high > once.low


def natural(eos, arms, tmp_path, **settings):
    def scorer(record):
        return Score(value=float(sum(record.token_ids) % 2), detail="odd")

    jobs = [replace(job, max_new_tokens=NEW_TOKENS) for job in JOBS]
    arms = [arm.renamed(arm.name, batch_size=3) for arm in arms]
    with RunDir.create(tmp_path, manifest()) as run:
        outcome = natural_eos(
            arms_of(*arms, eos=eos), jobs, NaturalEos(block_size=3, **settings), run, scorer=scorer
        )
        assert outcome.is_complete
        return list(run.records())


def test_natural_eos_ends_where_the_target_ends_and_is_scored(tmp_path):
    eos = {reference().greedy(job.prompt_ids, 6)[5] for job in JOBS[:3]}
    records = natural(eos, triplet(RELAXED), tmp_path)
    before = check_stricts(records)
    for (_, item), record in before.items():
        prompt = next(job.prompt_ids for job in JOBS if job.item_id == item)
        expected = reference().greedy(prompt, NEW_TOKENS)
        end = next((i + 1 for i, t in enumerate(expected) if t in eos), NEW_TOKENS)
        assert list(record.token_ids) == expected[:end]
        assert record.finish_reason == ("stop" if expected[end - 1] in eos else "length")
    assert {"stop"} <= {r.finish_reason for r in before.values()}
    assert {r.score for r in records} == {0.0, 1.0}


def test_a_seed_gives_the_same_draws_in_both_stricts_and_another_gives_others(tmp_path):
    """At a temperature repeats are seeds; each request draws its own coins in every arm."""
    arms = (strict_of(RELAXED, "strict-a"), strict_of(RELAXED, "strict-b"))
    records = natural((), arms, tmp_path, temperature=1.5, repeats=2)
    before = check_stricts(records)
    changed = [before[0, job.item_id].token_ids != before[1, job.item_id].token_ids for job in JOBS]
    assert sum(changed) >= 3
