"""What a survival predictor reads of a draft position: 19 numbers, and the drafter's own state.

Nothing of the target is among them. The verifier-skipping paper (arXiv 2608.14787) names the
numbers and leaves some undefined; gamma is the row's draft length here, and position j runs from 1:

* ``reveal_step`` is the pass, from 0; ``reveal_rank`` the tokens revealed before / gamma;
  ``reveal_together`` the tokens revealed in the same pass / gamma; ``is_late`` the last pass;
* ``probability`` (and its log), ``entropy`` (and its negative), ``margin`` and ``top5_mass`` at
  reveal; ``first_...`` in pass 0; ``..._change`` is reveal minus pass 0;
* ``position`` is j; ``generated`` the request's new tokens so far / 512; ``segment`` the quarter
  of the block, floor(4 (j - 1) / gamma) / 3; ``is_code`` and ``is_maths`` are 1 where whoever asks
  names that family (the paper's HumanEval and MATH flags).

A drafter without a record has its confidence as ``probability``, where it gives one, and 0 in
everything that only a record knows. What lies behind a row's length is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lenity.types import Draft

SCALARS = (
    "reveal_step",
    "reveal_rank",
    "reveal_together",
    "is_late",
    "probability",
    "log_probability",
    "entropy",
    "negative_entropy",
    "margin",
    "top5_mass",
    "first_probability",
    "first_negative_entropy",
    "probability_change",
    "negative_entropy_change",
    "position",
    "generated",
    "segment",
    "is_code",
    "is_maths",
)
"""Names of the numbers, in the order they are stored in."""

LONGEST_REPLY = 512
"""New tokens at which ``generated`` is 1: the paper's cap."""
LEAST_PROBABILITY = 1e-12
"""Stands for 0 in the logarithm, so that every feature is finite."""


def scalar_features(
    draft: Draft, num_emitted: Sequence[int], families: Sequence[str | None] | None = None
) -> Float[Tensor, "B G S"]:
    """Return the numbers of every position, in the order of SCALARS.

    ``num_emitted[b]`` counts the request's new tokens before the draft; ``families[b]`` may be
    ``"code"`` or ``"maths"``.
    """
    size, gamma = draft.token_ids.shape
    named = list(families) if families is not None else [None] * size
    device = draft.token_ids.device
    index = torch.arange(gamma, device=device)
    lengths = draft.lengths[:, None]
    by_row = {
        "generated": [count / LONGEST_REPLY for count in num_emitted],
        "is_code": [float(family == "code") for family in named],
        "is_maths": [float(family == "maths") for family in named],
    }
    found = {
        "position": (index + 1).expand(size, gamma),
        "segment": 4 * index // lengths.clamp_min(1) / 3,
        **_recorded(draft),
    }
    for name, values in by_row.items():
        row = torch.tensor(values, dtype=torch.float32, device=device)
        found[name] = row[:, None].expand(size, gamma)
    zero = torch.zeros(size, gamma, device=device)
    columns = [found.get(name, zero).to(torch.float32) for name in SCALARS]
    return torch.stack(columns, -1) * (index < lengths)[..., None]


def _recorded(draft: Draft) -> dict[str, Tensor]:
    """Return the features that say how a token came about, as far as the drafter knows."""
    record = draft.record
    if record is None:
        return {} if draft.confidence is None else _of_probability(draft.confidence)
    lengths = draft.lengths[:, None].clamp_min(1)
    return {
        **_of_probability(record.probability),
        "reveal_step": record.reveal_step,
        "reveal_rank": record.reveal_rank / lengths,
        "reveal_together": record.num_together / lengths,
        "is_late": record.is_late,
        "entropy": record.entropy,
        "negative_entropy": -record.entropy,
        "margin": record.margin,
        "top5_mass": record.top5_mass,
        "first_probability": record.first_probability,
        "first_negative_entropy": -record.first_entropy,
        "probability_change": record.probability - record.first_probability,
        "negative_entropy_change": record.first_entropy - record.entropy,
    }


def _of_probability(probability: Float[Tensor, "B G"]) -> dict[str, Tensor]:
    logs = probability.clamp_min(LEAST_PROBABILITY).log()
    return {"probability": probability, "log_probability": logs}


def hidden_features(draft: Draft) -> Float[Tensor, "B G H"] | None:
    """Return the vectors that entered the drafter's LM head; None where it keeps none."""
    return None if draft.record is None else draft.record.hidden.to(torch.float32)
