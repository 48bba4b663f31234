"""A golden case: a target, a drafter's folder, and what the reference implementation gave."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from lenity.models.causal import CausalLM

FOLDER = Path(__file__).parent.parent.parent / "goldens"
ATOL = 1e-4
"""Largest difference to a reference; what is seen is 5e-6, a wrong convention makes 0.2."""


@dataclass(frozen=True)
class Golden:
    """One folder of tests/goldens."""

    name: str
    about: dict[str, Any]
    arrays: dict[str, Tensor]
    target: CausalLM

    @property
    def drafter(self) -> Path:
        return FOLDER / self.name / "drafter"

    @property
    def taps(self) -> tuple[int, ...]:
        """The taps as LanguageModel counts them."""
        return tuple(tap - 1 for tap in self.about["taps"])

    def array(self, prompt: int, name: str) -> Tensor:
        return self.arrays[f"p{prompt}.{name}"]

    def rounds(self, prompt: int) -> list[dict[str, Any]]:
        return self.about["prompts"][prompt]["rounds"]

    def committed(self, prompt: int) -> list[int]:
        """Every id the rounds committed; the last one's may lie behind ``final``."""
        about = self.about["prompts"][prompt]
        ids = [*about["prompt"], about["rounds"][0]["anchor"]]
        for turn in about["rounds"]:
            ids += [*turn["draft"][: turn["accepted"]], turn["next"]]
        return ids

    def features(self, ids: list[int]) -> Tensor:
        """The target's tapped states of ``ids``, (T, F)."""
        cache = self.target.new_cache(1)
        found = self.target.hidden_states(torch.tensor([ids]), cache, taps=self.taps).features
        assert found is not None
        return found[0]


@cache
def golden(name: str) -> Golden:
    folder = FOLDER / name
    module = AutoModelForCausalLM.from_pretrained(folder / "target", dtype=torch.float32)
    return Golden(
        name=name,
        about=json.loads((folder / "golden.json").read_text()),
        arrays=load_file(folder / "golden.safetensors"),
        target=CausalLM(module, name=f"golden:{name}"),
    )


def largest_difference(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    return float((ours.double() - theirs.double()).abs().max())
