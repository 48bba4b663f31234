import math

import torch

from lenity.training.losses import (
    hard_cross_entropy,
    is_best,
    soft_cross_entropy,
    total_variation,
    weighted_mean,
)

P = [[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]]
Q = [[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]]
LOGITS = torch.tensor(Q).log() + torch.tensor([[3.0], [-2.0]])


def test_soft_cross_entropy_is_the_sum_it_says():
    expected = [
        -sum(p * math.log(q) for p, q in zip(*r, strict=True)) for r in zip(P, Q, strict=True)
    ]
    torch.testing.assert_close(soft_cross_entropy(LOGITS, torch.tensor(P)), torch.tensor(expected))


def test_hard_cross_entropy_leaves_out_tokens_without_a_row():
    found = hard_cross_entropy(LOGITS[None], torch.tensor([[2, -1]]))
    torch.testing.assert_close(found, torch.tensor([[-math.log(0.25), 0.0]]))


def test_total_variation_is_one_less_the_overlap():
    overlap = [sum(map(min, zip(*rows, strict=True))) for rows in zip(P, Q, strict=True)]
    expected = 1 - torch.tensor(overlap)
    torch.testing.assert_close(total_variation(LOGITS, torch.tensor(P)), expected)


def test_positions_are_averaged_over_what_counts_and_then_weighted():
    losses = torch.tensor([[1.0, 10.0], [3.0, 20.0], [100.0, 30.0]])
    counts = torch.tensor([[True, False], [True, True], [False, False]])
    weights = torch.tensor([1.0, 0.5])
    assert weighted_mean(losses, counts, weights) == 2 + 0.5 * 20
    assert weighted_mean(losses, torch.zeros_like(counts), weights) == 0


def test_the_best_row_is_told_and_a_missing_one_never_is():
    assert is_best(LOGITS, torch.tensor([0, 2])).tolist() == [True, True]
    assert is_best(LOGITS, torch.tensor([1, -1])).tolist() == [False, False]
