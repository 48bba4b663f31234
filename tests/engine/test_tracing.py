"""What an observer sees of a run, and that watching changes nothing."""

import pytest
import torch

from lenity.drafters.autoregressive import Autoregressive
from lenity.engine.decode import Decoder
from lenity.engine.tracing import Observer, RoundView, Tracer
from lenity.policies.divergence import DIVERGENCES
from lenity.requests import GenerationSettings, Request
from lenity.types import FinishReason, TokenKind
from tests.engine.drive import essence, table_script
from tests.engine.text import Pieces
from tests.reference.local import divergence, softmax
from tests.reference.rows import argmax, ranking
from tests.toys import ScriptedDrafter, TableModel, cycle_model, pattern

SIZE = 8


def table(seed=5):
    return torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(seed)) * 2


def scripted(**model):
    target = TableModel(table(), **model)
    script = table_script([1, 2, 3, 4, 5, 6, 7, 0], [3, 0, 2, 3, 1, 3, 3, 2])
    return target, ScriptedDrafter(script=script)


def traced(decoder, prompts, **settings):
    tracer = Tracer()
    out = decoder.generate(prompts, observer=tracer, **settings)
    return out, tracer.take()


@pytest.mark.parametrize("rule", ["strict", "asd:budget=3,gate=1", "top_k:k=3"])
def test_a_trace_is_what_the_round_was(rule):
    target, drafter = scripted()
    decoder = Decoder(target=target, drafter=drafter, policy=rule, max_batch_size=3)
    outs, rounds = traced(decoder, [[0], [1, 2], [3], [4, 5, 6]], gamma=3, max_new_tokens=15)
    assert sorted(rounds) == [0, 1, 2, 3]
    for index, out in enumerate(outs):
        ids, at = (*out.prompt_ids, *out.token_ids), len(out.prompt_ids)
        assert len(rounds[index]) == len(out.rounds)
        for seen, record in zip(rounds[index], out.rounds, strict=True):
            assert seen.start == at
            assert (seen.accepted, seen.emitted) == (record.accepted, record.emitted)
            assert seen.draft_ids[: seen.accepted] == ids[at : at + seen.accepted]
            assert len(seen.draft_ids) == record.evaluated
            logits = [target.table[t].tolist() for t in (ids[at - 1], *seen.draft_ids)]
            check_reductions(seen, logits)
            at += record.emitted
        assert at == len(ids)


def check_reductions(seen, logits):
    """Every number is read off the rows again: the anchor's, then each draft token's."""
    tops = [argmax(row) for row in logits]
    assert seen.top_ids == tuple(tops)
    assert seen.top_logit == tuple(row[top] for row, top in zip(logits, tops, strict=True))
    assert seen.second_logit == tuple(sorted(row)[-2] for row in logits)
    for i, token in enumerate(seen.draft_ids):
        assert seen.draft_logit[i] == logits[i][token]
        assert seen.draft_rank[i] == ranking(logits[i]).index(token)
        assert seen.regret[i] == pytest.approx(logits[i][tops[i]] - logits[i][token], abs=1e-6)
        assert (seen.regret[i] == 0) == (token == tops[i])
    assert seen.divergence is None


def test_watching_changes_nothing():
    target, drafter = scripted()
    decoder = Decoder(target=target, drafter=drafter, policy="asd:budget=2,gate=1")
    seen, _ = traced(decoder, [[0], [5]], gamma=3, max_new_tokens=20)
    alone = decoder.generate([[0], [5]], gamma=3, max_new_tokens=20)
    assert [essence(out) for out in seen] == [essence(out) for out in alone]


def test_a_tracer_forgets_what_was_taken():
    target, drafter = scripted()
    decoder, tracer = Decoder(target=target, drafter=drafter), Tracer()
    assert isinstance(tracer, Observer)
    decoder.generate([0], observer=tracer, gamma=2, max_new_tokens=4)
    assert list(tracer.take()) == [0]
    assert tracer.take() == {}


def test_laws_are_compared_on_demand():
    target, draft = TableModel(table()), TableModel(table(6), name="toy:draft")
    tracer = Tracer(divergence=True)
    decoder = Decoder(target=target, drafter=Autoregressive(model=draft))
    out = decoder.generate([2], observer=tracer, gamma=2, max_new_tokens=12)
    ids = (*out.prompt_ids, *out.token_ids)
    for seen in tracer.take()[0]:
        before = (ids[seen.start - 1], *seen.draft_ids)
        assert set(seen.divergence) == set(DIVERGENCES)
        for i, last in enumerate(before[:-1]):
            p, q = softmax(target.table[last].tolist()), softmax(draft.table[last].tolist())
            for name, values in seen.divergence.items():
                assert len(values) == len(seen.draft_ids)
                assert values[i] == pytest.approx(divergence(name, p, q), abs=1e-5)


def test_special_and_stop_tokens_and_ended_phases_are_marked():
    tokenizer = Pieces([bytes([65 + i]) for i in range(16)], special_ids=frozenset({4}))
    model = cycle_model(16, tokenizer=tokenizer, eos=(9,))
    drafter = ScriptedDrafter(script=lambda ids, limit: [4, 1, 7, 9, 3][:limit])
    decoder = Decoder(target=model, drafter=drafter)
    _, rounds = traced(decoder, [0], gamma=5, max_new_tokens=6, strict_after=(7,))
    first = rounds[0][0]
    # drafted 4, 1, 7, 9, 3 where the target says 1, 5, 2, 8, 10
    assert first.guarded == (0, 3)
    assert first.closed == (3, 4)
    assert first.ending == (3,)
    # 9 is the target's choice behind 8
    _, rounds = traced(
        Decoder(target=model, drafter=ScriptedDrafter(script=lambda ids, limit: [8, 3][:limit])),
        [7],
        gamma=2,
        max_new_tokens=6,
    )
    assert rounds[0][0].guarded == (1,)


def test_a_phase_that_ended_closes_all_later_rounds():
    model = cycle_model(16)
    decoder = Decoder(target=model, drafter=ScriptedDrafter(script=pattern(model, 1)))
    _, rounds = traced(decoder, [0], gamma=2, max_new_tokens=9, strict_after=(3,))
    closed = [len(r.closed) == len(r.draft_ids) for r in rounds[0] if r.draft_ids]
    assert [r.closed for r in rounds[0][:2]] == [(), (1,)]  # 3 stands first in the second draft
    assert all(closed[2:])


@pytest.mark.parametrize(
    ("ending", "reason"),
    [({"stop_token_ids": (3,)}, FinishReason.STOP), ({"stop": ("D",)}, FinishReason.STOP)],
)
def test_where_a_kept_token_ends_the_request_is_marked(ending, reason):
    """Ids and strings: the text is A B C D ..., and the third draft token ends it."""
    model = cycle_model(16, tokenizer=Pieces([bytes([65 + i]) for i in range(16)]))
    drafter = ScriptedDrafter(script=pattern(model, 5))
    out, rounds = traced(
        Decoder(target=model, drafter=drafter), [0], gamma=5, max_new_tokens=9, **ending
    )
    assert out.finish_reason is reason
    assert out.token_ids == (1, 2, 3)
    (only,) = rounds[0]
    assert (only.ending, only.accepted, only.emitted) == ((2,), 3, 3)


def test_without_logits_the_details_are_left_out():
    target, drafter = scripted()
    small = Decoder(target=target, drafter=drafter, max_logits_bytes=4 * SIZE)
    whole = Decoder(target=target, drafter=drafter)
    _, rounds = traced(small, [0], gamma=3, max_new_tokens=8)
    _, full = traced(whole, [0], gamma=3, max_new_tokens=8)
    for few, more in zip(rounds[0], full[0], strict=True):
        assert few.regret == more.regret
        assert more.second_logit is not None
        if few.draft_ids:  # a single row is no more than a chunk
            assert few.second_logit is few.draft_rank is None


def test_an_observer_that_raises_ends_the_call():
    class Angry:
        wants_divergence = False

        def observe(self, view):
            assert isinstance(view, RoundView)
            raise RuntimeError("enough")

    target, drafter = scripted()
    with pytest.raises(RuntimeError, match="enough"):
        Decoder(target=target, drafter=drafter).generate([0], observer=Angry(), gamma=2)


def test_rows_of_one_batch_are_kept_apart():
    target, drafter = scripted()
    asked = [
        Request(prompt=[i], settings=GenerationSettings(gamma=1 + i % 3, max_new_tokens=3 + 2 * i))
        for i in range(5)
    ]
    decoder = Decoder(target=target, drafter=drafter, max_batch_size=2)
    outs, rounds = traced(decoder, asked)
    for index, request in enumerate(asked):
        _, alone = traced(decoder, [request])
        assert rounds[index] == alone[0]
        kinds = [t.kind for t in outs[index].receipt]
        accepted = sum(kind is TokenKind.ACCEPTED for kind in kinds)
        assert sum(r.accepted for r in rounds[index]) == accepted
