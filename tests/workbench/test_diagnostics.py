"""Diagnostics on blocks written by hand or drawn from a known law, beside scalar twins."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lenity.errors import ProtocolError, RunDirError
from lenity.skipping import skip_rule
from lenity.skipping.base import SkipContext
from lenity.types import Draft
from lenity.workbench.diagnostics import (
    LoggedBlocks,
    auroc,
    baseline,
    break_even,
    cross_entropy,
    feasible_lengths,
    gate_ablation,
    permutation_test,
    permuted,
    position_metrics,
    read_blocks,
    write_blocks,
)

VECTOR = [0.99, 0.91, 0.99, 0.99, 0.92, 0.99, 0.85, 0.99]
SIGNALS = pytest.mark.parametrize("signal", ["raw", "marginal", "conditional"])


def correlated(signal="marginal", num=600, gamma=6, seed=3):
    """Blocks that are easy or hard as a whole: the dependence that shuffling destroys."""
    rng = np.random.default_rng(seed)
    is_easy = rng.random((num, 1)) < 0.5
    scores = np.where(is_easy, 0.97, 0.4) + rng.uniform(-0.02, 0.02, (num, gamma))
    survives = rng.random((num, gamma)) < np.where(is_easy, 0.98, 0.5)
    accepted = np.logical_and.accumulate(survives, 1).sum(1)
    return LoggedBlocks.of(signal, scores, accepted, folds=np.arange(num) % 5)


@pytest.mark.parametrize(
    ("signal", "local", "prefix", "wanted"),
    [
        ("raw", 0.90, 0.93, 6),
        ("raw", 0.90, 0.96, 6),
        ("raw", 0.80, 0.93, 8),
        ("marginal", 0.90, 0.90, 6),
        ("conditional", 0.90, 0.90, 2),
        ("conditional", 0.90, 0.80, 6),
    ],
)
def test_feasible_lengths_of_the_published_vectors(signal, local, prefix, wanted):
    blocks = LoggedBlocks.of(signal, [VECTOR], [0])
    assert feasible_lengths(blocks, local, prefix).tolist() == [wanted]


rows = st.lists(
    st.lists(st.sampled_from([0.0, 0.5, 0.8, 0.9, 0.95, 1.0]), max_size=6), min_size=1, max_size=4
)


@given(rows, st.sampled_from([0.0, 0.77, 0.93]), st.sampled_from([0.0, 0.77, 0.93]))
def test_feasible_lengths_are_the_rules(scores, local, prefix):
    """The numpy gates of logged blocks and the tensor gates of the loop are one rule."""
    width = max(map(len, scores))
    padded = [[*row, *[0.0] * (width - len(row))] for row in scores]
    draft = Draft(
        token_ids=torch.zeros(len(scores), width, dtype=torch.int64),
        lengths=torch.tensor([len(row) for row in scores]),
        confidence=torch.tensor(padded, dtype=torch.float64).reshape(len(scores), width),
    )
    context = SkipContext(draft=draft, num_emitted=[0] * len(scores), rounds=[0] * len(scores))
    for signal, spec in (("raw", "raw"), ("conditional", "conditional:predictor=confidence")):
        rule = skip_rule(spec, local=local, prefix=prefix, min_prefix=0)
        blocks = LoggedBlocks.of(signal, scores, [0] * len(scores))
        wanted = rule.prefix_length(context).tolist()
        assert feasible_lengths(blocks, local, prefix).tolist() == wanted


def test_what_counts_at_a_position():
    scores = [[0.5] * 4, [0.5] * 2, [0.5] * 4]
    marginal = LoggedBlocks.of("marginal", scores, [1, 2, 4])
    conditional = LoggedBlocks.of("conditional", scores, [1, 2, 4])
    assert marginal.counts.sum(1).tolist() == [4, 2, 4]
    assert conditional.counts.astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    assert marginal.survives.sum(1).tolist() == [1, 2, 4]
    with pytest.raises(ProtocolError, match="from 0 to its draft length"):
        LoggedBlocks.of("raw", scores, [1, 3, 4])


pairs = st.lists(st.tuples(st.sampled_from([0.1, 0.5, 0.6, 1.0]), st.booleans()), max_size=60)


@given(pairs)
def test_auroc_and_cross_entropy_are_their_scalar_loops(found):
    scores = np.array([s for s, _ in found])
    labels = np.array([y for _, y in found], dtype=bool)
    ups, downs = scores[labels], scores[~labels]
    if min(len(ups), len(downs)) < 10:
        assert auroc(scores, labels) is None
    else:
        wins = sum((u > d) + (u == d) / 2 for u in ups for d in downs)
        assert auroc(scores, labels) == pytest.approx(wins / (len(ups) * len(downs)))
    losses = [-math.log(min(s, 1 - 1e-7) if y else max(1 - s, 1e-7)) for s, y in found]
    wanted = sum(losses) / len(losses) if losses else 0.0
    assert cross_entropy(scores, labels) == pytest.approx(wanted)


def test_the_baseline_is_the_rate_of_the_training_folds():
    """Fold 0's is the rate of folds 2, 3, 4: fold 1 chose its checkpoint."""
    accepted = [1, 0, 1, 0, 0]
    blocks = LoggedBlocks.of("marginal", [[0.5]] * 5, accepted, folds=range(5))
    assert baseline(blocks)[:, 0].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2 / 3, 1 / 3])
    (found,) = position_metrics(blocks)
    assert (found.position, found.count, found.positives, found.auroc) == (1, 5, 2, None)
    guesses = [1 / 3, 2 / 3, 1 / 3, 1 / 3, 2 / 3]  # of what came true
    assert found.baseline_bce == pytest.approx(-sum(map(math.log, guesses)) / 5)
    assert found.bce == pytest.approx(math.log(2))


def test_good_scores_beat_the_baseline():
    for metrics in position_metrics(correlated()):
        assert metrics.bce < metrics.baseline_bce
        assert metrics.auroc is not None
        assert metrics.auroc > 0.7


@SIGNALS
def test_shuffling_keeps_positions_and_collapses_prefixes(signal):
    blocks = correlated(signal)
    found = permutation_test(blocks, 0.9, 0.8, repetitions=5)
    assert len(found.repetitions) == 5
    assert found.before > 2.5
    assert found.after < found.before / (1.5 if signal == "conditional" else 2)
    assert found == permutation_test(blocks, 0.9, 0.8, repetitions=5)
    assert found.after == np.mean(found.repetitions)


@SIGNALS
def test_pairs_stay_together_and_in_their_position(signal):
    blocks = correlated(signal)
    after = permuted(blocks, np.random.default_rng(0))
    for j in range(6):
        rows = blocks.counts[:, j]
        before = sorted(zip(blocks.scores[rows, j], blocks.survives[rows, j], strict=True))
        assert before == sorted(zip(after.scores[rows, j], after.survives[rows, j], strict=True))
        assert (after.scores[~rows, j] == blocks.scores[~rows, j]).all(), "what does not count"
    assert (after.scores != blocks.scores).any()
    for mine, its in zip(position_metrics(blocks), position_metrics(after), strict=True):
        assert (mine.bce, mine.auroc) == (its.bce, its.auroc)


def test_gates_alone_by_hand():
    """Product .99 * .91 * .99 = .892; the local gate alone lets two more through."""
    scores = [[0.99, 0.91, 0.99, 0.92], [0.5, 0.99]]
    blocks = LoggedBlocks.of("conditional", scores, [1, 2])
    full, local, prefix = gate_ablation(blocks, 0.9, 0.9)
    assert (full.gates, full.skipped_blocks, full.skipped, full.agreed, full.full) == (
        "full",
        1,
        2,
        1,
        0,
    )
    assert (local.skipped, local.strict_token) == (4, 0.25)
    assert (prefix.gates, prefix.skipped) == ("prefix", 2)
    (few, _, _) = gate_ablation(blocks, 0.9, 0.9, min_prefix=3)
    assert (few.skipped_blocks, few.strict_token, few.full_prefix) == (0, None, None)
    assert local.full_prefix == 0


@pytest.mark.parametrize(("target_cost", "wanted"), [(3.0, 2.0), (1.0, 4.0)])
def test_break_even_vectors(target_cost, wanted):
    assert break_even(8.0, 1.0, target_cost) == wanted


def test_break_even_needs_costs():
    with pytest.raises(ProtocolError, match="Measure a draft block and a target pass"):
        break_even(8.0, 0.0, 0.0)


def test_blocks_are_written_and_read(tmp_path):
    lines = [
        {"signal": "raw", "scores": [0.5, 0.25], "accepted": 1, "fold": 0, "prompt": "a"},
        {"signal": "raw", "scores": [0.5], "accepted": 0, "fold": 1, "prompt": "b"},
    ]
    write_blocks(tmp_path / "raw.jsonl", lines)
    found = read_blocks(tmp_path / "raw.jsonl")
    assert found.scores.tolist() == [[0.5, 0.25], [0.5, 0]]
    assert (found.signal, found.folds.tolist(), found.accepted.tolist()) == ("raw", [0, 1], [1, 0])
    write_blocks(tmp_path / "mixed.jsonl", [*lines, lines[0] | {"signal": "marginal"}])
    for name in ("none.jsonl", "mixed.jsonl"):
        with pytest.raises(RunDirError, match="Expected logged blocks of one signal"):
            read_blocks(tmp_path / name)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scores": [0.5, float("nan")]}, "line 2: scores.1"),
        ({"scores": [0.5, -0.1]}, "line 2: scores.1"),
        ({"scores": ["high"]}, "line 2: scores.0"),
        ({"scores": None}, "line 2: scores"),
        ({"accepted": None}, "line 2: accepted"),
        ({"accepted": -1}, "line 2: accepted"),
        ({"fold": "x"}, "line 2: fold"),
        ({"signal": "row"}, "line 2: signal"),
    ],
)
def test_a_damaged_line_of_a_log_is_named(tmp_path, changes, said):
    line = {"signal": "raw", "prompt": "a", "fold": 0, "accepted": 1, "scores": [0.5, 0.25]}
    write_blocks(tmp_path / "raw.jsonl", [line, line | changes])
    with pytest.raises(RunDirError, match=f"raw.jsonl, {said}"):
        read_blocks(tmp_path / "raw.jsonl")


@pytest.mark.parametrize("damage", [b"\xff", b"{", b"1", b"[]"])
def test_a_file_that_is_no_log_is_told_in_few_words(tmp_path, damage):
    file = tmp_path / "raw.jsonl"
    file.write_bytes(b'{"signal":"raw","fold":0,"accepted":0,"scores":[0.5]}\n' * 1000 + damage)
    with pytest.raises(RunDirError, match="line 1001") as refused:
        read_blocks(file)
    assert len(str(refused.value)) < 500
    file.write_bytes(b"")
    with pytest.raises(RunDirError, match="Got an empty file"):
        read_blocks(file)


def test_no_blocks_are_no_trouble():
    none = LoggedBlocks.of("raw", [[]], [0])
    assert feasible_lengths(none, 0.5, 0.5).tolist() == [0]
    assert position_metrics(none) == ()
