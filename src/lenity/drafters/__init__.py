"""Drafters: whatever proposes tokens, and their registry."""

from __future__ import annotations

from typing import Any

from lenity.drafters.base import Drafter
from lenity.registry import Registry

DRAFTERS = Registry(
    "drafter",
    {
        "autoregressive": "lenity.drafters.autoregressive:Autoregressive",
        "dflash": "lenity.drafters.dflash:DFlash",
        "dspark": "lenity.drafters.dspark:DSpark",
        "eagle3": "lenity.drafters.eagle3:Eagle3",
        "masked_diffusion": "lenity.drafters.masked_diffusion:MaskedDiffusion",
        "medusa": "lenity.drafters.medusa:Medusa",
        "ngram": "lenity.drafters.ngram:Ngram",
        "self_speculative": "lenity.drafters.self_speculative:SelfSpeculative",
    },
)


def drafter(spec: str | Drafter, **knobs: Any) -> Drafter:
    """Return the drafter a spec names, e.g. ``drafter("ngram:max_match=4")``.

    Knobs may also be given by keyword. Raises RegistryError for an unknown name and ConfigError
    for an unknown or unusable knob.
    """
    return DRAFTERS.build(Drafter, spec, knobs)


__all__ = ["DRAFTERS", "Drafter", "drafter"]
