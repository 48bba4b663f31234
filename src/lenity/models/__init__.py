"""Language models behind two small faces; transformers is imported when a model is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lenity.models.causal import CausalLM
    from lenity.models.loading import load

__all__ = ["CausalLM", "load"]


def __getattr__(name: str) -> Any:
    """Import ``CausalLM`` and ``load`` on first use, and transformers with them."""
    if name == "CausalLM":
        from lenity.models.causal import CausalLM

        return CausalLM
    if name == "load":
        from lenity.models.loading import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
