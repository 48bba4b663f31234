"""After every round the cache holds what a forward without a cache would compute.

Seen in HF#30068, #30042 and #30312 and mlx-examples#149: caches
one token long or short, and positions with gaps, after rounds that accepted nothing or everything.
"""

import pytest
import torch

from lenity.drafters.autoregressive import Autoregressive
from lenity.engine.batch import Batch
from lenity.engine.decode import Decoder
from lenity.engine.prepare import make_sequence
from lenity.engine.round import run_round
from lenity.policies import policy
from lenity.requests import GenerationSettings, Request
from tests.cases.rig import (
    PROMPTS,
    VARIANTS,
    Reference,
    Spy,
    cousin,
    pattern,
    reference,
    scripted,
    target,
    watched,
)

GAMMA = 5
PATTERN = (0, 5, 1, 4, 2, 3)


def open_batch(model, prompts, drafter, *, count, rule="strict"):
    batch = Batch(model, drafter)
    for index, prompt in enumerate(prompts):
        settings = GenerationSettings(max_new_tokens=count, gamma=GAMMA)
        row = make_sequence(Request(prompt=prompt), index, model, policy(rule), settings)
        batch.admit(row, None)
    return batch


@torch.inference_mode()  # as the round itself: the buffers were made in it
def next_logits(batch):
    """The logits after every row's anchor, on the batch's cache; nothing is committed."""
    anchors = torch.tensor([[row.token_ids[-1]] for row in batch.rows])
    return batch.target.logits(batch.target.hidden_states(anchors, batch.cache).last)[:, 0]


def check_cache(batch, known):
    batch.check_invariants()
    assert batch.cache.lengths == [len(row.token_ids) - 1 for row in batch.rows]
    for row, found in zip(batch.rows, next_logits(batch) if len(batch) else [], strict=True):
        torch.testing.assert_close(found, known.row(row.token_ids), atol=1e-4, rtol=0)


def run_to_the_end(batch, known):
    """Run all rounds, checking the cache and the positions; return the accepted lengths."""
    accepted, positions = [], []
    with watched(batch.target.module, lambda args: positions.append(args["position_ids"])):
        while len(batch):
            starts = [len(row.token_ids) - 1 for row in batch.rows]
            run_round(batch, chunk_bytes=1 << 20)
            width = max(row.commits[-1].record.drafted for row in batch.rows) + 1
            expected = torch.tensor(starts)[:, None] + torch.arange(width)
            used = positions[-1].expand_as(expected)
            for row, (found, wanted) in enumerate(zip(used, expected, strict=True)):
                real = batch.rows[row].commits[-1].record.drafted + 1
                assert found[:real].tolist() == wanted[:real].tolist()
            accepted += [row.commits[-1].record.accepted for row in batch.rows]
            check_cache(batch, known)
            batch.drop_finished()
            check_cache(batch, known)
    return accepted


@pytest.mark.parametrize(("family", "attn"), VARIANTS[::2])
def test_one_row_after_every_round(family, attn):
    """One row: the cache writes slices."""
    known = reference(family, attn)
    batch = open_batch(known.model, PROMPTS[2:3], scripted(pattern(known, *PATTERN)), count=34)
    accepted = run_to_the_end(batch, known)
    assert tuple(accepted[:6]) == PATTERN


@pytest.mark.parametrize(
    ("family", "attn"), [v for v in VARIANTS if v[1] == "sdpa" or v[0] == "gemma2"]
)
def test_ragged_rows_after_every_round(family, attn):
    """Four rows that are never equally long and end one by one: the cache scatters."""
    known = reference(family, attn)
    batch = open_batch(known.model, PROMPTS, scripted(pattern(known, *PATTERN)), count=20)
    for row, less in zip(batch.rows, (0, 7, 3, 5), strict=True):
        row.max_length -= less
    assert {0, GAMMA} <= set(run_to_the_end(batch, known))


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
def test_the_buffers_grow_in_the_middle_of_a_run(family):
    """From 250 tokens to 270: one step of columns is 256."""
    known = reference(family)
    prompts = [[(11 * i + 5) % 128 for i in range(250)], PROMPTS[1]]
    batch = open_batch(known.model, prompts, scripted(pattern(known, *PATTERN)), count=20)
    before = capacity(batch)
    accepted = run_to_the_end(batch, known)
    assert capacity(batch) > before == 256
    assert {0, GAMMA} <= set(accepted)


def capacity(batch):
    """Columns that the target's cache has room for."""
    return batch.cache.slots.capacity


def test_after_relaxed_rounds_too():
    """What was committed is the draft's token, and its keys and values are the ones kept."""
    known = reference()
    drafter = scripted(pattern(known, *PATTERN))
    rule = "asd:budget=inf,gate=inf,block_cap=1"
    batch = open_batch(known.model, PROMPTS, drafter, count=20, rule=rule)
    rows = list(batch.rows)
    run_to_the_end(batch, known)
    assert all(any(c.record.relaxed for c in row.commits) for row in rows)


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "gemma3"])
def test_the_drafter_keeps_its_own_cache_as_well(family):
    """Whatever was accepted before, it drafts what it would say without a cache."""
    known = Reference(cousin(family))
    spy = Spy(inner=Autoregressive(model=known.model), seen=[])
    results = Decoder(target=target(family), drafter=spy, max_batch_size=3).generate(
        PROMPTS, max_new_tokens=24, gamma=GAMMA
    )
    accepted = {r.accepted for result in results for r in result.rounds}
    assert {0, GAMMA} <= accepted
    assert len(accepted) > 3
    for rows, draft in spy.seen:
        for ids, tokens, length in zip(rows, draft.token_ids, draft.lengths, strict=True):
            assert tokens[:length].tolist() == known.greedy(ids, int(length))
