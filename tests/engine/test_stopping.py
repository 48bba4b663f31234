import pytest

from lenity.engine.decode import Decoder
from lenity.engine.stopping import Cut, cut
from lenity.requests import GenerationSettings, Request
from lenity.sequences import Sequence
from lenity.types import FinishReason, TokenKind
from tests.engine.drive import TapeModel, generate
from tests.engine.text import byte_tokenizer
from tests.toys import ScriptedDrafter, anti_oracle, cycle_model, oracle

STOP, LENGTH, CONTEXT = FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTEXT


def sequence(max_new_tokens=10, ending=(), max_length=None):
    return Sequence(
        index=0,
        name="0",
        token_ids=[1, 2],
        prompt_length=2,
        settings=GenerationSettings(max_new_tokens=max_new_tokens),
        policy=None,
        requested_policy="strict",
        seed=0,
        ending_ids=frozenset(ending),
        guarded_ids=frozenset(),
        max_length=2 + max_new_tokens if max_length is None else max_length,
    )


@pytest.mark.parametrize(
    ("row", "ids", "expected"),
    [
        (sequence(), [3, 4, 5], Cut(num_emitted=3)),
        (
            sequence(ending=[4]),
            [3, 4, 5, 4],
            Cut(num_emitted=2, finish_reason=STOP, stop_match=4),
        ),
        (
            sequence(ending=[5, 4]),
            [3, 4, 5],
            Cut(num_emitted=2, finish_reason=STOP, stop_match=4),
        ),
        (sequence(2), [3, 4, 5], Cut(num_emitted=2, finish_reason=LENGTH)),
        (sequence(2, [4]), [3, 4], Cut(num_emitted=2, finish_reason=STOP, stop_match=4)),
        (sequence(2, [5]), [3, 4, 5], Cut(num_emitted=2, finish_reason=LENGTH)),
        (sequence(9, max_length=4), [3, 4, 5], Cut(num_emitted=2, finish_reason=CONTEXT)),
        (sequence(2, max_length=4), [3, 4, 5], Cut(num_emitted=2, finish_reason=LENGTH)),
        (sequence(2, max_length=4), [3], Cut(num_emitted=1)),
    ],
)
def test_the_earliest_end_wins_and_an_id_comes_before_a_length(row, ids, expected):
    assert cut(row, ids, None) == expected


# ------------------------------------------------------------------------------- through the engine


@pytest.mark.parametrize("gamma", [0, 1, 2, 5, 8])
@pytest.mark.parametrize("position", range(1, 13))
@pytest.mark.parametrize("make", [oracle, anti_oracle])
def test_eos_at_every_position_of_a_block(gamma, position, make):
    model = cycle_model(16, eos=(position,))  # from 0, the n-th new token is n
    decoder = Decoder(target=model, drafter=ScriptedDrafter(script=make(model)))
    out = generate(decoder, [0], gamma=gamma, max_new_tokens=14)
    assert out.token_ids == tuple(range(1, position + 1))
    assert (out.finish_reason, out.stop_match) == (STOP, position)
    assert sum(r.accepted for r in out.rounds) <= position
    if make is oracle and gamma and position % (gamma + 1):
        assert out.rounds[-1].emitted == out.rounds[-1].accepted == position % (gamma + 1)
        assert out.receipt[-1].kind is TokenKind.ACCEPTED


def test_any_of_several_eos_and_stop_ids_ends_a_request():
    model = cycle_model(16, eos=(12, 9))
    decoder = Decoder(target=model, drafter=ScriptedDrafter(script=oracle(model)))
    out = generate(decoder, [0], stop_token_ids=(14, 11))
    assert (out.token_ids[-1], out.stop_match) == (9, 9)
    assert generate(decoder, [0], stop_token_ids=(6, 4)).stop_match == 4
    free = generate(decoder, [0], stop_token_ids=(11,), ignore_eos=True)
    assert (free.stop_match, free.token_ids[-1]) == (11, 11)


def test_eos_that_was_drafted_but_rejected_ends_nothing():
    model = cycle_model(16, eos=(15,))
    drafter = ScriptedDrafter(script=lambda ids, limit: [15] * limit)
    out = generate(Decoder(target=model, drafter=drafter), [0], max_new_tokens=6)
    assert out.token_ids == (1, 2, 3, 4, 5, 6)
    assert out.finish_reason is LENGTH


# ------------------------------------------------------------------------------------- stop strings


def tape_decoder(text, right=(), **kwargs):
    """A target that says ``text`` byte by byte, and a drafter that knows most of it."""
    tokenizer = byte_tokenizer()
    model = TapeModel(text.encode(), 256, tokenizer=tokenizer, **kwargs)
    return Decoder(target=model, drafter=ScriptedDrafter(script=model.script(*right)))


@pytest.mark.parametrize("gamma", [0, 1, 2, 3, 4, 5, 6, 7, 20])
@pytest.mark.parametrize("right", [(), (0, 1, 2), (1, 3, 5), (0, 2, 3, 4, 5)])
def test_a_stop_string_ends_where_it_is_complete_wherever_rounds_end(gamma, right):
    decoder = tape_decoder("one two END three four", right)
    out = generate(decoder, [0], gamma=gamma, stop="END", max_new_tokens=20)
    assert (out.text, out.finish_reason, out.stop_match) == ("one two ", STOP, "END")
    assert bytes(out.token_ids) == b"one two END"
    kept = generate(decoder, [0], gamma=gamma, stop="END", max_new_tokens=20, include_stop=True)
    assert (kept.text, kept.token_ids) == ("one two END", out.token_ids)


@pytest.mark.parametrize("gamma", [0, 3, 20])
@pytest.mark.parametrize(
    ("budget", "reason", "text"), [(3, STOP, ""), (2, LENGTH, "EN"), (1, LENGTH, "E")]
)
def test_a_stop_string_beats_the_length_only_when_it_is_complete(gamma, budget, reason, text):
    out = generate(tape_decoder("END of it"), [0], gamma=gamma, stop="END", max_new_tokens=budget)
    assert (out.finish_reason, out.text, len(out.token_ids)) == (reason, text, budget)


@pytest.mark.parametrize("gamma", [0, 2, 5])
@pytest.mark.parametrize("stop", ["🙂", "é🙂", "ü", "🙂b"])
def test_a_stop_string_of_several_bytes(gamma, stop):
    text = "aé🙂b ü c"
    out = generate(tape_decoder(text), [0], gamma=gamma, stop=stop, max_new_tokens=13)
    assert out.text == text[: text.index(stop)]
    assert bytes(out.token_ids).decode() == text[: text.index(stop)] + stop
    assert out.stop_match == stop


@pytest.mark.parametrize("gamma", [0, 4])
def test_a_token_that_completes_both_an_id_and_a_string_ended_by_the_id(gamma):
    out = generate(tape_decoder("abc"), [0], gamma=gamma, stop="ab", stop_token_ids=(ord("b"),))
    assert (out.stop_match, out.finish_reason, out.text) == (ord("b"), STOP, "")


@pytest.mark.parametrize("gamma", [0, 5])
def test_the_first_of_several_stop_strings(gamma):
    decoder = tape_decoder("x STOP y HALT z")
    out = generate(decoder, [0], gamma=gamma, stop=("HALT", "OP ", "STOP"), max_new_tokens=15)
    assert (out.stop_match, out.text) == ("STOP", "x ")


@pytest.mark.parametrize("size", [2, 3])
def test_stop_strings_of_requests_that_leave_one_by_one(size):
    decoder = tape_decoder("one two three four", (0, 2, 3))
    decoder.max_batch_size = size
    asked = [
        Request(prompt=[0], settings=GenerationSettings(gamma=3, max_new_tokens=18, stop=stop))
        for stop in ("ne", "our", "two", ("hr", "th"))
    ]
    outs = generate(decoder, asked)
    assert [out.text for out in outs] == ["o", "one two three f", "one ", "one two "]
    assert [out.stop_match for out in outs] == ["ne", "our", "two", "th"]


# ---------------------------------------------------------------- what is not emitted costs nothing


def tie_breaker(ids, limit):
    """Right but for the fourth token of a block, which is the runner-up at half a nat."""
    out = [(ids[-1] + 1 + i) % 16 for i in range(limit)]
    if limit > 3:
        out[3:] = [(token + 1) % 16 for token in out[3:]]
    return out


@pytest.mark.parametrize("spec", ["asd:budget=inf,gate=inf,block_cap=none", "priced:price=0"])
def test_an_exception_behind_the_stop_is_not_charged(spec):
    model = cycle_model(16)
    drafter = ScriptedDrafter(script=tie_breaker)
    decoder = Decoder(target=model, drafter=drafter, policy=spec)
    free = generate(decoder, [0], gamma=5, max_new_tokens=6)
    assert free.rounds[0].accepted == 5  # accepted as a whole, the exception at 4 included
    assert [t.kind for t in free.receipt[:4]] == [TokenKind.ACCEPTED] * 3 + [TokenKind.RELAXED]
    assert (free.num_relaxed, free.regret_spent) == (1, 0.5)
    stopped = generate(decoder, [0], gamma=5, max_new_tokens=6, stop_token_ids=(2,))
    assert stopped.token_ids == (1, 2)
    assert (stopped.num_relaxed, stopped.regret_spent) == (0, 0.0)
    assert (stopped.rounds[0].accepted, stopped.rounds[0].drafted) == (2, 5)
    late = generate(decoder, [0], gamma=5, max_new_tokens=6, stop_token_ids=(6,))
    assert late.token_ids == (1, 2, 3, 5, 6)
    assert (late.num_relaxed, late.regret_spent) == (1, 0.5)
