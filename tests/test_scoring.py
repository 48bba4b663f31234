"""Logits to reductions: the same numbers whatever the chunk, and padding nobody looks at."""

import math

import pytest
import torch
from hypothesis import given

from lenity.errors import NonFiniteError
from lenity.scoring import check_finite, rank_of, reduce_logits
from lenity.types import Draft
from tests.policies.blocks import EVERY_NEED, INF, Block, blocks
from tests.reference import rows

NAN = float("nan")
FIELDS = (
    "top_id",
    "top_logit",
    "draft_logit",
    "regret",
    "logits",
    "second_logit",
    "draft_rank",
    "log_normalizer",
)


def reduce(block, chunk_rows=None):
    """The scores, and the chunks that were asked for."""
    flat, asked = block.logits.flatten(0, 1), []

    def logits_of(start, stop):
        asked.append((start, stop))
        return flat[start:stop]

    scores = reduce_logits(
        logits_of, block.draft, needs=EVERY_NEED, keep_logits=True, chunk_rows=chunk_rows
    )
    return scores, asked


@pytest.fixture
def block(generator):
    draft = Draft(
        token_ids=torch.randint(50, (3, 4), generator=generator), lengths=torch.tensor([4, 0, 2])
    )
    return Block(torch.randn(3, 5, 50, generator=generator), draft)


@pytest.mark.parametrize("chunk_rows", range(1, 17))
def test_chunks_change_nothing(block, chunk_rows):
    whole, asked = reduce(block)
    assert asked == [(0, 15)]
    assert whole.draft_rank.shape == whole.regret.shape == (3, 4)
    parts, asked = reduce(block, chunk_rows)
    assert [start for start, _ in asked] == list(range(0, 15, chunk_rows))
    assert [stop for _, stop in asked] == [*range(chunk_rows, 15, chunk_rows), 15]
    for field in FIELDS:
        assert torch.equal(getattr(parts, field), getattr(whole, field)), field


@given(blocks())
def test_equals_the_scalar_reading(block):
    scores, _ = reduce(block, chunk_rows=2)
    for b in block.batch:
        tokens = block.tokens(b)
        for i, row in enumerate(block.rows(b)):
            best, second = rows.ranking(row)[:2]
            assert (int(scores.top_id[b, i]), float(scores.top_logit[b, i])) == (best, row[best])
            assert float(scores.second_logit[b, i]) == row[second]
            normalizer = math.log(math.fsum(math.exp(z) for z in row))
            assert float(scores.log_normalizer[b, i]) == pytest.approx(normalizer, abs=1e-6)
            assert scores.logits[b, i].tolist() == row
            if i < len(tokens):
                x = tokens[i]
                assert float(scores.draft_logit[b, i]) == row[x]
                assert int(scores.draft_rank[b, i]) == rows.ranking(row).index(x)
                regret = INF if rows.is_masked(row, x) else float(rows.regret(row, x))
                assert float(scores.regret[b, i]) == regret


def test_only_what_is_asked_for_is_kept(block):
    flat = block.logits.flatten(0, 1)
    scores = reduce_logits(lambda start, stop: flat[start:stop], block.draft)
    assert scores.logits is None
    assert scores.second_logit is None
    assert scores.draft_rank is None
    assert scores.log_normalizer is None


def test_half_precision_is_summed_in_float32():
    logits = torch.tensor([[16.0, 16.125, 3.0]], dtype=torch.bfloat16)
    draft = Draft(token_ids=torch.zeros(1, 0, dtype=torch.int64), lengths=torch.tensor([0]))
    needs = frozenset({"log_normalizer", "second_logit"})
    scores = reduce_logits(
        lambda start, stop: logits[start:stop], draft, needs=needs, keep_logits=True
    )
    assert torch.equal(scores.logits[0], logits)
    assert scores.log_normalizer.dtype == torch.float32
    assert scores.top_logit.dtype == scores.second_logit.dtype == torch.float32
    assert (scores.top_logit.item(), scores.second_logit.item()) == (16.125, 16.0)
    wanted = math.log(math.exp(16) + math.exp(16.125) + math.exp(3))
    assert float(scores.log_normalizer) == pytest.approx(wanted, abs=1e-5)


def test_a_masked_draft_token_costs_infinitely_much():
    """Even where the whole row is masked and -inf - -inf is no number."""
    draft = Draft(token_ids=torch.tensor([[1, 1]]), lengths=torch.tensor([2]))
    logits = torch.tensor([[[0.0, -INF], [-INF, -INF], [0.0, 0.0]]])
    scores, _ = reduce(Block(logits, draft))
    assert scores.regret.tolist() == [[INF, INF]]
    assert scores.draft_logit.tolist() == [[-INF, -INF]]


def test_regret_is_never_negative_and_a_tie_costs_nothing():
    draft = Draft(token_ids=torch.tensor([[2, 0]]), lengths=torch.tensor([2]))
    scores, _ = reduce(Block(torch.tensor([[[1.0, 0.5, 1.0]] * 3]), draft))
    assert scores.regret.tolist() == [[0.0, 0.0]]
    assert scores.top_id.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [3, 257, 5003])
def test_the_first_of_equals_is_the_top(generator, dtype, size):
    """Ties are where verification would otherwise depend on the kernel."""
    logits = torch.randint(3, (40, size), generator=generator).to(dtype)
    draft = Draft(
        token_ids=torch.zeros(40, 0, dtype=torch.int64), lengths=torch.zeros(40, dtype=torch.int64)
    )
    scores = reduce_logits(lambda start, stop: logits[start:stop], draft)
    rows = logits.tolist()
    assert scores.top_id[:, 0].tolist() == [row.index(max(row)) for row in rows]


def test_ranks_break_ties_by_id():
    logits = torch.tensor([1.0, 2.0, 1.0, 2.0, -INF]).expand(5, 5)
    assert rank_of(logits, torch.arange(5)).tolist() == [2, 0, 3, 1, 4]


def test_padding_rows_may_hold_anything(block):
    poisoned = block.logits.clone()
    poisoned[1, 1:] = NAN
    poisoned[2, 3:] = -INF
    clean, _ = reduce(block)
    scores, _ = reduce(Block(poisoned, block.draft))
    for b, length in enumerate([4, 0, 2]):
        for field in FIELDS:
            real = length if getattr(scores, field).shape[1] == 4 else length + 1
            assert torch.equal(getattr(scores, field)[b, :real], getattr(clean, field)[b, :real]), (
                field
            )
    check_finite(scores.top_logit.tolist(), [4, 0, 2], ["a", "b", "c"])


@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize(("request_", "position"), [(0, 0), (0, 4), (1, 0), (2, 2)])
def test_bad_numbers_are_refused_with_their_place(block, bad, request_, position):
    """One bad logit anywhere in a row reaches its maximum."""
    poisoned = block.logits.clone()
    poisoned[request_, position, 7] = bad
    scores, _ = reduce(Block(poisoned, block.draft))
    with pytest.raises(
        NonFiniteError,
        match=f"got {bad} for request {'abc'[request_]} at block position {position}",
    ):
        check_finite(scores.top_logit.tolist(), [4, 0, 2], ["a", "b", "c"])


def test_every_request_has_a_name_and_a_length():
    for lengths, names in (([0], ["a", "b"]), ([0, 0], ["a"])):
        with pytest.raises(ValueError, match="zip"):
            check_finite([[0.0], [NAN]], lengths, names)


def test_a_row_that_masks_every_token_is_refused():
    with pytest.raises(NonFiniteError, match=r"got -inf for request r.*masks every token"):
        check_finite([[0.0, -INF]], [1], ["r"])


def test_no_draft_is_one_row():
    draft = Draft(token_ids=torch.zeros(2, 0, dtype=torch.int64), lengths=torch.zeros(2).long())
    scores, asked = reduce(Block(torch.tensor([[[0.0, 1.0]], [[3.0, 2.0]]]), draft))
    assert asked == [(0, 2)]
    assert scores.top_id.tolist() == [[1], [0]]
    assert scores.regret.shape == (2, 0)


def test_inputs_are_left_alone(block):
    before = block.logits.clone()
    reduce(block)
    assert torch.equal(before, block.logits)
