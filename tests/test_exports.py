"""What is public is listed, sorted and real."""

import importlib
import pkgutil
import tomllib
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

import lenity

ROOT = Path(__file__).parent.parent
WITH_EXTRAS = ("lenity.integrations.",)
"""Modules that need a package lenity does not depend on."""
NAMES = [
    info.name
    for info in pkgutil.walk_packages(lenity.__path__, "lenity.")
    if not info.name.startswith(WITH_EXTRAS) and not info.name.endswith(".__main__")
]


def test_public_names_are_sorted():
    assert list(lenity.__all__) == sorted(set(lenity.__all__))


@pytest.mark.parametrize("name", getattr(lenity, "__all__", ["__all__"]))
def test_public_name_is_real(name: str):
    assert getattr(lenity, name) is not None
    assert name in dir(lenity)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        lenity.no_such_name  # noqa: B018 (the look-up is the test)


@pytest.mark.parametrize("name", NAMES)
def test_module_imports_and_lists_only_what_it_has(name: str):
    module = importlib.import_module(name)
    listed = getattr(module, "__all__", [])
    assert len(listed) == len(set(listed))
    assert [n for n in listed if not hasattr(module, n)] == []


def test_the_command_is_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert version("lenity") == project["version"]
    (command,) = entry_points(group="console_scripts", name="lenity")
    assert callable(command.load())
