"""Verifier skipping: whether a draft is committed without a target pass; rules and registry."""

from __future__ import annotations

from typing import Any

from lenity.registry import Registry
from lenity.skipping.base import SkipRule

SKIP_RULES = Registry(
    "skip rule",
    {
        "conditional": "lenity.skipping.signals:Conditional",
        "marginal": "lenity.skipping.signals:Marginal",
        "periodic": "lenity.skipping.periodic:Periodic",
        "raw": "lenity.skipping.signals:Raw",
    },
)


def skip_rule(spec: str | SkipRule, **knobs: Any) -> SkipRule:
    """Return the rule a spec names, e.g. ``skip_rule("raw:local=0.9,prefix=0.93,min_prefix=6")``.

    Knobs may also be given by keyword. Raises RegistryError for an unknown name and ConfigError
    for an unknown or unusable knob.
    """
    return SKIP_RULES.build(SkipRule, spec, knobs)


__all__ = ["SKIP_RULES", "SkipRule", "skip_rule"]
