"""Tiny drafters whose ids are a permutation of the target's, with words of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from lenity.models.causal import CausalLM
from tests.drafters.rig import Words, tiny_llama
from tests.models.masked_tiny import PARTS, masked_config, masked_tensors, write

WORDS = 120
ORDER = torch.randperm(128, generator=torch.Generator().manual_seed(3))
"""The drafter's id of the target's id i."""


class OtherWords(Words):
    """The same words under other ids; behind the first ``shared``, words of its own."""

    def __init__(self, shared: int = WORDS) -> None:
        size = range(WORDS)
        self.vocabulary = {int(ORDER[i]): f"w{i}" if i < shared else f"x{i}" for i in size}
        self.special_ids = frozenset({int(ORDER[0])})


def permuted(shared: int = WORDS) -> CausalLM:
    """Return the twin with its embedding and head in the other order."""
    model = tiny_llama(1, layers=1, name="tiny:permuted")
    with torch.no_grad():
        for table in (model.module.model.embed_tokens, model.module.lm_head):
            table.weight[ORDER] = table.weight.clone()
    return CausalLM(model.module, OtherWords(shared), name="tiny:permuted")


def masked(folder: Path, shared: int = WORDS, mask: int = 121, **changes: Any) -> Path:
    """Write the tiny masked model in the other order, with a tokenizer file."""
    tensors = masked_tensors("dream", 128)
    for key in (PARTS["dream"]["embedding"], PARTS["dream"]["head"]):
        tensors[key] = tensors[key][ORDER.argsort()].contiguous()
    config = masked_config("dream", 128, int(ORDER[mask]), **changes)
    made = write(folder / "permuted", config, tensors)
    words = {token: index for index, token in OtherWords(shared).vocabulary.items()}
    (made / "vocab.json").write_text(json.dumps(words | {"<mask>": int(ORDER[mask])}))
    return made
