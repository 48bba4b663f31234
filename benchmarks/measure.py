"""What the benchmarks share: prompts, the machine in a line, spread."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from statistics import median, quantiles

import torch

PROMPTS = (
    "The lighthouse keeper wrote in his diary every evening, and on the third of May he wrote",
    "def longest_word(sentence):\n    ",
    "To repair a bicycle tyre, first turn the bicycle upside down. Then",
)


def machine() -> str:
    """Return what the numbers depend on."""
    busy = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"torch {torch.__version__}, {torch.get_num_threads()} threads of {os.cpu_count()} cores, "
        f"OMP_WAIT_POLICY={os.environ.get('OMP_WAIT_POLICY', 'not set')}, {platform.machine()}"
        f"{busy}"
    )


def spread(values: Sequence[float], scale: float = 1e3) -> str:
    """Return median and quartiles, in milliseconds by default."""
    low, _, high = quantiles(values, n=4)
    return f"{median(values) * scale:8.3f} [{low * scale:.3f}, {high * scale:.3f}]"
