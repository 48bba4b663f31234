"""One document a signal: its parts are those of the functions that make them."""

import numpy as np
import pytest

from lenity.workbench.calibration import expected_calibration_error
from lenity.workbench.diagnosis import SignalGates, diagnose
from lenity.workbench.diagnostics import LoggedBlocks, gate_ablation, permutation_test
from tests.workbench.test_diagnostics import SIGNALS, correlated


@SIGNALS
def test_a_diagnosis_is_its_parts(signal):
    blocks = correlated(signal)
    found = diagnose(blocks, SignalGates(signal=signal, local=0.9, prefix=0.8), repetitions=3)
    assert found.signal == signal
    assert found.permutation == permutation_test(blocks, 0.9, 0.8, repetitions=3)
    assert found.ablation == gate_ablation(blocks, 0.9, 0.8)
    assert found.bce == np.mean([p.bce for p in found.positions])
    assert found.bce < found.baseline_bce, "easy blocks are told from hard ones"
    assert 0.5 < found.auroc < 1
    assert sum(b.count for b in found.reliability) == blocks.counts.sum()
    assert sum(b.count for b in found.prefix_reliability) == blocks.lengths.sum()
    assert found.p_value == 0.25, "no permutation passes as much"
    assert found.mean_accepted == blocks.accepted.mean()


def test_without_gates_the_published_ones_are_taken():
    gates = [diagnose(correlated(s), repetitions=1).gates for s in ("raw", "conditional")]
    assert [(own.local, own.prefix) for own in gates] == [(0.9, 0.93), (0.9, 0.9)]


def test_prefixes_are_calibrated_as_prefixes():
    """Scores .5 and .5 of a block that strict accepts whole: C = .5, .25 against 1, 1."""
    found = diagnose(LoggedBlocks.of("conditional", [[0.5, 0.5]], [2]), repetitions=1)
    assert found.prefix_calibration_error == pytest.approx((0.5 + 0.75) / 2)
    assert found.prefix_calibration_error == expected_calibration_error(
        np.array([0.5, 0.25]), np.array([1, 1])
    )
    assert found.auroc is None


def test_a_permutation_tells_its_lengths():
    blocks = correlated()
    found = permutation_test(blocks, 0.9, 0.8, repetitions=2)
    for mean, shares in (
        (found.before, found.passing_before),
        (found.after, found.passing_after),
    ):
        assert sum(shares) == pytest.approx(mean), "E K = sum of P(K >= k)"
        assert list(shares) == sorted(shares, reverse=True)
