"""From logits to probabilities to a token: temperature, filters, point mass, draws and coins.

One place decides what temperature 0 is: a point mass on the first argmax. A residual is a law and
is drawn from as it is, never filtered again. Randomness is counter-based: a coin is a function of
(request seed, round start, position, purpose), so neither batch order nor batch-mates, nor the
number of coins somebody else took, can change it.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

_COLDEST = 1e-30
"""Temperatures below this act like it: less would take logits to inf, and the law is the same."""


class Sampling(BaseModel):
    """How a token is chosen from logits; temperature 0 is greedy."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Divides the logits; 0 chooses the argmax"""
    top_k: int | None = Field(default=None, ge=1)
    """Keep the k largest logits (ties at the k-th place all stay); none keeps all"""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Keep the smallest set of most likely tokens with at least this mass; none keeps all"""
    min_p: float | None = Field(default=None, ge=0, le=1)
    """Keep tokens with at least this share of the most likely one's probability"""

    @property
    def is_greedy(self) -> bool:
        """Whether the argmax is taken."""
        return self.temperature == 0

    def limit(self) -> Sampling:
        """Return the same filters at temperature 0."""
        return self.model_copy(update={"temperature": 0.0})


class Purpose(IntEnum):
    """What a coin decides; coins of different purposes are independent."""

    DRAFT = 0
    ACCEPT = 1
    NEXT = 2


class Coins:
    """Uniforms in [0, 1) for one round of a batch.

    ``seeds[b]`` is request b's seed and ``starts[b]`` its committed length: a new round never
    reuses a coin that an earlier, rejected draft has seen.
    """

    def __init__(self, seeds: list[int], starts: list[int]) -> None:
        """Bind the coins to requests and to the round."""
        self._seeds, self._starts = seeds, starts

    def uniform(self, purpose: Purpose, count: int) -> Float[Tensor, "B count"]:
        """Return ``count`` coins of each request, float64."""
        rows = [
            _philox(seed, start, purpose).random(count)
            for seed, start in zip(self._seeds, self._starts, strict=True)
        ]
        return torch.from_numpy(np.stack(rows) if rows else np.empty((0, count)))

    def select(self, rows: list[int]) -> Coins:
        """Return the coins of some requests."""
        return Coins([self._seeds[r] for r in rows], [self._starts[r] for r in rows])


def _philox(seed: int, start: int, purpose: Purpose) -> np.random.Generator:
    # the key is one int: a list would pass through float64, where large seeds fall together
    key, counter = seed & (2**64 - 1), [0, 0, start, int(purpose)]
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def greedy(logits: Float[Tensor, "*N V"]) -> Int[Tensor, "*N"]:
    """Return the first index of the largest logit: what a tie means is decided here.

    NaN in a row makes its index meaningless, and whoever emits the token must look for it.
    """
    found = _host_argmax(logits) if logits.device.type == "cpu" else None
    return logits.argmax(-1) if found is None else found


def _host_argmax(logits: Float[Tensor, "*N V"]) -> Int[Tensor, "*N"] | None:
    """Return greedy's ids by NumPy, several times as fast on a CPU; None where it may not.

    bfloat16 is compared by its bits: read as integers, those of numbers above 0 are in the order
    of the numbers, and above those of all others.
    """
    plain = logits.detach()
    if plain.dtype == torch.float32:
        return torch.as_tensor(plain.numpy().argmax(-1))
    if plain.dtype != torch.bfloat16:
        return None
    bits = plain.view(torch.int16).numpy()
    found = np.asarray(bits.argmax(-1))
    rows = bits.reshape(-1, bits.shape[-1])
    is_ordered = all(rows[row, i] > 0 for row, i in enumerate(found.ravel().tolist()))
    return torch.from_numpy(found) if is_ordered else None


def point_mass(token_ids: Int[Tensor, "*N"], vocab_size: int) -> Float[Tensor, "*N V"]:
    """Return the law that is 1 at the token and 0 elsewhere, float32."""
    return torch.nn.functional.one_hot(token_ids, vocab_size).to(torch.float32)


def probabilities(logits: Float[Tensor, "*N V"], sampling: Sampling) -> Float[Tensor, "*N V"]:
    """Return the law a token is drawn from: temperature, then top-k, top-p and min-p.

    float32, rows sum to 1. Temperature 0 is the point mass on the first argmax. Masked tokens
    (-inf) get exactly 0.
    """
    logits = logits.to(torch.float32)
    if sampling.is_greedy:
        return point_mass(greedy(logits), logits.shape[-1])
    if sampling.top_k is not None and sampling.top_k < logits.shape[-1]:
        smallest = logits.topk(sampling.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < smallest, -float("inf"))
    probs = (logits / max(sampling.temperature, _COLDEST)).softmax(-1)
    if sampling.top_p is not None and sampling.top_p < 1:
        probs = _keep(probs, _in_nucleus(probs, sampling.top_p))
    if sampling.min_p:
        probs = _keep(probs, probs >= sampling.min_p * probs.amax(-1, keepdim=True))
    return probs


def _in_nucleus(probs: Float[Tensor, "*N V"], top_p: float) -> Tensor:
    """Return which tokens have less than top_p of mass strictly before them."""
    ordered, index = probs.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    return torch.zeros_like(probs, dtype=torch.bool).scatter(-1, index, before < top_p)


def _keep(probs: Float[Tensor, "*N V"], mask: Tensor) -> Float[Tensor, "*N V"]:
    kept = probs * mask
    return kept / kept.sum(-1, keepdim=True)


def draw(probs: Float[Tensor, "*N V"], coins: Float[Tensor, "*N"]) -> Int[Tensor, "*N"]:
    """Return the token at which the cumulated law first exceeds the coin.

    The sum runs in float64 and is scaled to its own total, so that rounding can neither leave the
    vocabulary nor choose a token of probability 0.
    """
    cumulated = probs.to(torch.float64).cumsum(-1)
    level = coins.to(cumulated.device).unsqueeze(-1) * cumulated[..., -1:]
    return torch.searchsorted(cumulated, level, right=True).squeeze(-1)
