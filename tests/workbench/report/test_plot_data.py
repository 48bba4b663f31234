"""What plots refuse to hold."""

import pytest
from pydantic import ValidationError

from lenity.workbench.report.plot_data import Frontier, OpportunityOfTask, SweepPoint, middle
from tests.workbench.report.sample import interval


def test_the_middle_of_an_estimate():
    assert middle(0.5) == 0.5
    assert middle(interval(0.5, 0.25)) == 0.5


@pytest.mark.parametrize("shares", [((0.1, 0.2),), ((0.1,), (0.2,)), ((0.1, 0.2), (0.3,))])
def test_an_opportunity_map_is_a_grid(shares):
    with pytest.raises(ValidationError, match="expected 2 rows of 2 shares"):
        OpportunityOfTask(
            task="toy", taus=(1.0, 2.0), horizons=(0, 1), shares=shares, num_mismatches=9
        )


def test_a_plot_without_anything_is_none():
    with pytest.raises(ValidationError):
        Frontier(protocol="fixed work", points=())


def test_a_knob_is_a_number_or_a_word():
    assert SweepPoint(x="∞", y=1.0).x == "∞"
    assert SweepPoint.model_validate_json('{"x": 4, "y": 1.0}').x == 4.0
    with pytest.raises(ValidationError):
        SweepPoint(x=float("inf"), y=1.0)
