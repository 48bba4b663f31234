"""Survival predictors: from a drafted position to the probability that strict would get past it.

With L the draft tokens that strict would accept and F what is known of the draft (features.py),
    marginal     a_j = P(L >= j | F),
    conditional  s_j = P(L >= j | L >= j-1, F),
estimated by a small network (arXiv 2608.14787): inputs standardised, constant ones 0, three hidden
layers, GELU. A conditional predictor may hold temperatures, one a position, that calibrate the
cumulative product of s; position j beyond the last takes the last.

A predictor is a folder: predictor.json says what it is, predictor.safetensors holds the weights.
Both are read here without further packages, for a rule runs wherever torch runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from torch import Tensor, nn

from lenity.errors import ConfigError, ModelMismatchError
from lenity.registry import explain_file
from lenity.skipping.features import SCALARS, hidden_features, scalar_features
from lenity.types import Draft

DESCRIPTION, WEIGHTS = "predictor.json", "predictor.safetensors"
NUM_HIDDEN_LAYERS = 3
DROPOUT = 0.1
"""After the first two hidden layers, in training only."""

Estimand = Literal["marginal", "conditional"]


class Description(BaseModel):
    """What a predictor estimates, what it reads, and where it comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    version: Literal[1] = 1
    """Of this format"""
    estimand: Estimand
    """marginal: P(L >= j); conditional: P(L >= j given L >= j-1)"""
    scalars: tuple[str, ...] = SCALARS
    """Names of the numbers it reads, in order"""
    hidden_size: int = Field(default=0, ge=0)
    """Width of the drafter's state; 0 reads the numbers alone"""
    width: int = Field(default=256, ge=1)
    """Units of a hidden layer"""
    temperatures: tuple[float, ...] = ()
    """Divide the logits, position by position; none leaves them"""
    drafter: str = ""
    """Spec of the drafter whose drafts it learned from"""
    validation_loss: float | None = None
    """Binary cross-entropy on the validation fold, nats a position"""

    @field_validator("temperatures")
    @classmethod
    def _check_temperatures(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0 < t < float("inf") for t in value):
            raise ValueError(f"expected finite temperatures above 0, got {value}")
        return value


class SurvivalPredictor(nn.Module):
    """A network over draft positions; ``name`` is where it was read from."""

    mean: Tensor
    scale: Tensor

    def __init__(self, description: Description, *, name: str = "loaded") -> None:
        """Start with every weight 0; training draws them, loading reads them."""
        super().__init__()
        self.description, self.name = description, name
        sizes = [self.input_size, *[description.width] * NUM_HIDDEN_LAYERS, 1]
        self.layers = nn.ModuleList(nn.utils.skip_init(nn.Linear, i, o) for i, o in pairwise(sizes))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        self.register_buffer("mean", torch.zeros(self.input_size))
        self.register_buffer("scale", torch.ones(self.input_size))

    @property
    def input_size(self) -> int:
        """Numbers read of a position: the drafter's state, then the scalars."""
        return self.description.hidden_size + len(self.description.scalars)

    def forward(
        self, inputs: Float[Tensor, "N F"], dropout: torch.Generator | None = None
    ) -> Float[Tensor, " N"]:
        """Return logits of survival, not divided by temperatures; ``dropout`` draws units to drop.

        A unit that is kept is divided by 1 - DROPOUT.
        """
        x = (inputs - self.mean) * self.scale
        for number, layer in enumerate(self.layers[:-1]):
            x = nn.functional.gelu(layer(x))
            if dropout is not None and number < NUM_HIDDEN_LAYERS - 1:
                coins = torch.rand(x.shape, generator=dropout, device=x.device)
                x = x * (coins >= DROPOUT) / (1 - DROPOUT)
        return self.layers[-1](x).squeeze(-1)

    @torch.no_grad()
    def scores(
        self, draft: Draft, num_emitted: Sequence[int], families: Sequence[str | None] | None = None
    ) -> Float[Tensor, "B G"]:
        """Return the survival estimate of every position, 0 behind a row's length.

        Raises ModelMismatchError for a drafter whose state is not the one it was trained on.
        """
        if not draft.gamma:
            return torch.zeros(draft.token_ids.shape)
        inputs = scalar_features(draft, num_emitted, families)
        if self.description.hidden_size:
            inputs = torch.cat([self._hidden(draft), inputs], -1)
        logits = self(inputs.flatten(0, 1)).unflatten(0, draft.token_ids.shape)
        index = torch.arange(draft.gamma, device=logits.device)
        return self.probabilities(logits) * (index < draft.lengths[:, None])

    def probabilities(self, logits: Float[Tensor, "B G"]) -> Float[Tensor, "B G"]:
        """Return sigmoid(logit_j / temperature_j)."""
        told = self.description.temperatures
        if not told:
            return logits.sigmoid()
        gamma = logits.shape[-1]
        padded = [*told, *[told[-1]] * gamma][:gamma]
        return (logits / torch.tensor(padded, device=logits.device)).sigmoid()

    def _hidden(self, draft: Draft) -> Float[Tensor, "B G H"]:
        hidden, wanted = hidden_features(draft), self.description.hidden_size
        if hidden is None or hidden.shape[-1] != wanted:
            got = "none" if hidden is None else f"{hidden.shape[-1]} numbers"
            raise ModelMismatchError(
                f"The survival predictor {self.name} expects a drafter state of {wanted} numbers "
                f"at each position, got {got}. It was trained on the drafter "
                f"{self.description.drafter!r}: use that one, or a predictor of scalars only."
            )
        return hidden


def load_predictor(folder: str | Path) -> SurvivalPredictor:
    """Return the predictor in a folder, on the CPU. Raises ConfigError."""
    place = Path(folder)
    try:
        description = Description.model_validate_json((place / DESCRIPTION).read_bytes())
        tensors = _read_safetensors((place / WEIGHTS).read_bytes())
        if description.scalars != SCALARS:
            raise ValueError(f"it reads other numbers: {', '.join(description.scalars)}")
        predictor = SurvivalPredictor(description, name=str(folder))
        predictor.load_state_dict(tensors)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        reason = f"{' '.join(str(error).split()).rstrip('.')}."
        if isinstance(error, ValidationError):
            reason = explain_file(error, Description, place / DESCRIPTION)
        raise ConfigError(
            f"Expected a survival predictor in {folder} ({DESCRIPTION} and {WEIGHTS}), got: "
            f"{reason} Train one with `lenity train survival`, or correct the path."
        ) from None
    return predictor.eval()


def _read_safetensors(content: bytes) -> dict[str, Tensor]:
    """Return the float32 tensors of a safetensors file. Raises ValueError or KeyError."""
    start = 8 + int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8:start]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise ValueError(f"{name} is {entry['dtype']}, no F32")
        first, end = entry["data_offsets"]
        values = np.frombuffer(content[start + first : start + end], dtype="<f4")
        tensors[name] = torch.from_numpy(values.astype(np.float32)).reshape(entry["shape"])
    return tensors
