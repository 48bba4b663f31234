"""Equal laws position by position, P(L >= K) rho against P(L >= K) rho^K as a prefix."""

import numpy as np
import pytest

from lenity.errors import ProtocolError
from lenity.workbench.proposition import simulate

LAW = [0.1, 0.1, 0.2, 0.3, 0.3]


def test_frequencies_are_those_of_the_proposition():
    found, rho = simulate(LAW, 0.6, num_blocks=20_000), 0.6
    tails = [0.9, 0.8, 0.6, 0.3]
    assert found.shared.expected == pytest.approx([t * rho for t in tails])
    assert found.independent.expected == pytest.approx(
        [t * rho**k for k, t in enumerate(tails, start=1)]
    )
    for half in (found.shared, found.independent):
        for frequency, p in zip(half.frequencies, half.expected, strict=True):
            assert abs(frequency - p) < 5 * np.sqrt(p * (1 - p) / 20_000)


def test_positions_do_not_tell_them_apart():
    found = simulate(LAW, 0.6, num_blocks=20_000)
    for one, other in zip(found.shared.positions, found.independent.positions, strict=True):
        assert one.positives == other.positives
        assert one.bce == pytest.approx(other.bce, abs=0.03)
        assert one.auroc == pytest.approx(other.auroc, abs=0.02)


def test_limits():
    sure = simulate(LAW, 1.0, num_blocks=500)
    assert sure.shared == sure.independent
    assert simulate(LAW, 0.0, num_blocks=500).shared.frequencies == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("law", "rho", "low"),
    [([0.5, 0.4], 0.5, 0.1), (LAW, 1.5, 0.1), (LAW, 0.5, 0.99), ([1.0], 0.5, 0.0)],
)
def test_what_is_no_law_is_refused(law, rho, low):
    with pytest.raises(ProtocolError, match="Expected probabilities of L"):
        simulate(law, rho, low=low, num_blocks=5)
