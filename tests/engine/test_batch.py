from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lenity.engine.batch import PREFILL_CHUNK, Batch
from lenity.engine.decode import Decoder
from lenity.engine.prepare import make_sequence
from lenity.engine.round import run_round
from lenity.policies import policy
from lenity.requests import GenerationSettings, Request
from tests.engine.drive import check_round, essence, generate, table_script
from tests.toys import (
    CountingCache,
    ScriptedDrafter,
    ScriptedSession,
    TableModel,
    cycle_model,
    oracle,
)

SIZE = 6
STRICT = policy("strict")
RULES = [
    STRICT,
    policy("asd"),
    policy("asd:budget=1,gate=inf,block_cap=none"),
    policy("asd:budget=inf,gate=inf,block_cap=none,relax_special=true"),
    policy("lenience:ratio=0.3"),
    policy("top_k:k=3"),
    policy("priced:price=0.2"),
]


@dataclass
class TappedSession(ScriptedSession):
    """Wants the target's features, and writes down everything it is told."""

    taps: tuple[int, ...] = (0,)
    admitted: list = field(default_factory=list)
    kept: list = field(default_factory=list)

    def admit(self, token_ids, features):
        self.admitted.append((tuple(token_ids), features))

    def observe(self, accepted_lengths, features):
        self.observed.append((list(accepted_lengths), features))

    def keep(self, rows):
        self.kept.append(list(rows))


class TappedDrafter(ScriptedDrafter):
    def open(self, target, cache):
        return TappedSession(self.script)


def sequence(target, prompt, index=0, **changes):
    base = GenerationSettings.of(None, changes)
    return make_sequence(Request(prompt=prompt), index, target, STRICT, base)


def open_batch(model, *prompts, **changes):
    batch = Batch(model, TappedDrafter(script=oracle(model)))
    for index, prompt in enumerate(prompts):
        batch.admit(sequence(model, prompt, index, **changes), None)
    return batch


def test_a_prompt_is_prefilled_but_for_its_anchor():
    model = cycle_model(16)
    batch = open_batch(model, [3, 1, 2], [5], [4, 4])
    batch.check_invariants()
    assert batch.cache.committed == [[3, 1], [], [4]]
    features = [f for _, f in batch.session.admitted]
    assert [ids for ids, _ in batch.session.admitted] == [(3, 1, 2), (5,), (4, 4)]
    assert features[0].flatten().tolist() == [3, 1]
    assert features[1] is None  # nothing was run for a prompt of one token
    assert all(row.prefill_seconds >= 0 for row in batch.rows)


@pytest.mark.parametrize("extra", [-1, 0, 1, 2])
def test_a_long_prompt_is_prefilled_in_chunks(extra):
    model = cycle_model(16)
    prompt = [i % 16 for i in range(PREFILL_CHUNK + 1 + extra)]
    batch = open_batch(model, prompt)
    assert batch.cache.committed == [prompt[:-1]]
    assert batch.session.admitted[0][1].flatten().tolist() == prompt[:-1]
    assert model.num_forwards == (1 if extra <= 0 else 2)


def test_a_session_learns_what_was_committed():
    model = cycle_model(16, eos=(4,))
    batch = open_batch(model, [0], [2], gamma=3, max_new_tokens=9)
    run_round(batch, chunk_bytes=1 << 20)
    (accepted, features), *_ = batch.session.observed
    assert accepted == [3, 2]  # the second ended within its draft
    assert features.squeeze(-1).tolist() == [[0, 1, 2, 3], [2, 3, 4, 5]]


def test_rows_leave_together_with_all_they_own():
    model = cycle_model(16, eos=(4,))
    batch = open_batch(model, [5], [2], [9], [3], gamma=3, max_new_tokens=9)
    with torch.inference_mode():
        batch.guarded[2, 11] = True
    for index, units in enumerate((7, 8, 9, 10)):
        batch.ledger.charge(index, units)
    run_round(batch, chunk_bytes=1 << 20)
    assert [row.is_finished for row in batch.rows] == [False, True, False, True]
    batch.drop_finished()
    batch.check_invariants()
    assert [row.name for row in batch.rows] == ["0", "2"]
    assert batch.session.kept == [[0, 2]]
    assert [batch.ledger.spent(i) for i in range(2)] == [7, 9]
    assert batch.guarded.nonzero().tolist() == [[0, 4], [1, 4], [1, 11]]
    batch.drop_finished()
    assert batch.session.kept == [[0, 2]]  # nobody left, nobody is moved
    batch.admit(sequence(model, [1, 1], 5), None)
    batch.check_invariants()
    assert (len(batch), batch.ledger.spent(2)) == (3, 0)


def test_guarded_ids_beyond_the_head_are_left_out():
    model = cycle_model(16, eos=(3, 99))
    batch = Batch(model, None)
    batch.admit(sequence(model, [1]), None)
    assert batch.guarded.nonzero().tolist() == [[0, 3]]


@pytest.mark.parametrize(
    "damage",
    [
        lambda batch: batch.cache.lengths.__setitem__(0, 99),
        lambda batch: batch.rows[0].token_ids.append(1),
        lambda batch: batch.ledger.open_row(),
        lambda batch: batch.rows.pop(),
        lambda batch: batch.cache.append(CountingCache(1)),
        lambda batch: setattr(batch, "guarded", batch.guarded[:1]),
    ],
    ids=["length", "token", "ledger", "row", "cache", "guarded"],
)
def test_the_invariants_notice(damage):
    batch = open_batch(cycle_model(16), [1, 2], [3])
    batch.check_invariants()
    damage(batch)
    with pytest.raises(AssertionError):
        batch.check_invariants()


# ------------------------------------------------------------------ a request is alone in its batch

tables = st.lists(
    st.lists(st.integers(-4, 4).map(lambda i: i / 2), min_size=SIZE, max_size=SIZE),
    min_size=SIZE,
    max_size=SIZE,
)
ids = st.integers(0, SIZE - 1)
scripts = st.builds(
    table_script,
    st.lists(ids, min_size=SIZE, max_size=SIZE),
    st.lists(st.integers(0, 6), min_size=SIZE, max_size=SIZE),
)


@st.composite
def requests(draw):
    changes = {
        "gamma": draw(st.integers(0, 6)),
        "max_new_tokens": draw(st.integers(1, 9)),
        "seed": draw(st.integers(0, 3)),
        "stop_token_ids": draw(st.sampled_from([(), (2,), (5, 1)])),
        "ignore_eos": draw(st.booleans()),
        "strict_after": draw(st.sampled_from([(), (3,)])),
        "min_new_tokens": draw(st.sampled_from([0, 0, 3])),
        "repetition_penalty": draw(st.sampled_from([1.0, 1.0, 1.4])),
        "frequency_penalty": draw(st.sampled_from([0.0, 0.0, 0.5])),
        "top_logprobs": draw(st.sampled_from([0, 0, 2])),
        "logprobs": draw(st.sampled_from(["raw", "processed"])),
    }
    rule = draw(st.sampled_from(RULES))
    if rule is STRICT and draw(st.booleans()):
        changes |= {"temperature": 0.9, "top_p": draw(st.sampled_from([None, 0.8]))}
    prompt = draw(st.lists(ids, min_size=1, max_size=9))
    return {"prompt": prompt, "policy": rule}, changes


@given(
    table=tables,
    script=scripts,
    asked=st.lists(requests(), min_size=2, max_size=4),
    size=st.integers(1, 3),
    eos=st.sets(ids, max_size=1),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=12)
def test_a_request_gets_what_it_would_get_alone(table, script, asked, size, eos, order):
    model = TableModel(torch.tensor(table), eos=tuple(eos))
    drafter = ScriptedDrafter(script=script)
    asked = [Request(**own, settings=GenerationSettings.of(None, ch)) for own, ch in asked]
    alone = [generate(Decoder(target=model, drafter=drafter), r) for r in asked]
    together = generate(Decoder(target=model, drafter=drafter, max_batch_size=size), asked)
    assert list(map(essence, together)) == list(map(essence, alone))
    places = list(range(len(asked)))
    order.shuffle(places)
    mixed = Decoder(target=model, drafter=drafter, max_batch_size=size)
    shuffled = generate(mixed, [asked[i] for i in places])
    assert list(map(essence, shuffled)) == [essence(alone[i]) for i in places]


@pytest.mark.parametrize("gamma", [0, 1, 4])
def test_prompts_of_lengths_1_5_9_17(gamma):
    model = cycle_model(16, eos=(15,))
    prompts = [[i % 16 for i in range(5, 5 + length)] for length in (1, 5, 9, 17)]
    drafter = ScriptedDrafter(script=oracle(model))
    together = generate(Decoder(target=model, drafter=drafter), prompts, gamma=gamma)
    for prompt, out in zip(prompts, together, strict=True):
        alone = generate(Decoder(target=model, drafter=drafter), prompt, gamma=gamma)
        assert essence(out) == essence(alone)
        assert out.prompt_ids == tuple(prompt)
    assert len({out.num_target_passes for out in together}) > 1  # they left one by one


def test_a_waiting_request_enters_as_soon_as_a_place_is_free():
    model = cycle_model(16)
    decoder = Decoder(target=model, max_batch_size=2)
    asked = [
        Request(prompt=[0], settings=GenerationSettings(max_new_tokens=n)) for n in (2, 5, 1, 2, 3)
    ]
    rows = decoder._sequences([*asked], GenerationSettings())
    seen = [[row.index for row in alive] for alive in decoder._rounds(rows, {})]
    assert seen == [[0, 1], [0, 1], [1, 2], [1, 3], [1, 3], [4], [4], [4]]


def test_a_row_that_may_not_draft_rides_along():
    model = cycle_model(16)
    batch = open_batch(model, [0], gamma=3)
    batch.admit(sequence(model, [7], 1, gamma=0), None)
    run_round(batch, chunk_bytes=1 << 20)
    check_round(batch)
    assert [row.commits[0].record.drafted for row in batch.rows] == [3, 0]
    assert [row.commits[0].token_ids for row in batch.rows] == [(1, 2, 3, 4), (8,)]
