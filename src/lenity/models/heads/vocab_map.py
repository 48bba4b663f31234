"""The map from a drafter's reduced vocabulary to the target's, and what a head borrows.

``d2t[d]`` is an offset: row d of the head stands for the target's id d + d2t[d]. ``t2d[v]`` says
whether id v is among them. Either may be missing; where both are there they have to agree.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenity.errors import ModelMismatchError, UnsupportedModelError
from lenity.models.base import LanguageModel
from lenity.models.heads.checkpoint import Checkpoint

VOCAB_MAP_KEYS = ("d2t", "t2d", "model.d2t", "model.t2d")
"""Keys of the map, which is no parameter of a head."""


def read_kept_ids(
    checkpoint: Checkpoint, num_rows: int, vocab_size: int | None
) -> Int[Tensor, " D"] | None:
    """Return the target's id of each of the head's rows, or None where row d is id d.

    ``vocab_size`` is the target's as the checkpoint knows it. Raises ModelMismatchError.
    """
    offsets = _find(checkpoint, "d2t")
    members = _find(checkpoint, "t2d")
    size = checkpoint.shape(members)[0] if members else vocab_size
    rows = torch.arange(num_rows)
    if offsets is not None:
        kept = rows + checkpoint.tensor(offsets, (num_rows,)).to(torch.int64)
    elif members is not None:
        kept = _members(checkpoint, members)
        if len(kept) != num_rows:
            raise _disagree(checkpoint, members, f"{len(kept)} ids for {num_rows} rows")
    else:
        return None
    if int(kept.min()) < 0 or (size is not None and int(kept.max()) >= size):
        found = f"ids from {int(kept.min())} to {int(kept.max())}"
        raise _disagree(checkpoint, offsets or "t2d", f"{found} in a vocabulary of {size}")
    if len(kept.unique()) != num_rows:
        raise _disagree(checkpoint, offsets or "t2d", "ids that stand for two rows")
    if offsets and members and not torch.equal(kept.sort().values, _members(checkpoint, members)):
        raise _disagree(checkpoint, members, f"other ids than {offsets!r}")
    return None if torch.equal(kept, rows) else kept


def check_vocabulary(name: str, vocab_size: int | None, target: LanguageModel) -> None:
    """Check that a drafter knows the target's ids, padding aside. Raises ModelMismatchError."""
    if vocab_size is None or vocab_size == target.vocab_size:
        return
    is_padding = torch.zeros(target.vocab_size, dtype=torch.bool)
    is_padding[target.unknown_ids.cpu()] = True
    if vocab_size > target.vocab_size or not bool(is_padding[vocab_size:].all()):
        raise ModelMismatchError(
            f"Expected {name} to be trained with the {target.vocab_size} ids of {target.name}, "
            f"got a drafter for a vocabulary of {vocab_size}. Use a drafter made for "
            f"{target.name}."
        )


def input_embeddings(target: LanguageModel) -> Any:
    """Return the target's embedding module. Raises UnsupportedModelError."""
    module = getattr(target, "module", None)
    found = module.get_input_embeddings() if module is not None else None
    if found is None or not isinstance(getattr(found, "weight", None), Tensor):
        raise UnsupportedModelError(
            f"Expected a target whose embeddings a drafter can borrow, got {target.name}. Load it "
            f"with lenity.load, or use a drafter with an embedding of its own."
        )
    return found


def borrow_embedding(name: str, hidden_size: int, target: LanguageModel) -> Float[Tensor, "V H"]:
    """Return the weight of the target's embedding for a head. Raises ModelMismatchError."""
    weight: Tensor = input_embeddings(target).weight.detach()
    if weight.shape[1] != hidden_size:
        raise ModelMismatchError(
            f"Expected {target.name} to have embeddings of the hidden size {hidden_size} of "
            f"{name}, which has no embed_tokens.weight of its own, got {weight.shape[1]}. Use the "
            f"target it was trained for."
        )
    return weight


def _find(checkpoint: Checkpoint, name: str) -> str | None:
    return next((key for key in (name, f"model.{name}") if checkpoint.has(key)), None)


def _members(checkpoint: Checkpoint, key: str) -> Int[Tensor, " D"]:
    return checkpoint.tensor(key).to(torch.bool).nonzero()[:, 0]


def _disagree(checkpoint: Checkpoint, key: str, found: str) -> ModelMismatchError:
    return ModelMismatchError(
        f"Expected d2t and t2d of {checkpoint.files} to name one id of the target for each row of "
        f"lm_head.weight, got {found} in {key!r}. The vocabulary map belongs to another "
        f"checkpoint, or was never filled in: export the drafter again."
    )
