import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lenity.engine.decode import Decoder
from lenity.engine.record import copy_packed
from lenity.errors import NonFiniteError
from lenity.ledger import to_units
from lenity.types import TokenKind
from tests.engine.drive import generate, table_script
from tests.toys import ScriptedDrafter, TableModel, cycle_model, oracle, pattern

SIZE = 6
FREE = "asd:budget=inf,gate=inf,block_cap=none,relax_special=true"


def random_model(seed=3, **kwargs):
    generator = torch.Generator().manual_seed(seed)
    return TableModel(torch.randn(SIZE, SIZE, generator=generator) * 2, **kwargs)


def teacher_forced(model, out):
    """Log-softmax of the row before each emitted token, in float64."""
    before = [out.prompt_ids[-1], *out.token_ids[:-1]]
    return model.table[torch.tensor(before)].double().log_softmax(-1)


def runner_up(model):
    choices = model.table.topk(2).indices[:, 1].tolist()
    return table_script(choices, [9] * SIZE)


@pytest.mark.parametrize("gamma", [0, 1, 4])
@pytest.mark.parametrize(
    ("spec", "temperature"), [("strict", 0.0), ("strict", 1.5), (FREE, 0.0)], ids=str
)
@pytest.mark.parametrize("top", [0, 3])
def test_logprobs_are_the_targets_own(gamma, spec, temperature, top):
    model = random_model()
    decoder = Decoder(target=model, drafter=ScriptedDrafter(script=runner_up(model)), policy=spec)
    out = generate(
        decoder, [2], gamma=gamma, max_new_tokens=11, temperature=temperature, top_logprobs=top
    )
    laws = teacher_forced(model, out)
    expected = laws.gather(1, torch.tensor(out.token_ids)[:, None])[:, 0].tolist()
    assert out.logprobs == pytest.approx(expected, abs=1e-5)
    for receipt, law in zip(out.receipt, laws, strict=True):
        best = law.topk(top)
        assert [i for i, _ in receipt.top_logprobs] == best.indices.tolist()
        values = [value for _, value in receipt.top_logprobs]
        assert values == pytest.approx(best.values.tolist(), abs=1e-5)


def test_more_alternatives_than_tokens_are_all_of_them():
    out = generate(Decoder(target=random_model()), [2], max_new_tokens=2, top_logprobs=50)
    assert [len(receipt.top_logprobs) for receipt in out.receipt] == [SIZE, SIZE]


class Tilt:
    """Adds a nat per token so far to token 1."""

    def start(self, prompt_ids):
        return 0

    def advance(self, state, token_id):
        return state + 1

    def apply(self, logits, state):
        tilted = logits.clone()
        tilted[1] += state
        return tilted


class Closed:
    """A grammar that knows nothing behind its end, or whose numbers are none there."""

    def __init__(self, end, behind):
        self.end, self.behind = end, behind

    def start(self, prompt_ids):
        return False

    def advance(self, state, token_id):
        return state or token_id == self.end

    def apply(self, logits, state):
        return torch.full_like(logits, self.behind) if state else logits


@pytest.mark.parametrize("behind", [-torch.inf, torch.nan, torch.inf])
@pytest.mark.parametrize(
    ("spec", "temperature"), [("strict", 0.0), ("strict", 1e-3), ("asd:budget=8", 0.0)]
)
def test_rows_behind_the_end_of_a_request_decide_nothing(behind, temperature, spec):
    """The draft goes on behind the end, where plain decoding never looks."""
    model = cycle_model(eos=[5])
    decoder = Decoder(target=model, drafter=ScriptedDrafter(script=oracle(model)), policy=spec)
    asked = {"temperature": temperature, "processors": (Closed(5, behind),)}
    out = generate(decoder, [1], gamma=8, max_new_tokens=20, **asked)
    assert (out.token_ids, out.finish_reason) == ((2, 3, 4, 5), "stop")
    at_end = generate(decoder, [1], gamma=8, max_new_tokens=4, ignore_eos=True, **asked)
    assert at_end.token_ids == (2, 3, 4, 5)
    with pytest.raises(NonFiniteError, match="block position 4"):
        generate(decoder, [1], gamma=8, max_new_tokens=20, ignore_eos=True, **asked)


@pytest.mark.parametrize("gamma", [0, 3])
@pytest.mark.parametrize("kind", ["raw", "processed"])
@pytest.mark.parametrize("top", [0, 2])
def test_raw_and_processed_logprobs(gamma, kind, top):
    model = random_model()
    decoder = Decoder(target=model, drafter=ScriptedDrafter(script=oracle(model)))
    asked = {"gamma": gamma, "max_new_tokens": 6, "top_logprobs": top, "logprobs": kind}
    out = generate(decoder, [2], processors=(Tilt(),), **asked)
    before = [2, *out.token_ids[:-1]]
    logits = model.table[torch.tensor(before)].double()
    if kind == "processed":
        logits[:, 1] += torch.arange(6)
    laws = logits.log_softmax(-1)
    expected = laws.gather(1, torch.tensor(out.token_ids)[:, None])[:, 0].tolist()
    assert out.logprobs == pytest.approx(expected, abs=1e-5)
    if top:
        for receipt, law in zip(out.receipt, laws, strict=True):
            best = law.topk(top)
            assert [i for i, _ in receipt.top_logprobs] == best.indices.tolist()
            values = [value for _, value in receipt.top_logprobs]
            assert values == pytest.approx(best.values.tolist(), abs=1e-5)


rows = st.lists(st.integers(-8, 8).map(lambda i: i / 8), min_size=SIZE, max_size=SIZE)


@given(
    st.lists(rows, min_size=SIZE, max_size=SIZE),
    st.lists(st.integers(0, SIZE - 1), min_size=SIZE, max_size=SIZE),
    st.sampled_from([FREE, "top_k:k=3", "asd:budget=1.5,gate=inf,block_cap=2", "priced:price=1"]),
    st.sampled_from([1 << 28, 1]),
)
@settings(max_examples=12)
def test_a_receipt_can_be_recomputed_from_ids_alone(table, choices, spec, chunk_bytes):
    model = TableModel(torch.tensor(table))
    decoder = Decoder(
        target=model,
        drafter=ScriptedDrafter(script=table_script(choices, [4] * SIZE)),
        policy=spec,
        max_logits_bytes=chunk_bytes,
    )
    out = generate(decoder, [0], gamma=4, max_new_tokens=9)
    last, units = 0, 0
    for receipt in out.receipt:
        row = table[last]
        choice = row.index(max(row))
        if receipt.token_id == choice:
            assert receipt.kind is not TokenKind.RELAXED
            assert (receipt.regret, receipt.rank, receipt.choice_id) == (0.0, None, None)
        else:
            own = row[receipt.token_id]
            assert receipt.kind is TokenKind.RELAXED
            assert receipt.choice_id == choice
            assert receipt.regret == max(row) - own
            ahead = [i for i, z in enumerate(row) if z > own or (z == own and i < receipt.token_id)]
            assert receipt.rank == len(ahead)
            units += int(to_units(torch.tensor([receipt.regret])))
        last = receipt.token_id
    assert sum(r.regret_units for r in out.rounds) == units


def test_kinds_of_a_round_by_round_story():
    model = cycle_model(16)
    drafter = ScriptedDrafter(script=pattern(model, 2, 0, 3))
    out = generate(Decoder(target=model, drafter=drafter), [0], gamma=3, max_new_tokens=9)
    a, r, b, p = TokenKind.ACCEPTED, TokenKind.RECOVERED, TokenKind.BONUS, TokenKind.PLAIN
    assert [t.kind for t in out.receipt] == [a, a, r, r, a, a, a, b, p]
    assert [r.accepted for r in out.rounds] == [2, 0, 3, 0]
    assert [r.drafted for r in out.rounds] == [3, 3, 3, 0]


def test_rounds_carry_their_seconds():
    out = generate(Decoder(target=cycle_model(16)), [0], max_new_tokens=3)
    for record in out.rounds:
        assert record.seconds.target > 0
        assert record.seconds.verify > 0
        assert record.seconds.commit > 0
        assert record.seconds.total < 10


def test_one_packed_copy_is_what_reading_each_tensor_gives(generator):
    fields = {
        "ids": torch.randint(2**40, (3, 4), generator=generator),
        "logits": torch.randn(3, 2, generator=generator),
        "nothing": torch.zeros(3, 0),
        "length": torch.tensor([[0], [7], [2]]),
    }
    fields["logits"][1, 0] = -float("inf")
    assert copy_packed(fields) == {name: value.tolist() for name, value in fields.items()}
