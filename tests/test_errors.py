"""The exception tree: one base, builtin cousins, and the drawing at the top of the module."""

import inspect

import pytest
import torch

from lenity import errors
from lenity.errors import LenityError, RegistryError, is_out_of_memory

CLASSES = [cls for _, cls in inspect.getmembers(errors, inspect.isclass)]

COUSINS = {
    "ConfigError": ValueError,
    "RegistryError": KeyError,
    "ShapeError": ValueError,
    "OutOfMemoryError": MemoryError,
    "NonFiniteError": ArithmeticError,
    "UnsupportedModelError": errors.ModelMismatchError,
    "MissingExtraError": ImportError,
}
"""What else a caller who knows Python, but not lenity, would catch."""


@pytest.mark.parametrize("cls", CLASSES)
def test_one_base_catches_all(cls):
    assert issubclass(cls, LenityError)
    assert cls.__doc__
    with pytest.raises(LenityError, match="a message"):
        raise cls("a message")


@pytest.mark.parametrize(("name", "cousin"), COUSINS.items())
def test_a_builtin_name_catches_too(name, cousin):
    assert issubclass(getattr(errors, name), cousin)


def test_the_drawing_names_every_class_under_its_parent():
    lines = errors.__doc__.splitlines()
    drawn = {line.strip("│├└─ ").split()[0]: line for line in lines if "── " in line}
    assert set(drawn) == {cls.__name__ for cls in CLASSES} - {"LenityError"}
    for cls in CLASSES:
        if cls is not LenityError:
            is_nested = drawn[cls.__name__].startswith("│")
            assert is_nested == (cls.__bases__[0] is not LenityError)


def test_a_missing_name_reads_as_a_sentence():
    """KeyError would print the repr of its argument, quotes and all."""
    assert str(RegistryError("Unknown policy 'asdd'.")) == "Unknown policy 'asdd'."
    assert str(RegistryError()) == ""


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("memory"), False),
    ],
)
def test_running_out_of_memory_is_told_from_other_errors(error, is_memory):
    assert is_out_of_memory(error) == is_memory


def test_a_real_allocation_that_fails_is_told():
    with pytest.raises(RuntimeError) as caught:
        torch.zeros(1 << 45)
    assert is_out_of_memory(caught.value)
