"""Trying, before a model is used, whether its rejected tokens can be forgotten.

The probe verifies a block, rolls part of it back, goes on, and compares with a forward that never
had a cache. It runs on a twin: the same architecture with few, narrow layers of random weights and
a window of 8, so that every kind of layer and the edge of the window take part. The mask form is
whatever passes; nothing is decided by a model's name.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lenity.errors import LenityError, UnsupportedModelError
from lenity.models.backbone import Backbone, Head, keep_layers, layer_kinds, text_config
from lenity.models.cache import SlotCache
from lenity.models.masks import MaskForm, Reach

TOLERANCE = 1e-4
"""Largest |logit difference| / largest |logit| that counts as equal in float32."""
HALF_TOLERANCE = 5e-2
"""The same where only the real model in bfloat16 or float16 could be tried."""
TWIN_WINDOW = 8
"""Sliding window of the twin: shorter than its prompts, so that something falls out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeVerdict:
    """What the probe found out about a model.

    ``error`` is the largest logit difference relative to the largest logit; ``sensitivity`` the
    same when the rollback is left out, which must be far larger for the test to mean anything.
    ``on_twin`` is False when the real model had to be tried.
    """

    model_type: str
    layer_kinds: tuple[str, ...]
    mask_form: MaskForm
    error: float
    sensitivity: float
    on_twin: bool
    seconds: float


_VERDICTS: dict[str, ProbeVerdict] = {}


def probe(module: nn.Module) -> ProbeVerdict:
    """Return the verdict on a model; once per architecture and config in a process.

    Raises UnsupportedModelError when verify-then-rollback does not equal recomputing.
    """
    key = _key(module)
    if key not in _VERDICTS:
        _refuse_recurrent(module)
        _VERDICTS[key] = _examine(module)
    return _VERDICTS[key]


def _key(module: nn.Module) -> str:
    config = module.config
    return f"{type(module).__name__} {config._attn_implementation} {config.to_json_string()}"
