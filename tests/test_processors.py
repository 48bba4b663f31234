import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import RepetitionPenaltyLogitsProcessor

from lenity.errors import ConfigError, ShapeError
from lenity.processors import (
    CountPenalty,
    MinNewTokens,
    RepetitionPenalty,
    apply_all,
    check_processors,
    walk,
)

INF = float("inf")
SIZE = 8
ids = st.integers(0, SIZE - 1)
logit_rows = st.lists(
    st.one_of(st.just(-INF), st.just(0.0), st.integers(-40, 40).map(lambda i: i / 8)),
    min_size=SIZE,
    max_size=SIZE,
)


def after(processor, prompt, tokens):
    state = processor.start(prompt)
    for token in tokens:
        state = processor.advance(state, token)
    return state


@given(logit_rows, st.lists(ids, min_size=1), st.lists(ids), st.sampled_from([0.5, 1.3, 2.0]))
def test_repetition_penalty_is_transformers_own(row, prompt, tokens, penalty):
    ours = RepetitionPenalty(penalty=penalty)
    logits = torch.tensor(row)
    out = ours.apply(logits, after(ours, prompt, tokens))
    theirs = RepetitionPenaltyLogitsProcessor(penalty)
    assert torch.equal(out, theirs(torch.tensor([prompt + tokens]), logits[None].clone())[0])
    assert torch.equal(logits, torch.tensor(row))  # pure


@given(
    logit_rows,
    st.lists(ids),
    st.lists(ids),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0.0, 0.25]),
)
def test_count_penalty_equals_its_loop(row, prompt, tokens, presence, frequency):
    penalty = CountPenalty(presence=presence, frequency=frequency)
    out = penalty.apply(torch.tensor(row), after(penalty, prompt, tokens)).tolist()
    for token, logit in enumerate(row):
        count = tokens.count(token)  # the prompt does not count
        assert out[token] == logit - presence * (count > 0) - frequency * count


@given(logit_rows, st.integers(0, 4), st.sets(ids), st.lists(ids))
def test_min_new_tokens_counts_tokens(row, count, ending, tokens):
    processor = MinNewTokens(count=count, ending_ids=frozenset(ending))
    out = processor.apply(torch.tensor(row), after(processor, [0] * 9, tokens)).tolist()
    for token, logit in enumerate(row):
        is_banned = len(tokens) < count and token in ending
        assert out[token] == (-INF if is_banned else logit)


@pytest.mark.parametrize(
    "processor",
    [
        RepetitionPenalty(penalty=2.0),
        CountPenalty(presence=1.0, frequency=0.5),
        MinNewTokens(count=3, ending_ids=frozenset({1})),
    ],
)
def test_advance_leaves_the_old_state_alone(processor):
    first = processor.start([4])
    logits = torch.ones(SIZE)
    before = processor.apply(logits, first).tolist()
    second = processor.advance(first, 5)
    for token in (1, 5, 5, 2):
        second = processor.advance(second, token)
    assert processor.apply(logits, first).tolist() == before
    assert processor.apply(logits, second).tolist() != before


def test_walk_returns_the_state_before_and_after_each_token():
    processors = (MinNewTokens(count=9, ending_ids=frozenset()), RepetitionPenalty(penalty=2.0))
    states = walk(processors, (4, frozenset({1})), [2, 1])
    assert states == [
        (4, frozenset({1})),
        (5, frozenset({1, 2})),
        (6, frozenset({1, 2})),
    ]
    assert walk(processors, (4, frozenset()), []) == [(4, frozenset())]


def test_processors_apply_in_order():
    ban = MinNewTokens(count=1, ending_ids=frozenset({0}))
    damp = RepetitionPenalty(penalty=2.0)
    take = CountPenalty(presence=1.0)
    logits = torch.tensor([4.0, 2.0])
    both = apply_all((damp, take), (frozenset({0}), {0: 1}), logits)
    assert both.tolist() == [1.0, 2.0]  # 4 / 2 - 1
    both = apply_all((take, damp), ({0: 1}, frozenset({0})), logits)
    assert both.tolist() == [1.5, 2.0]  # (4 - 1) / 2
    assert apply_all((ban, damp), (0, frozenset({0})), logits).tolist() == [-INF, 2.0]
    assert apply_all((), (), logits) is logits


def test_what_is_no_processor_is_named():
    with pytest.raises(ConfigError, match="got dict"):
        check_processors([MinNewTokens(count=1, ending_ids=frozenset()), {}])
    check_processors([])


class Returning:
    """Hands back what the test wants it to."""

    def __init__(self, change):
        self.change = change

    def start(self, prompt_ids):
        return None

    def advance(self, state, token_id):
        return None

    def apply(self, logits, state):
        return self.change(logits)


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda logits: None, "NoneType"),
        (lambda logits: logits.tolist(), "list"),
        (lambda logits: logits[None], r"float32 logits of shape \(1, 8\) on cpu"),
        (lambda logits: logits[:-1], r"float32 logits of shape \(7,\) on cpu"),
        (lambda logits: logits > 0, r"bool logits of shape \(8,\) on cpu"),
        (lambda logits: logits.to("meta"), r"float32 logits of shape \(8,\) on meta"),
    ],
    ids=["none", "list", "batch", "short", "bool", "device"],
)
def test_what_is_no_row_of_logits_is_refused_with_the_processors_name(change, got):
    both = (MinNewTokens(count=1, ending_ids=frozenset({0})), Returning(change))
    said = rf"processor Returning to return .*shape \(8,\) on cpu, got {got}\. Return"
    with pytest.raises(ShapeError, match=said):
        apply_all(both, (0, None), torch.zeros(SIZE))


def test_another_floating_point_type_is_fine():
    logits = torch.zeros(SIZE)
    assert apply_all((Returning(torch.Tensor.double),), (None,), logits).dtype == torch.float64
