"""Relaxed speculative decoding, accountable for what it gives away.

Names are imported when first used: ``import lenity`` loads neither torch nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lenity.drafters import drafter
    from lenity.engine.decode import Decoder
    from lenity.errors import LenityError
    from lenity.models.loading import load
    from lenity.policies import policy
    from lenity.requests import GenerationSettings, Request
    from lenity.types import Generation

__version__ = "0.1.0"

_HOMES = {
    "Decoder": "lenity.engine.decode",
    "Generation": "lenity.types",
    "GenerationSettings": "lenity.requests",
    "LenityError": "lenity.errors",
    "Request": "lenity.requests",
    "drafter": "lenity.drafters",
    "load": "lenity.models.loading",
    "policy": "lenity.policies",
}

__all__ = [
    "Decoder",
    "Generation",
    "GenerationSettings",
    "LenityError",
    "Request",
    "drafter",
    "load",
    "policy",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'lenity' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*__all__, "__version__"])
