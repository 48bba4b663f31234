"""Every test runs offline, on one thread, from seeds of its own."""

import os

# Before torch, transformers and huggingface_hub are imported, which read these once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch
from hypothesis import settings

import tests.shapecheck  # noqa: F401 (named by --jaxtyping-packages, which imports only `tests`)

torch.set_num_threads(1)

# The same examples on every run: a failure is then a change of the code, not of luck.
settings.register_profile("lenity", derandomize=True, deadline=None)
settings.load_profile("lenity")


@pytest.fixture
def seed() -> int:
    """A seed for whatever takes one; there is no global one."""
    return 20_240_229


@pytest.fixture
def generator(seed: int) -> torch.Generator:
    """A fresh generator on the CPU, for whatever draws."""
    return torch.Generator().manual_seed(seed)
