"""Drafts with a record whose every number is written down or drawn from a given seed."""

from __future__ import annotations

import torch

from lenity.skipping.base import SkipContext
from lenity.types import Draft, DraftRecord


def recorded(lengths, gamma=4, hidden_size=3, seed=0) -> Draft:
    """Return a draft of rows with these lengths and random numbers in its record."""
    draw = torch.Generator().manual_seed(seed)
    size = (len(lengths), gamma)
    is_real = torch.arange(gamma) < torch.tensor(lengths)[:, None]

    def number(*more):
        values = torch.rand(*size, *more, generator=draw)
        return values * (is_real[..., None] if more else is_real)

    def count(top):
        return torch.randint(top, size, generator=draw) * is_real

    probability = number()
    return Draft(
        token_ids=count(9),
        lengths=torch.tensor(lengths),
        confidence=probability,
        record=DraftRecord(
            reveal_step=count(2),
            reveal_rank=count(gamma),
            num_together=count(gamma),
            is_late=count(2).to(torch.bool),
            probability=probability,
            entropy=number(),
            margin=number(),
            top5_mass=number(),
            first_probability=number(),
            first_entropy=number(),
            hidden=number(hidden_size),
        ),
    )


def asked(draft: Draft, num_emitted: int = 0) -> SkipContext:
    """Return what a rule is asked about a draft."""
    rows = len(draft.lengths)
    return SkipContext(draft=draft, num_emitted=[num_emitted] * rows, rounds=[0] * rows)
