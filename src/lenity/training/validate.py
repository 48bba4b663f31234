"""What a drafter is worth on replies it has not seen: acceptance by position, tokens per pass.

A greedy reply is what strict decoding at temperature 0 gives, whatever the drafter. So a draft is
accepted as far as it is the reply, and walking along the reply counts rounds exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """Rounds along one or more replies.

    ``drafted[k]`` counts rounds with a token k to draft, ``accepted[k]`` those that accepted it.
    """

    num_tokens: int
    num_rounds: int
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]

    @property
    def tokens_per_pass(self) -> float:
        """Tokens behind the first of each reply / rounds; the prompt's own pass is not counted."""
        return self.num_tokens / max(1, self.num_rounds)

    @property
    def acceptance(self) -> tuple[float, ...]:
        """Accepted at position k / rounds that came so far: position k given those before it."""
        rates = []
        for k, count in enumerate(self.accepted):
            reached = self.drafted[0] if k == 0 else min(self.accepted[k - 1], self.drafted[k])
            rates.append(count / max(1, reached))
        return tuple(rates)


def walk(hits: Bool[Tensor, "M K"], num_tokens: int) -> Walk:
    """Decode one reply of ``num_tokens`` tokens, the first of which came with the prompt.

    ``hits[m, k]``: draft token k behind base m is the reply's. A round at base m commits the
    accepted tokens and one of the target's own.
    """
    depth = hits.shape[1]
    lengths = hits.to(torch.int64).cumprod(1).sum(1).tolist()
    drafted, accepted = [0] * depth, [0] * depth
    base, rounds, most = 0, 0, num_tokens - 1
    while base < most:
        room = min(depth, most - base)
        count = min(lengths[base], room) if base < len(lengths) else 0
        for k in range(room):
            drafted[k] += 1
            accepted[k] += k < count
        base, rounds = base + count + 1, rounds + 1
    return Walk(
        num_tokens=max(most, 0),
        num_rounds=rounds,
        drafted=tuple(drafted),
        accepted=tuple(accepted),
    )


def together(walks: Sequence[Walk]) -> Walk:
    """Return the sums of several walks of one depth."""
    return Walk(
        num_tokens=sum(w.num_tokens for w in walks),
        num_rounds=sum(w.num_rounds for w in walks),
        drafted=tuple(map(sum, zip(*(w.drafted for w in walks), strict=True))),
        accepted=tuple(map(sum, zip(*(w.accepted for w in walks), strict=True))),
    )


def walk_all(
    batches: Iterable[tuple[Bool[Tensor, "B M K"], Sequence[int], Sequence[str]]],
) -> dict[str, Walk]:
    """Return the walks by family, and "all"; a batch has hits, reply lengths and families."""
    found: dict[str, list[Walk]] = {}
    for hits, lengths, families in batches:
        for row, (length, family) in enumerate(zip(lengths, families, strict=True)):
            found.setdefault(family, []).append(walk(hits[row].cpu(), length))
    everything = [w for walks in found.values() for w in walks]
    named = {family: together(walks) for family, walks in sorted(found.items()) if family}
    return {"all": together(everything), **named} if everything else {}


Validate = Callable[[], dict[str, Walk]]
"""Walks of the held-out replies, by family."""
