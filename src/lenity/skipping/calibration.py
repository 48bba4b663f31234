"""Temperatures for a drafter's confidence: what calibrates the product of it, as a file.

A conditional survival c_j that says too much is mended by  sigmoid(logit(c_j) / t_j),  one
temperature a position, fitted one after the other so that  prod_{i<=k} c_i  is how often strict
accepts k tokens (sequential temperature scaling, DeepSeek-AI 2026, "DSpark"); position j beyond the
last takes the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from lenity.registry import read_file

Temperature = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Calibration(BaseModel):
    """Temperatures, and what they were fitted on."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    version: Literal[1] = 1
    """Of this format"""
    temperatures: tuple[Temperature, ...] = Field(min_length=1)
    """Divide the logits, position by position; finite, above 0"""
    drafter: str = ""
    """Spec of the drafter whose confidence they are for"""
    blocks: int = Field(default=0, ge=0)
    """Drafted blocks they were fitted on"""
    error_before: float | None = None
    """Expected calibration error of the product over drafted positions, as the drafter says it"""
    error_after: float | None = None
    """The same with temperatures fitted on the other folds"""


def read_calibration(file: str | Path) -> Calibration:
    """Return the calibration in a file. Raises ConfigError."""
    return read_file(
        Calibration,
        file,
        expected="temperatures of a drafter's confidence",
        advice="Make them with `lenity train survival --calibrate`, or correct the path.",
    )


def tempered(
    confidence: Float[Tensor, "B G"], temperatures: Sequence[float]
) -> Float[Tensor, "B G"]:
    """Return sigmoid(logit(c_j) / t_j), float64; 0 and 1 stay, what is no probability is NaN."""
    gamma = confidence.shape[-1]
    padded = [*temperatures, *[temperatures[-1]] * gamma][:gamma]
    divisor = torch.tensor(padded, dtype=torch.float64, device=confidence.device)
    return (confidence.to(torch.float64).logit() / divisor).sigmoid()
