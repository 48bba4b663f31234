"""What lenity raises when a caller can do something about it.

LenityError
├── ConfigError            a setting, knob or prompt that cannot be used   (also ValueError)
├── RegistryError          a name nobody registered                        (also KeyError)
├── ShapeError             tensors that do not fit together                (also ValueError)
├── CacheError             a cache that cannot hold or roll back what was asked
├── OutOfMemoryError       a buffer that could not be allocated            (also MemoryError)
├── NonFiniteError         NaN or infinite logits where a number was needed (also ArithmeticError)
├── ModelMismatchError     two models, or a model and a checkpoint, that do not belong together
│   └── UnsupportedModelError  an architecture whose verification cannot be made exact
├── ProtocolError          a measurement that would not be comparable
├── RunDirError            a run directory that is damaged or taken
└── MissingExtraError      an optional dependency that is not installed    (also ImportError)

Every message has three parts: what was expected, what came, what to do.
"""

from __future__ import annotations


class LenityError(Exception):
    """Base of everything lenity raises on purpose.

    ``generations``: where decoding raised it, what was committed to every request before.
    """

    generations: list[object] | None = None


class ConfigError(LenityError, ValueError):
    """A setting, knob or prompt that cannot be used."""


class RegistryError(LenityError, KeyError):
    """A name that is in no registry."""

    def __str__(self) -> str:
        """Return the message itself, not KeyError's quoted repr of it."""
        return str(self.args[0]) if self.args else ""


class ShapeError(LenityError, ValueError):
    """Tensors whose shapes do not fit together."""


class CacheError(LenityError):
    """A cache that cannot hold or roll back what was asked of it."""


class OutOfMemoryError(LenityError, MemoryError):
    """A buffer that could not be allocated; the message names it and its size."""


class NonFiniteError(LenityError, ArithmeticError):
    """NaN or infinite logits where a decision needed a number."""


class ModelMismatchError(LenityError):
    """Two models, or a model and a checkpoint, that do not belong together."""


class UnsupportedModelError(ModelMismatchError):
    """An architecture for which verify-then-rollback cannot be made exact."""


class ProtocolError(LenityError):
    """A measurement whose arms would not be comparable."""


class RunDirError(LenityError):
    """A run directory that is damaged, foreign or already taken."""


class MissingExtraError(LenityError, ImportError):
    """An optional dependency that is not installed; the message names the extra."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory ran out: Python's, or torch's on any device.

    torch is not imported for it: its own class is known by name, and on a CPU it raises a
    RuntimeError that only its text tells from others.
    """
    is_by_name = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return is_by_name or "allocate memory" in str(error) or "not enough memory" in str(error)
