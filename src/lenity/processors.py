"""Logits processors as pure folds, so that drafts can be scored and rolled back exactly.

A processor's state is a value: ``start`` makes it from the prompt, ``advance`` returns the next
one, ``apply`` reads it. The engine walks the state along prefix and draft and throws away what was
rejected; nothing has to be undone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from lenity.errors import ConfigError, ShapeError


@runtime_checkable
class Processor(Protocol):
    """Changes a row of logits, knowing the tokens before it."""

    def start(self, prompt_ids: Sequence[int]) -> Any:
        """Return the state after the prompt."""
        ...

    def advance(self, state: Any, token_id: int) -> Any:
        """Return the state after one more token. Must not change ``state``."""
        ...

    def apply(self, logits: Float[Tensor, " V"], state: Any) -> Float[Tensor, " V"]:
        """Return the changed logits; -inf bans a token under every policy."""
        ...


def check_processors(processors: Sequence[object]) -> None:
    """Refuse objects that are no Processor. Raises ConfigError."""
    for item in processors:
        if not isinstance(item, Processor):
            raise ConfigError(
                f"Expected a logits processor with start, advance and apply, got "
                f"{type(item).__name__}. A processor that keeps its state in itself cannot be "
                f"rolled back over rejected drafts: make the state a value (lenity.processors)."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionPenalty:
    """Divides positive and multiplies negative logits of tokens seen so far, prompt included.

    z' = z / penalty if z > 0 else z * penalty        (Keskar et al. 2019, CTRL; penalty > 1 damps)
    """

    penalty: float

    def start(self, prompt_ids: Sequence[int]) -> frozenset[int]:
        """Return the tokens of the prompt."""
        return frozenset(prompt_ids)

    def advance(self, state: frozenset[int], token_id: int) -> frozenset[int]:
        """Return the tokens seen, with one more."""
        return state if token_id in state else state | {token_id}

    def apply(self, logits: Float[Tensor, " V"], state: frozenset[int]) -> Float[Tensor, " V"]:
        """Return logits with seen tokens damped."""
        seen = torch.tensor(sorted(state), dtype=torch.int64, device=logits.device)
        own = logits[seen]
        damped = torch.where(own > 0, own / self.penalty, own * self.penalty)
        return logits.index_copy(0, seen, damped)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPenalty:
    """Subtracts ``presence`` once and ``frequency`` per occurrence among the new tokens, nats."""

    presence: float = 0.0
    frequency: float = 0.0

    def start(self, prompt_ids: Sequence[int]) -> Mapping[int, int]:
        """Return no counts: the prompt does not count."""
        return {}

    def advance(self, state: Mapping[int, int], token_id: int) -> Mapping[int, int]:
        """Return the counts with one more."""
        return {**state, token_id: state.get(token_id, 0) + 1}

    def apply(self, logits: Float[Tensor, " V"], state: Mapping[int, int]) -> Float[Tensor, " V"]:
        """Return logits less the penalties of tokens already emitted."""
        ids = torch.tensor(list(state), dtype=torch.int64, device=logits.device)
        counts = torch.tensor(list(state.values()), dtype=logits.dtype, device=logits.device)
        return logits.index_add(0, ids, -(self.presence + self.frequency * counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class MinNewTokens:
    """Bans the ids that would end a request before it has this many new tokens."""

    count: int
    ending_ids: frozenset[int]

    def start(self, prompt_ids: Sequence[int]) -> int:
        """Return 0 new tokens."""
        return 0

    def advance(self, state: int, token_id: int) -> int:
        """Return one more."""
        return state + 1

    def apply(self, logits: Float[Tensor, " V"], state: int) -> Float[Tensor, " V"]:
        """Return logits with the ending ids banned while tokens are missing."""
        if state >= self.count or not self.ending_ids:
            return logits
        banned = torch.tensor(sorted(self.ending_ids), device=logits.device)
        return logits.index_fill(0, banned, -float("inf"))


def walk(
    processors: Sequence[Processor], states: Sequence[Any], token_ids: Sequence[int]
) -> list[tuple[Any, ...]]:
    """Return the states before, and after each of, ``token_ids``: one more than tokens."""
    out = [tuple(states)]
    for token_id in token_ids:
        out.append(tuple(p.advance(s, token_id) for p, s in zip(processors, out[-1], strict=True)))
    return out


def apply_all(
    processors: Sequence[Processor], states: Sequence[Any], logits: Float[Tensor, " V"]
) -> Float[Tensor, " V"]:
    """Return the logits after every processor, in order. Raises ShapeError for other results."""
    for processor, state in zip(processors, states, strict=True):
        changed = processor.apply(logits, state)
        _check_logits(changed, logits, processor)
        logits = changed
    return logits


def _check_logits(changed: object, logits: Tensor, processor: Processor) -> None:
    """Refuse what is no row of logits; a processor is anybody's code."""
    if isinstance(changed, Tensor):
        fits = changed.shape == logits.shape and changed.device == logits.device
        if fits and changed.is_floating_point():
            return
        dtype = str(changed.dtype).removeprefix("torch.")
        got = f"{dtype} logits of shape {tuple(changed.shape)} on {changed.device}"
    else:
        got = type(changed).__name__
    raise ShapeError(
        f"Expected the processor {type(processor).__name__} to return floating-point logits of "
        f"shape {tuple(logits.shape)} on {logits.device}, got {got}. Return the changed row from "
        f"apply; it is not changed in place."
    )
