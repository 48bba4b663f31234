"""Paths as people write them."""

from pathlib import Path

import pytest

from lenity.errors import ConfigError
from lenity.paths import expanded


def test_a_home_is_put_in(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert expanded("~/model") == Path("/home/me/model")
    assert expanded(Path("~")) == Path("/home/me")
    assert expanded("org/model") == Path("org/model")


def test_a_user_who_is_not_there_is_refused():
    with pytest.raises(ConfigError, match=r"a home here, got '~nouser/model'\. Correct the name"):
        expanded("~nouser/model")
