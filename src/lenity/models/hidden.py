"""Reading the residual stream of chosen layers while a forward runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lenity.errors import ConfigError

EMBEDDINGS = -1
"""The tap of what enters the first layer."""


class Taps:
    """The outputs of the tapped layers of one forward, in the order they were asked for."""

    def __init__(self, taps: tuple[int, ...]) -> None:
        """Expect one output for every layer index in ``taps``."""
        self.taps = taps
        self._outputs: dict[int, Tensor] = {}
        self._owner = threading.get_ident()

    def record(self, tap: int, output: Any) -> None:
        """Keep a layer's output; of a tuple, its first element."""
        # hooks stand on shared modules: another thread's forward fires them too
        if threading.get_ident() == self._owner:
            self._outputs[tap] = output[0] if isinstance(output, tuple) else output

    def features(self) -> Float[Tensor, "B T F"] | None:
        """Return the outputs side by side along the last axis; None without taps."""
        if not self.taps:
            return None
        return torch.cat([self._outputs[tap] for tap in self.taps], dim=-1)


@contextmanager
def tapped(layers: Sequence[nn.Module], taps: tuple[int, ...]) -> Iterator[Taps]:
    """Record the outputs of ``layers[i]`` for i in ``taps`` while the block runs.

    The value of a tap is the residual stream after that layer, so the last layer's is not yet
    normalised. Tap -1 is what enters the first layer. Tap n, the number of layers, is what enters
    the LM head; the caller records it, since no layer returns it. The hooks are gone afterwards,
    whatever happened. Raises ConfigError.
    """
    for tap in taps:
        if not EMBEDDINGS <= tap <= len(layers):
            raise ConfigError(
                f"Expected taps between {EMBEDDINGS} and {len(layers)}, got {tap}. 0 is the "
                f"output of the first decoder layer, {EMBEDDINGS} what enters it, {len(layers)} "
                f"what enters the LM head."
            )
    found, handles = Taps(taps), []
    try:
        for tap in set(taps) - {EMBEDDINGS, len(layers)}:
            handles.append(layers[tap].register_forward_hook(_recorder(found, tap)))
        if EMBEDDINGS in taps:
            handles.append(
                layers[0].register_forward_pre_hook(_input_recorder(found), with_kwargs=True)
            )
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _recorder(found: Taps, tap: int) -> Any:
    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        found.record(tap, output)

    return hook


def _input_recorder(found: Taps) -> Any:
    def hook(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        found.record(EMBEDDINGS, inputs[0] if inputs else named["hidden_states"])

    return hook
