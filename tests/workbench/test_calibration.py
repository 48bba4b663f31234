"""Reliability bins by hand, and temperatures that undo a known distortion."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lenity.workbench.calibration import (
    TEMPERATURES,
    expected_calibration_error,
    fit_confidence,
    fit_temperatures,
    reliability,
    sigmoid,
)


def test_bins_and_their_error_by_hand():
    scores, labels = [0.1, 0.2, 0.5, 0.9, 1.0], [0, 1, 1, 1, 1]
    bins = reliability(np.array(scores), np.array(labels), num_bins=4)
    assert [(b.low, b.high, b.count) for b in bins] == [(0, 0.25, 2), (0.5, 0.75, 1), (0.75, 1, 2)]
    assert [b.mean_score for b in bins] == pytest.approx([0.15, 0.5, 0.95])
    assert [b.rate for b in bins] == [0.5, 1, 1]
    error = (2 * 0.35 + 1 * 0.5 + 2 * 0.05) / 5
    assert expected_calibration_error(
        np.array(scores), np.array(labels), num_bins=4
    ) == pytest.approx(error)
    assert expected_calibration_error(np.array([]), np.array([])) == 0


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=30))
def test_bins_hold_every_pair_once(pairs):
    scores, labels = (np.array([p[i] for p in pairs], dtype=float) for i in (0, 1))
    bins = reliability(scores, labels)
    assert sum(b.count for b in bins) == len(pairs)
    assert sum(b.rate * b.count for b in bins) == pytest.approx(labels.sum())
    assert all(b.low - 1e-9 <= b.mean_score <= b.high + 1e-9 for b in bins)


def drawn(num=20_000, gamma=3):
    """True conditional survivals and lengths drawn from them."""
    rng = np.random.default_rng(7)
    logits = rng.normal(1.5, 1.5, (num, gamma))
    survives = rng.random((num, gamma)) < sigmoid(logits)
    accepted = np.logical_and.accumulate(survives, 1).sum(1)
    return logits, np.full(num, gamma), accepted


def test_temperatures_undo_a_known_distortion():
    logits, lengths, accepted = drawn()
    distortion = np.array([2.0, 0.5, 1.0])
    found = fit_temperatures(logits * distortion, lengths, accepted)
    assert found == pytest.approx(distortion, rel=0.25)
    product = sigmoid(logits * distortion / np.array(found)).cumprod(1)
    before = sigmoid(logits * distortion).cumprod(1)
    for k in range(3):
        wanted = accepted > k
        after = expected_calibration_error(product[:, k], wanted)
        assert after < 0.015
        assert after <= expected_calibration_error(before[:, k], wanted) + 1e-12


def test_a_position_is_fitted_on_the_blocks_that_have_it():
    logits, _, accepted = drawn(4000, 2)
    longer = np.arange(4000) % 2 == 0
    short = np.where(longer, 2, 1)
    junk = np.where(longer[:, None], logits, np.array([0, 99.0]) + logits * np.array([1, 0]))
    found = fit_temperatures(junk, short, np.minimum(accepted, short))
    again = fit_temperatures(logits, short, np.minimum(accepted, short))
    assert found == again
    assert len(fit_temperatures(logits, np.ones(4000, dtype=int), np.minimum(accepted, 1))) == 1


def test_of_equal_temperatures_the_one_nearest_to_1_is_taken():
    found = fit_temperatures(np.zeros((4, 1)), np.ones(4, dtype=int), np.array([0, 1, 0, 1]))
    assert found == pytest.approx((1.0,))
    assert min(TEMPERATURES) == pytest.approx(0.2)


def test_sigmoid_does_not_overflow():
    assert sigmoid(np.array([-1e4, 0.0, 1e4])).tolist() == [0.0, 0.5, 1.0]


def test_a_drafters_confidence_is_mended_on_blocks_it_did_not_see():
    logits, lengths, accepted = drawn()
    folds = np.arange(len(lengths)) % 5
    found = fit_confidence(sigmoid(logits * 2.0), lengths, accepted, folds)
    assert found.temperatures == pytest.approx([2.0] * 3, rel=0.25)
    assert found.blocks == len(lengths)
    assert found.error_after < 0.015 < found.error_before


def test_one_fold_judges_itself():
    logits, lengths, accepted = drawn(num=2_000)
    folds = np.zeros_like(lengths)
    found = fit_confidence(sigmoid(logits * 2.0), lengths, accepted, folds)
    product = sigmoid(logits * 2.0 / np.array(found.temperatures)).cumprod(1)
    survives = accepted[:, None] > np.arange(3)
    wanted = expected_calibration_error(product, survives)
    assert found.error_after == pytest.approx(wanted, abs=1e-3)


def test_certain_confidences_have_temperatures_too():
    """A confidence of 1 is a very large one; ragged blocks count where they are."""
    scores = np.array([[1.0, 1.0], [1.0, 0.0], [0.9, 0.8]])
    found = fit_confidence(scores, np.array([2, 1, 2]), np.array([1, 1, 2]), np.array([0, 1, 1]))
    assert len(found.temperatures) == 2
    assert np.isfinite([found.error_before, found.error_after]).all()


@pytest.mark.parametrize("scores", [np.zeros((2, 3)), np.zeros((2, 0))])
def test_a_drafter_without_confidence_has_no_temperatures(scores):
    lengths = np.array([3, 3]) if scores.size else np.array([0, 0])
    assert fit_confidence(scores, lengths, np.array([0, 0]), np.array([0, 1])) is None
