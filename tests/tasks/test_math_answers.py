import importlib.util
import threading

import pytest

from lenity.errors import ConfigError, MissingExtraError
from lenity.tasks import math_answers
from lenity.tasks.math_answers import Comparer, check_installed, comparer

ENDLESS = r"\boxed{7^{7^{7^{7}}}}"


@pytest.fixture(scope="module")
def shared():
    made = Comparer()
    yield made
    made.close()


def test_equal_unequal_and_nothing(shared):
    assert shared.compare("2", r"\boxed{4/2}").is_equal
    said = shared.compare("2", r"\boxed{3}")
    assert (said.is_equal, said.read, said.detail) == (False, "3", "unequal")
    assert shared.compare("2", "no idea").detail == "nothing to compare was found"


def test_a_reference_that_is_no_mathematics_is_an_error(shared):
    with pytest.raises(ConfigError, match="reference in LaTeX"):
        shared.compare("", "2")


def test_threads_other_than_the_main_one_may_ask(shared):
    said = {}

    def ask(number):
        said[number] = shared.compare(str(number), rf"\boxed{{{number}.0}}").is_equal

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == dict.fromkeys(range(4), True)


def test_math_verifys_own_alarm_ends_what_it_can():
    hasty = Comparer(alarm_seconds=1)
    try:
        said = hasty.compare("1", ENDLESS)
        assert (said.is_equal, said.detail) == (False, "unequal")
    finally:
        hasty.close()


def test_what_outlives_the_alarm_ends_with_its_process_and_the_next_one_is_compared():
    strict = Comparer(alarm_seconds=600, kill_seconds=1.0)
    try:
        assert strict.compare("2", "$2$").is_equal
        said = strict.compare("1", ENDLESS)
        assert (said.is_equal, said.detail) == (False, "comparison ended: too long")
        assert strict._process is None
        assert strict.compare("2", "$2$").is_equal
    finally:
        strict.close()


def test_a_process_that_died_is_replaced(shared):
    assert shared.compare("2", "$2$").is_equal
    shared._process.kill()
    shared._process.wait()
    assert shared.compare("2", "$2$").is_equal


def test_one_comparer_a_process():
    assert comparer() is comparer()
    comparer().close()


def test_the_missing_extra_is_named(monkeypatch):
    check_installed()
    monkeypatch.setattr(math_answers, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install "lenity\[tasks\]"'):
        check_installed()
    assert importlib.util.find_spec("math_verify") is not None
