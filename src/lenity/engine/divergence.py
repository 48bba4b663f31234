"""Comparing the laws of target and drafter in a round, for the policies that ask for it.

At temperature 0 neither law is used otherwise, so that a drafter hands out its own only when asked
(``DraftContext.wants_logprobs``). What cannot be compared is refused, never taken for equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from lenity.drafters.base import Drafter
from lenity.errors import ConfigError, ModelMismatchError
from lenity.policies.divergence import DIVERGENCES, divergences
from lenity.sequences import Sequence
from lenity.types import Draft, Scores

if TYPE_CHECKING:
    from lenity.engine.batch import Batch

NEED = "divergence"
"""The field of Scores that is made here."""
KL = DIVERGENCES.index("kl")


def wants_divergence(batch: Batch) -> bool:
    """Return whether a row's policy, or whoever observes the batch, compares laws."""
    is_watched = batch.observer is not None and batch.observer.wants_divergence
    return is_watched or any(_compares(row) for row in batch.rows)


def _compares(row: Sequence) -> bool:
    """Return whether a greedy row's policy reads a divergence; at its strict limit none does."""
    rule = row.policy
    return row.sampling.is_greedy and NEED in rule.needs and rule != rule.strict_limit()


def check_laws(drafter: Drafter | None, rows: Iterable[Sequence]) -> None:
    """Refuse KL(target || draft) from certain draft tokens, which is infinite. Raises ConfigError.

    Only where the request would draft at all.
    """
    if drafter is None or not drafter.is_certain:
        return
    for row in rows:
        if _reads_kl(row) and row.settings.gamma and row.policy != row.policy.strict_limit():
            raise ConfigError(
                f"Request {row.name}: {row.policy} expects a drafter with a law of its own, got "
                f"{drafter}, whose draft tokens are certain: KL(target || draft) is infinite. Use "
                f"divergence=tv, js or reverse_kl, or another drafter."
            )


def _reads_kl(row: Sequence) -> bool:
    return NEED in row.policy.needs and getattr(row.policy, NEED, None) == "kl"


def compare_laws(batch: Batch, draft: Draft, scores: Scores) -> Scores:
    """Return the scores with every divergence of every draft position.

    Raises ConfigError where the logits were not kept, ModelMismatchError where the drafter has a
    law and did not give it, or one that is infinitely far from any target.
    """
    if scores.logits is None:
        raise ConfigError(
            "Expected the logits of a whole round in memory to compare laws, got them in chunks. "
            "Raise max_logits_bytes, or lower max_batch_size or gamma."
        )
    is_certain = batch.drafter is not None and batch.drafter.is_certain
    if draft.logprobs is None and draft.gamma and not is_certain:
        raise ModelMismatchError(
            f"Expected the law behind each draft token, got none from the drafter {batch.drafter}. "
            f"Use another drafter, or a policy that does not compare laws."
        )
    target = scores.logits[:, :-1].log_softmax(-1, dtype=torch.float32)
    found = divergences(target, draft.logprobs, draft.token_ids)
    for index, row in enumerate(batch.rows):
        length = int(draft.lengths[index]) if _reads_kl(row) and _compares(row) else 0
        if length and bool(found[index, :length, KL].isinf().all()):
            raise ModelMismatchError(
                f"Request {row.name}: {row.policy} expects a drafter that gives every token of the "
                f"target a probability, got {batch.drafter}, whose law leaves tokens out: "
                f"KL(target || draft) is infinite. Use divergence=js, tv or reverse_kl."
            )
    return replace(scores, divergence=found)
