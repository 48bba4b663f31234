"""A tiny target, what it says, and a store of what it computed while saying it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch

from lenity.engine.decode import Decoder
from lenity.models.causal import CausalLM
from lenity.training.batches import ReplyBatch, load_batch
from lenity.training.capture import capture
from lenity.training.recipe import recipe
from lenity.training.store import FeatureStore, is_held_out, key_of
from lenity.training.tables import TargetTables
from tests.drafters.rig import tiny_llama

VOCABULARY = 48
KEPT = torch.arange(0, VOCABULARY, 2)


def target(layers: int = 2) -> CausalLM:
    return tiny_llama(3, layers=layers, vocab_size=VOCABULARY)


@cache
def replies(count: int = 24, length: int = 30) -> tuple[dict[str, Any], ...]:
    """Return the target's greedy replies to short random prompts; the last one is held out."""
    draw = torch.Generator().manual_seed(0)
    prompts: list[list[int]] = []
    while len(prompts) < count - 1:
        drawn = torch.randint(1, VOCABULARY, (3 + len(prompts) % 4,), generator=draw).tolist()
        if not is_held_out(key_of(drawn)):
            prompts.append(drawn)
    prompts.append(next([7, i] for i in range(VOCABULARY) if is_held_out(key_of([7, i]))))
    settings = {"gamma": 0, "max_new_tokens": length, "ignore_eos": True}
    made = Decoder(target=target(), max_batch_size=count).generate(prompts, **settings)
    return tuple(
        {"family": "ab"[i % 2], "prompt_ids": prompts[i], "token_ids": list(made[i].token_ids)}
        for i in range(count)
    )


def store(model: CausalLM, folder: Path, spec: str, count: int = 24) -> FeatureStore:
    taps = recipe(spec).tapped(model.num_layers)
    return capture(model, replies(count), folder, taps=taps, batch_size=8, shard_size=16)


def batch(model: CausalLM, spec: str) -> ReplyBatch:
    """Return two random texts of 14 and 10 tokens, whose replies begin at 4 and at 3."""
    token_ids = torch.randint(VOCABULARY, (2, 14), generator=torch.Generator().manual_seed(1))
    taps = (*recipe(spec).tapped(model.num_layers), model.num_layers)
    found = model.hidden_states(token_ids, model.new_cache(2), taps=taps).features
    assert found is not None
    size = model.hidden_size
    return ReplyBatch(
        token_ids=token_ids,
        taps=found[..., :-size],
        last=found[..., -size:],
        starts=torch.tensor([4, 3]),
        lengths=torch.tensor([14, 10]),
    )


def tables(model: CausalLM, kept: torch.Tensor = KEPT) -> TargetTables:
    return TargetTables(model, kept)


def wild(head: torch.nn.Module) -> torch.nn.Module:
    """Return a head whose context is heard: matrices doubled, nothing left at zero."""
    draw = torch.Generator().manual_seed(5)
    for parameter in head.parameters():
        parameter.data.mul_(2 if parameter.ndim > 1 else 1)
        parameter.data.add_(0.05 * torch.randn(parameter.shape, generator=draw))
    return head


def real_bases(some: ReplyBatch) -> list[tuple[int, int, int]]:
    """Return row, number and place of every base with a token to draft."""
    bases, is_real = some.bases()
    return [(b, m, int(bases[b, m])) for b, m in is_real.nonzero().tolist()]


__all__ = ["batch", "load_batch", "real_bases", "replies", "store", "tables", "target", "wild"]
