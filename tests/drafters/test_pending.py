"""Block drafters behind tokens that the target has not seen: they stand in the block themselves."""

from functools import cache

import pytest
import torch

from lenity.drafters import drafter
from lenity.engine.decode import Decoder
from lenity.errors import ConfigError
from lenity.types import TokenKind
from tests.drafters.heads import Recorded, tiny_dflash, tiny_dspark
from tests.drafters.rig import drafted, plainly, tiny_llama

TARGET = tiny_llama(0, words=120)
PROMPTS = [[5, 6, 7, 8, 5, 6, 7], [9], [3, 4] * 6 + [3], [20, 21, 22, 20, 21]]
BLOCK = 5
LOOSE = "raw:local=0,prefix=0,min_prefix=1,repetition_guard=false"
KINDS = ["dflash", "vanilla", "gated", "rnn"]
every_kind = pytest.mark.parametrize("kind", KINDS)
every_slots = pytest.mark.parametrize("slots", ["fill_in", "anchor_first"])


@cache
def head(kind, slots):
    if kind == "dflash":
        return tiny_dflash(TARGET, slots=slots, block_size=BLOCK)
    return tiny_dspark(TARGET, kind, slots=slots, block_size=BLOCK)


def made(kind, slots, **knobs):
    family = "dflash" if kind == "dflash" else "dspark"
    return drafter(family, model=head(kind, slots), visible_pending=True, **knobs)


def run(skip, kind="dflash", slots="fill_in", prompts=PROMPTS, **more):
    """Return generations, and the drafts of every round."""
    recorder = Recorded(inner=made(kind, slots), drafts=[])
    decoder = Decoder(
        target=TARGET,
        drafter=recorder,
        skip=skip,
        shadow=more.pop("shadow", False),
        max_batch_size=more.pop("max_batch_size", 8),
    )
    return decoder.generate(prompts, gamma=4, **{"max_new_tokens": 20} | more), recorder.drafts


@torch.no_grad()
def by_hand(own, row, pending, tokens):
    """Return the choice of each proposing slot, from an empty cache, slot by slot.

    The context is that of the tokens the target has seen; what it has not seen stands in the block.
    """
    known = row[len(row) - 1 - pending :]
    context, slots = row[: len(row) - 1 - pending], own.new_cache(1)
    if context:
        states = TARGET.new_cache(1)
        features = TARGET.hidden_states(torch.tensor([context]), states, taps=own.config.taps)
        own.remember(features.features, slots)
        slots.commit([len(context)])
    size, first = own.config.block_size, own.config.first_slot
    block = torch.tensor([[*known, *[own.config.mask_token_id] * size][:size]])
    hidden = own.run_slots(block, slots, TARGET.embed)[:, first:]
    said, state, previous = [], None, [*known, *tokens]
    for j in range(pending + len(tokens)):
        logits = TARGET.logits(hidden[:, j])[0]
        if getattr(own, "markov_head", None) is not None:
            bias, state = own.markov_head(torch.tensor([previous[j]]), hidden[:, j], state)
            logits = logits + bias[0]
        logits[120:] = -torch.inf
        said.append(int(logits.argmax()))
    return said[pending:]


@every_slots
@every_kind
def test_drafts_are_those_of_a_block_that_begins_with_the_pending_tokens(kind, slots):
    own, seen = head(kind, slots), []
    skip = "periodic:period=1,count=1,max_unverified=3,repetition_guard=false"
    (generation,), drafts = run(skip, kind, slots, [PROMPTS[0]])
    text, pending = list(generation.prompt_ids), 0
    for record, draft in zip(generation.rounds, drafts, strict=False):
        (tokens,) = drafted(draft)
        room = max(0, own.config.max_draft_length - pending)
        assert len(tokens) <= room
        if record.drafted:
            assert tokens == by_hand(own, text, pending, tokens)
            seen.append((pending, len(tokens)))
        place = len(text) - len(generation.prompt_ids)
        text += generation.token_ids[place : place + record.emitted]
        pending = pending + record.skipped if record.skipped else 0
    most = own.config.max_draft_length
    assert {(count, min(4, most - count)) for count in range(4)} <= set(seen)


@every_slots
@pytest.mark.parametrize("kind", ["dflash", "vanilla"])
def test_a_full_block_asks_the_target(kind, slots):
    """Without a limit of its own, skipping ends where the block does."""
    most = head(kind, slots).config.max_draft_length
    generations, _ = run(LOOSE + ",max_unverified=none", kind, slots)
    for generation in generations:
        pending = 0
        for record in generation.rounds:
            assert record.skipped or record.target_passes
            if not record.skipped and pending == most:
                assert record.drafted == 0
            pending = pending + record.skipped if record.skipped else 0
            assert pending <= most
        assert generation.num_skipped


@every_slots
@pytest.mark.parametrize("kind", ["dflash", "rnn"])
def test_batch_mates_change_nothing(kind, slots):
    skip = "raw:local=0.1,prefix=0.1,min_prefix=1,max_unverified=3,repetition_guard=false"
    together, _ = run(skip, kind, slots, max_batch_size=3)
    for prompt, own in zip(PROMPTS, together, strict=True):
        (alone,), _ = run(skip, kind, slots, [prompt])
        assert alone.token_ids == own.token_ids
        assert [t.kind for t in alone.receipt] == [t.kind for t in own.receipt]
    rows = [[r.skipped for r in g.rounds] for g in together[:3]]
    assert len(set(zip(*rows, strict=False))) > 3, "rows were in step, which tries nothing"


@pytest.mark.parametrize(
    "skip", ["raw:local=1.1,min_prefix=1", LOOSE + ",max_unverified=0", "raw:min_prefix=5"]
)
@pytest.mark.parametrize("kind", ["dflash", "rnn"])
def test_limits_are_strict_token_by_token(kind, skip):
    generations, _ = run(skip, kind)
    for prompt, generation in zip(PROMPTS, generations, strict=True):
        assert list(generation.token_ids) == plainly(TARGET, prompt, 20)
        assert generation.num_skipped == 0


def test_skipped_tokens_are_priced_as_a_fresh_forward_would():
    generations, _ = run(LOOSE + ",max_unverified=2", shadow=True)
    for generation in generations:
        ids = [*generation.prompt_ids, *generation.token_ids]
        hidden = TARGET.hidden_states(torch.tensor([ids]), TARGET.new_cache(1)).last[0]
        logits = TARGET.logits(hidden)[len(generation.prompt_ids) - 1 : -1]
        logits[:, 120:] = -torch.inf
        for token, row in zip(generation.receipt, logits, strict=True):
            if token.kind is TokenKind.SKIPPED:
                regret = float(row.max() - row[token.token_id])
                assert token.regret == pytest.approx(regret, abs=1e-3)


def test_a_confidence_head_may_decide():
    """What DSpark says of each token is its conditional survival."""
    skip = "conditional:predictor=confidence,local=0,prefix=0.2,min_prefix=1,repetition_guard=false"
    generations, drafts = run(skip, "vanilla", "anchor_first", [PROMPTS[0]])
    for record, draft in zip(generations[0].rounds, drafts, strict=False):
        if record.skipped:
            assert float(draft.confidence[0, : record.skipped].prod()) >= 0.2
    assert generations[0].num_skipped


@pytest.mark.parametrize("family", ["dflash", "dspark"])
def test_without_the_knob_skipping_is_refused(family):
    model = head("dflash" if family == "dflash" else "vanilla", "fill_in")
    with pytest.raises(ConfigError, match=r"got the drafter .*visible_pending=true"):
        Decoder(target=TARGET, drafter=drafter(family, model=model), skip="raw")
    assert made("dflash", "fill_in").takes_pending
    assert not made("dflash", "fill_in").is_target_free


def test_the_knob_alone_changes_nothing():
    with_knob = Decoder(target=TARGET, drafter=made("dflash", "fill_in"))
    for prompt, own in zip(PROMPTS, with_knob.generate(PROMPTS, max_new_tokens=16), strict=True):
        assert list(own.token_ids) == plainly(TARGET, prompt, 16)
