import pytest

from lenity.engine import clock as clock_module
from lenity.engine.clock import Clock


@pytest.fixture
def hands(monkeypatch):
    """Let the test say what time it is: each reading is the next number it wrote down."""

    def turn(*readings):
        monkeypatch.setattr(clock_module, "perf_counter", iter(readings).__next__)

    return turn


def test_a_stage_inside_another_pauses_it(hands):
    hands(0.0, 1.0, 3.0, 7.0, 15.0, 20.0)
    clock = Clock()  # at 0
    with clock.stage("target"), clock.stage("verify"):  # from 1, and from 3 to 7
        pass  # target again, to 15
    seconds = clock.seconds()
    assert (seconds.target, seconds.verify) == (2.0 + 8.0, 4.0)
    assert seconds.total == 14.0  # what passed between stages belongs to none
    assert (seconds.draft, seconds.commit) == (0.0, 0.0)


def test_a_stage_entered_twice_adds_up(hands):
    hands(0.0, 1.0, 2.0, 10.0, 13.0, 14.0)
    clock = Clock()
    for _ in range(2):
        with clock.stage("draft"):
            pass
    assert clock.seconds().draft == 4.0


def test_an_open_stage_counts_so_far(hands):
    hands(0.0, 1.0, 4.0, 9.0, 9.0)
    clock = Clock()
    with clock.stage("commit"):
        assert clock.seconds().commit == 3.0
    assert clock.seconds().commit == 8.0


def test_an_error_closes_its_stage(hands):
    hands(0.0, 1.0, 2.0, 50.0, 50.0, 51.0, 52.0)
    clock = Clock()
    with pytest.raises(ZeroDivisionError), clock.stage("draft"):
        raise ZeroDivisionError
    with clock.stage("target"):
        pass
    seconds = clock.seconds()
    assert (seconds.draft, seconds.target) == (1.0, 0.0)
