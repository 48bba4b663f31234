"""What a drafter in training borrows from its target: embeddings, and rows of the LM head."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from lenity.models.base import LanguageModel
from lenity.models.heads.vocab_map import borrow_embedding


class TargetTables:
    """The target's embedding, and its LM head cut down to the ids a drafter keeps.

    ``kept_ids`` are those ids, rising; all of them where the drafter knows every token.
    """

    def __init__(self, target: LanguageModel, kept_ids: Int[Tensor, " D"]) -> None:
        """Copy what is needed as float32, on the target's device."""
        self.kept_ids = kept_ids.to(target.device)
        weight = borrow_embedding("the drafter", target.hidden_size, target)
        self.embedding: Float[Tensor, "V H"] = weight.to(torch.float32)
        self.vocab_size, self._target = target.vocab_size, target
        self.rows = self._rows()
        self._row_of = torch.full((target.vocab_size,), -1, device=target.device)
        self._row_of[self.kept_ids] = torch.arange(len(kept_ids), device=target.device)

    def logits(self, last: Float[Tensor, "*N H"]) -> Float[Tensor, "*N D"]:
        """Return the target's logits of the kept ids, given what enters its LM head."""
        if self.rows is not None:
            return F.linear(last, self.rows)
        return self._target.logits(last.to(self._target.dtype))[..., self.kept_ids]

    def row_of(self, token_ids: Int[Tensor, "*N"]) -> Int[Tensor, "*N"]:
        """Return the row of the drafter's head of each token, -1 where it has none."""
        return self._row_of[token_ids]

    def _rows(self) -> Float[Tensor, "D H"] | None:
        """Return the kept rows of the LM head, None where logits are more than a product."""
        module = getattr(self._target, "module", None)
        head = module.get_output_embeddings() if module is not None else None
        weight = getattr(head, "weight", None)
        if not isinstance(weight, Tensor):
            return None
        weight = weight.detach()
        rows = weight[self.kept_ids].to(torch.float32)
        # Soft caps hardly bend small logits, so the probe is the row itself, made long.
        probe = 100 * F.normalize(weight[self.kept_ids[:4]], dim=-1)
        expected = self._target.logits(probe)[:, self.kept_ids].to(torch.float32)
        found = F.linear(probe.to(torch.float32), rows)
        return rows if torch.allclose(found, expected, rtol=0.05, atol=0.1) else None


def choose_kept_ids(
    replies: Iterable[Tensor], vocab_size: int, size: int | None, always: Iterable[int]
) -> Int[Tensor, " D"]:
    """Return the ``size`` most frequent ids of replies, rising; None keeps the whole vocabulary.

    Ids in ``always`` are kept in any case; ties go to the lower id.
    """
    if size is None or size >= vocab_size:
        return torch.arange(vocab_size)
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for ids in replies:
        counts += torch.bincount(ids, minlength=vocab_size)
    counts[list(always)] = counts.sum() + 1
    order = torch.argsort(counts, descending=True, stable=True)
    return order[:size].sort().values
