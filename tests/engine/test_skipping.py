"""Pending tokens: committed without a pass, replayed by the next, priced in the same ledger."""

import math

import pytest
import torch

from lenity.drafters import drafter
from lenity.engine.batch import Batch
from lenity.engine.decode import Decoder
from lenity.engine.prepare import as_requests
from lenity.errors import ConfigError
from lenity.ledger import nats_to_units
from lenity.requests import GenerationSettings, Request
from lenity.types import UNITS_PER_NAT, FinishReason, TokenKind
from tests.cases.rig import CharTokenizer, cousin, plain, target

PROMPTS = [[5, 9, 3], [7], [1, 2, 3, 4, 5, 6, 7, 8, 9], [11, 12]]
LOOSE = "raw:local=0,prefix=0,min_prefix=1,repetition_guard=false"


def run(skip, prompts=PROMPTS, *, gamma=4, count=30, policy="strict", shadow=False, **changes):
    """Decode with a noisy copy of the target as drafter, every invariant asserted each round."""
    decoder = Decoder(
        target=target(),
        drafter=drafter("autoregressive", model=cousin()),
        policy=policy,
        skip=skip,
        shadow=shadow,
        max_batch_size=changes.pop("max_batch_size", 8),
    )
    requests, _ = as_requests(prompts)
    settings = GenerationSettings.of(
        None, {"gamma": gamma, "max_new_tokens": count, "ignore_eos": True} | changes
    )
    rows = decoder._sequences(requests, settings)
    rounds = decoder._rounds(rows, {})
    for _ in rounds:
        batch = rounds.gi_frame.f_locals["batch"]
        assert isinstance(batch, Batch)
        batch.check_invariants()
        for index, row in enumerate(batch.rows):
            assert batch.ledger.spent(index) == sum(c.record.regret_units for c in row.commits)
    return [decoder._generation(row) for row in rows]


def rescored(generation):
    """Teacher-forced log-probabilities of all tokens and each new token's regret, no cache."""
    ids = [*generation.prompt_ids, *generation.token_ids]
    with torch.inference_mode():
        logits = target().module(torch.tensor([ids])).logits[0].double()
    rows = logits[len(generation.prompt_ids) - 1 : -1]
    new = torch.tensor(generation.token_ids)[:, None]
    regret = rows.amax(-1) - rows.gather(-1, new).squeeze(-1)
    return rows.log_softmax(-1).gather(-1, new).squeeze(-1).tolist(), regret.tolist()


@pytest.mark.parametrize(
    "skip",
    [
        "raw:min_prefix=5,local=0,prefix=0",
        "raw:local=1.1,min_prefix=1",
        LOOSE + ",max_unverified=0",
        LOOSE + ",debt=0",
    ],
)
def test_limits_are_strict_token_by_token(skip):
    for own, wanted in zip(run(skip), plain(target(), PROMPTS, max_new_tokens=30), strict=True):
        assert own.token_ids == wanted.token_ids
        assert own.num_skipped == 0


@pytest.mark.parametrize("policy", ["strict", "asd:budget=6,gate=2,block_cap=none"])
def test_every_token_is_priced_as_a_fresh_forward_would(policy):
    """The replayed rows are those of a cache-free pass over the whole text."""
    spent = 0
    for generation in run(LOOSE + ",max_unverified=9", policy=policy):
        logprobs, regrets = rescored(generation)
        assert generation.num_skipped > 0
        assert generation.logprobs == pytest.approx(logprobs, abs=1e-4)
        for token, regret in zip(generation.receipt, regrets, strict=True):
            priced = token.kind in (TokenKind.SKIPPED, TokenKind.RELAXED)
            assert token.regret == pytest.approx(regret if priced else 0, abs=1e-3)
            if priced:
                assert (token.rank == 0) == (token.choice_id == token.token_id)
        units = sum(nats_to_units(token.regret) for token in generation.receipt)
        assert generation.regret_spent * UNITS_PER_NAT == units
        spent += units
    assert spent > 0, "the drafter is never wrong: nothing was tested"


def test_skip_and_asd_share_one_budget():
    """What skipping spent is gone for relaxing: once the budget is used up, blocks are strict."""
    for generation in run(LOOSE + ",max_unverified=5", policy="asd:budget=0.5,gate=9"):
        spent, position = 0.0, 0
        for record in generation.rounds:
            own = generation.receipt[position : position + record.emitted]
            if spent > 0.5:
                assert not record.relaxed
            spent += record.regret_units / UNITS_PER_NAT
            position += len(own)


@pytest.mark.parametrize("limit", [1, 4, 7])
def test_staleness_is_bounded(limit):
    gamma = 4
    for generation in run(LOOSE + f",max_unverified={limit}", gamma=gamma):
        pending = 0
        for record in generation.rounds:
            assert record.target_passes == (0 if record.skipped else 1)
            pending = pending + record.skipped if record.skipped else 0
            assert pending <= limit + gamma - 1
        assert generation.num_target_passes < len(generation.rounds)


def test_batch_mates_change_nothing():
    skip = "raw:local=0.3,prefix=0.4,min_prefix=2,max_unverified=6"
    together = run(skip, max_batch_size=3)
    for prompt, own in zip(PROMPTS, together, strict=True):
        (alone,) = run(skip, [prompt])
        assert alone.token_ids == own.token_ids
        kinds = [[t.kind for t in g.receipt] for g in (alone, own)]
        assert kinds[0] == kinds[1]
    assert any(g.num_skipped for g in together)
    assert any(r.evaluated and r.accepted for g in together for r in g.rounds)


def test_a_shadow_verifier_changes_nothing_and_knows_what_strict_accepts():
    skip = "raw:local=0.3,prefix=0.4,min_prefix=2,max_unverified=6"
    seen = 0
    for own, wanted in zip(run(skip, shadow=True), run(skip), strict=True):
        assert own.token_ids == wanted.token_ids
        assert own.receipt == wanted.receipt
        assert own.num_target_passes == wanted.num_target_passes
        position = 0
        for record in own.rounds:
            assert (record.shadow_accepted is None) == (record.skipped == 0)
            if record.shadow_accepted is not None:
                tokens = own.receipt[position : position + record.skipped]
                exact = [t.token_id == t.choice_id for t in tokens]
                prefix = (*exact, False).index(False)
                assert min(record.shadow_accepted, record.skipped) == prefix
                seen += 1
            position += record.emitted
    assert seen


def test_an_unverified_end_is_never_taken_from_the_drafter():
    base = run(LOOSE)
    for prompt, own in zip(PROMPTS, base, strict=True):
        skipped = [t.token_id for t in own.receipt if t.kind == TokenKind.SKIPPED]
        (ended,) = run(LOOSE, [prompt], stop_token_ids=(skipped[0],))
        for token in ended.receipt:
            assert token.kind != TokenKind.SKIPPED or token.token_id != skipped[0]


def test_the_last_block_is_verified():
    for generation in run(LOOSE, count=11):
        assert len(generation.token_ids) == 11
        assert generation.finish_reason == FinishReason.LENGTH
        assert not generation.rounds[-1].skipped
        assert not any(math.isnan(t.logprob) for t in generation.receipt)


def test_a_stop_string_may_end_a_request_on_a_skipped_token_which_is_priced_all_the_same():
    """Nothing replays it later, so its own round asks the target."""
    model = target()
    model.tokenizer, kept = CharTokenizer(), model.tokenizer
    try:
        (free,) = run(LOOSE, [PROMPTS[0]])
        at = next(i for i, t in enumerate(free.receipt) if t.kind == TokenKind.SKIPPED)
        stop = model.tokenizer.decode(free.token_ids[: at + 1])
        (ended,) = run(LOOSE, [PROMPTS[0]], stop=(stop,))
    finally:
        model.tokenizer = kept
    assert ended.finish_reason == FinishReason.STOP
    assert ended.receipt[-1].kind == TokenKind.SKIPPED
    assert not any(math.isnan(t.regret) or math.isnan(t.logprob) for t in ended.receipt)
    assert ended.logprobs == pytest.approx(rescored(ended)[0], abs=1e-4)
    assert ended.rounds[-1].target_passes == 1


@pytest.mark.parametrize(("row", "place", "mate"), [(0, 27, 3), (1, 25, 3), (1, 27, 3)])
def test_a_pass_for_one_that_ends_on_a_skipped_token_leaves_its_mates_cache_alone(row, place, mate):
    """In the round in which one row ends, its mate is verified: what that wrote is read later."""
    skip = "raw:local=0.1,prefix=0.05,min_prefix=1,max_unverified=3,repetition_guard=false"
    model = target()
    model.tokenizer, kept = CharTokenizer(), model.tokenizer
    try:
        free = run(skip)
        stop = model.tokenizer.decode(free[row].token_ids[: place + 1])
        ends = Request(prompt=PROMPTS[row], settings={"stop": (stop,)})
        mixed = run(skip, [ends if i == row else prompt for i, prompt in enumerate(PROMPTS)])
    finally:
        model.tokenizer = kept
    assert mixed[row].receipt[-1].kind == TokenKind.SKIPPED
    assert mixed[mate].token_ids == free[mate].token_ids
    assert mixed[mate].logprobs == pytest.approx(rescored(mixed[mate])[0], abs=1e-4)


def test_nothing_is_skipped_once_the_relaxed_phase_is_over():
    """Nor is the id that ends it, on the drafter's word."""
    skip = f"{LOOSE},max_unverified=1"
    for free in run(skip, PROMPTS[:2]):
        prompt, ids = list(free.prompt_ids), free.token_ids
        new = [i for i, token_id in enumerate(ids) if token_id not in ids[:i]]
        skipped = [i for i in new if free.receipt[i].kind == TokenKind.SKIPPED]
        end = next(i for i in new if i not in skipped and i < max(skipped))
        (over,) = run(skip, [prompt], strict_after=(ids[end],))
        assert over.token_ids[: end + 1] == ids[: end + 1]
        assert over.num_skipped
        assert all(t.kind != TokenKind.SKIPPED for t in over.receipt[end:])
        (kept,) = run(skip, [prompt], strict_after=(ids[skipped[2]],))
        kinds = {t.kind for t in kept.receipt if t.token_id == ids[skipped[2]]}
        assert TokenKind.SKIPPED not in kinds


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": 0.7}, "defined for greedy decoding, got temperature 0.7"),
        ({"repetition_penalty": 1.1}, "no logits processors under a skip rule, got Repetition"),
    ],
)
def test_what_skipping_is_not_defined_for_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        run(LOOSE, **changes)


@pytest.mark.parametrize("name", ["none", "self_speculative"])
def test_drafters_that_need_the_target_are_refused(name):
    own = None if name == "none" else drafter(name, skip=(0,))
    with pytest.raises(ConfigError, match="expects a drafter that drafts from tokens alone"):
        Decoder(target=target(), drafter=own, skip="raw")


def test_requests_say_which_rule_ran():
    (generation,) = run(LOOSE, [Request(prompt=[5, 9, 3])])
    assert generation.skip.startswith("raw:")
    assert plain(target(), [[5, 9, 3]], max_new_tokens=3)[0].skip == "none"
