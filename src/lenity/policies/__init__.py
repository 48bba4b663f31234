"""Verification policies: pure functions of the target's scores, and their registry."""

from __future__ import annotations

from typing import Any

from lenity.policies.base import Policy
from lenity.registry import Registry

POLICIES = Registry(
    "policy",
    {
        "asd": "lenity.policies.asd:Asd",
        "fuzzy": "lenity.policies.fuzzy:Fuzzy",
        "lenience": "lenity.policies.lenience:Lenience",
        "margin": "lenity.policies.margin:Margin",
        "priced": "lenity.policies.priced:Priced",
        "strict": "lenity.policies.strict:Strict",
        "top_k": "lenity.policies.top_k:TopK",
    },
)


def policy(spec: str | Policy, **knobs: Any) -> Policy:
    """Return the policy a spec names, e.g. ``policy("asd:budget=8,gate=0.25,block_cap=2")``.

    Knobs may also be given by keyword. Raises RegistryError for an unknown name and ConfigError
    for an unknown or unusable knob.
    """
    return POLICIES.build(Policy, spec, knobs)


__all__ = ["POLICIES", "Policy", "policy"]
