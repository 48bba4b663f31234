import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lenity.engine.decode import Decoder
from lenity.errors import OutOfMemoryError
from lenity.processors import CountPenalty, RepetitionPenalty
from lenity.requests import GenerationSettings, Request
from lenity.types import FinishReason, TokenKind
from tests.engine.drive import essence, generate, table_script
from tests.toys import ScriptedDrafter, TableModel, anti_oracle, cycle_model, oracle

INF = float("inf")
RULES = [
    "strict",
    "asd:budget=inf,gate=inf,block_cap=none,relax_special=true",
    "lenience:ratio=1e-30,relax_special=true",
    "top_k:k=1000,relax_special=true",
    "priced:budget=inf,price=0,relax_special=true",
]


class Brackets:
    """A grammar: 0 opens, 1 closes, 2 ends where nothing is open; a broken text has no next token.

    The state is the depth, or None once a token was not allowed: then everything is masked, as a
    finite-state machine does in its dead state.
    """

    def start(self, prompt_ids):
        return 0

    def allowed(self, depth):
        if depth is None:
            return set()
        return {0} | ({1} if depth else {2})

    def advance(self, state, token_id):
        if token_id not in self.allowed(state):
            return None
        return state + (1 if token_id == 0 else -1 if token_id == 1 else 0)

    def apply(self, logits, state):
        banned = [i for i in range(len(logits)) if i not in self.allowed(state)]
        out = logits.clone()
        out[banned] = -INF
        return out


@given(
    st.lists(
        st.lists(st.integers(-6, 6).map(lambda i: i / 2), min_size=4, max_size=4),
        min_size=4,
        max_size=4,
    ),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    st.sampled_from(RULES),
    st.integers(1, 5),
)
@settings(max_examples=10)
def test_a_grammar_holds_under_every_policy(table, choices, spec, gamma):
    model = TableModel(torch.tensor(table))
    drafter = ScriptedDrafter(script=table_script(choices, [9] * 4))
    decoder = Decoder(target=model, drafter=drafter, policy=spec)
    grammar = Brackets()
    out = generate(decoder, [3], gamma=gamma, max_new_tokens=10, processors=(grammar,))
    state = 0
    for token in out.token_ids:
        assert token in grammar.allowed(state)
        state = grammar.advance(state, token)
    assert out.processor_states == (state,)
    plain = generate(Decoder(target=model), [3], max_new_tokens=10, processors=(grammar,))
    if spec == "strict":
        assert (out.token_ids, out.processor_states) == (plain.token_ids, plain.processor_states)


@pytest.mark.parametrize("spec", RULES)
@pytest.mark.parametrize("make", [oracle, anti_oracle])
def test_a_grammar_and_a_drafter_that_does_not_know_it(spec, make):
    model = TableModel(torch.tensor([[2.0, 1.0, 0.0, 3.0]] * 4))  # would say 3, which is no word
    decoder = Decoder(target=model, drafter=ScriptedDrafter(script=make(model)), policy=spec)
    out = generate(decoder, [3], gamma=4, max_new_tokens=6, processors=(Brackets(),))
    assert 3 not in out.token_ids
    if make is oracle:  # every draft is masked
        assert out.token_ids == (0,) * 6
        assert out.acceptance_rate == 0


class Ban:
    def __init__(self, token_id):
        self.token_id = token_id

    def start(self, prompt_ids):
        return None

    def advance(self, state, token_id):
        return None

    def apply(self, logits, state):
        logits[self.token_id] = -INF  # in place: a processor may
        return logits


def second_best(model):
    choices = model.table.topk(2).indices[:, 1].tolist()
    return table_script(choices, [9] * len(choices))


@pytest.mark.parametrize("spec", RULES)
def test_a_banned_second_best_is_never_emitted(spec):
    model = TableModel(torch.tensor([[0.0, 5.0, 4.9, 1.0]] * 4))
    decoder = Decoder(target=model, drafter=ScriptedDrafter(script=second_best(model)), policy=spec)
    free = generate(decoder, [0], max_new_tokens=9)
    assert (2 in free.token_ids) is (spec != "strict")
    out = generate(decoder, [0], max_new_tokens=9, processors=(Ban(2),))
    assert out.token_ids == (1,) * 9
    assert out.num_relaxed == 0
    assert out.logprobs == pytest.approx(
        [float(model.table[0].log_softmax(-1)[1])] * 9, abs=1e-5
    )  # raw: from before the ban


@pytest.mark.parametrize(
    ("spec", "temperature"), [("strict", 2.0), *((rule, 0.0) for rule in RULES)]
)
@pytest.mark.parametrize("unknown", [1, 2, 0])
def test_an_unknown_id_is_never_emitted(spec, temperature, unknown):
    """Also where it is the argmax (1), the second best (2), and where it is drafted."""
    model = TableModel(torch.tensor([[0.0, 5.0, 4.9, 1.0]] * 4), unknown_ids=(unknown,))
    drafter = ScriptedDrafter(script=lambda ids, limit: [unknown] * limit)
    for parts in ({}, {"drafter": drafter}):
        decoder = Decoder(target=model, policy=spec, **parts)
        out = generate(decoder, [3], max_new_tokens=20, temperature=temperature, top_logprobs=3)
        assert unknown not in out.token_ids
        assert all(unknown not in dict(t.top_logprobs) for t in out.receipt)
        assert out.acceptance_rate == 0


@pytest.mark.parametrize("gamma", [0, 3])
@pytest.mark.parametrize("count", [0, 1, 3, 5, 8])
@pytest.mark.parametrize("spec", RULES)
def test_min_new_tokens_counts_tokens_not_rounds(gamma, count, spec):
    table = torch.zeros(4, 4)
    table[:, 3], table[:, 1], table[:, 2] = 5.0, 4.0, 4.5  # would end at once
    model = TableModel(table, eos=(3,))
    decoder = Decoder(target=model, drafter=ScriptedDrafter(script=oracle(model)), policy=spec)
    out = generate(
        decoder, [0], gamma=gamma, max_new_tokens=8, min_new_tokens=count, stop_token_ids=(2,)
    )
    assert out.token_ids == ((1,) * count + (3,))[:8]
    assert out.finish_reason is (FinishReason.STOP if count < 8 else FinishReason.LENGTH)


def penalised(model, prompt, count, *, repetition, presence, frequency):
    """The scalar twin: plain decoding with penalties, in Python floats."""
    out = []
    for _ in range(count):
        row = model.table[([*prompt, *out])[-1]].tolist()
        for token in range(len(row)):
            if token in prompt or token in out:
                row[token] = row[token] / repetition if row[token] > 0 else row[token] * repetition
            row[token] -= presence * (token in out) + frequency * out.count(token)
        out.append(row.index(max(row)))
    return tuple(out)


@pytest.mark.parametrize("make", [oracle, anti_oracle, second_best])
@pytest.mark.parametrize("gamma", [0, 1, 5])
def test_penalties_equal_their_twin_inside_a_block(make, gamma):
    generator = torch.Generator().manual_seed(11)
    model = TableModel(torch.randn(8, 8, generator=generator) * 2)
    decoder = Decoder(target=model, drafter=ScriptedDrafter(script=make(model)))
    asked = {"repetition": 1.5, "presence": 0.75, "frequency": 0.375}
    out = generate(
        decoder,
        [2, 5],
        gamma=gamma,
        max_new_tokens=24,
        repetition_penalty=1.5,
        presence_penalty=0.75,
        frequency_penalty=0.375,
    )
    assert out.token_ids == penalised(model, [2, 5], 24, **asked)
    seen, counts = out.processor_states
    assert seen == {2, 5, *out.token_ids}
    assert counts == {i: out.token_ids.count(i) for i in set(out.token_ids)}
    own = (RepetitionPenalty(penalty=1.5), CountPenalty(presence=0.75, frequency=0.375))
    same = generate(decoder, [2, 5], gamma=gamma, max_new_tokens=24, processors=own)
    assert same.token_ids == out.token_ids


def test_a_processor_of_one_request_does_not_touch_another():
    model = cycle_model(8)
    decoder = Decoder(target=model, drafter=ScriptedDrafter(script=oracle(model)))
    base = GenerationSettings(max_new_tokens=6, gamma=3)
    banned = Request(prompt=[0], settings=base.model_copy(update={"processors": (Ban(3),)}))
    free = Request(prompt=[0], settings=base)
    alone = [generate(decoder, r) for r in (free, banned, free)]
    assert alone[0].token_ids != alone[1].token_ids
    assert list(map(essence, generate(decoder, [free, banned, free]))) == list(map(essence, alone))


# ------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("spec", ["strict", *RULES[1:]])
def test_chunks_of_one_row_change_nothing(spec):
    generator = torch.Generator().manual_seed(5)
    model = TableModel(torch.randn(8, 8, generator=generator).round(decimals=1))
    drafter = ScriptedDrafter(script=second_best(model))
    asked = [
        Request(prompt=[0], settings=GenerationSettings(gamma=4, max_new_tokens=9)),
        Request(
            prompt=[1, 2],
            settings=GenerationSettings(gamma=2, max_new_tokens=10, frequency_penalty=0.5),
        ),
        Request(prompt=[3], settings=GenerationSettings(gamma=0, max_new_tokens=12)),
    ]
    whole, chunked = (
        generate(Decoder(target=model, drafter=drafter, policy=spec, max_logits_bytes=n), asked)
        for n in (1 << 28, 1)
    )
    assert list(map(essence, chunked)) == list(map(essence, whole))
    assert spec == "strict" or any(
        t.kind is TokenKind.RELAXED for out in whole for t in out.receipt
    )


def test_never_more_rows_at_once_than_there_is_room_for():
    model = cycle_model(16)
    rows = []
    head = model.logits
    model.logits = lambda hidden: rows.append(len(hidden)) or head(hidden)
    drafter = ScriptedDrafter(script=oracle(model))
    decoder = Decoder(target=model, drafter=drafter, max_logits_bytes=3 * 4 * 16)
    generate(decoder, [[0], [1]], gamma=3, max_new_tokens=4)
    assert rows == [3, 3, 2]  # 2 requests of 4 rows


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
    ],
    ids=["cpu", "python", "cuda"],
)
def test_out_of_memory_names_the_buffer_and_its_size(error):
    model = cycle_model(2**16 // 64)

    def full(hidden):
        raise error

    model.logits = full
    decoder = Decoder(target=model, drafter=ScriptedDrafter(script=oracle(model)))
    rows = decoder._sequences(
        [Request(prompt=[0]), Request(prompt=[0])], GenerationSettings(gamma=3)
    )
    with pytest.raises(OutOfMemoryError, match=r"verify logits: 0\.00 GiB .* 8 rows of 1024 tok"):
        list(decoder._rounds(rows, {}))
    assert [row.commits for row in rows] == [[], []]


def test_other_errors_of_the_head_stay_what_they_are():
    model = cycle_model(8)

    def broken(hidden):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    model.logits = broken
    with pytest.raises(RuntimeError, match="mat1"):
        Decoder(target=model).generate([0])
