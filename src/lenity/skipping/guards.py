"""Guards: what sends a prefix to the target although its scores would let it pass.

They reject, they never shorten (arXiv 2608.14787 names them; the thresholds are lenity's choice).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import pairwise

WINDOW = 32
"""Last tokens in which a 4-gram is counted."""
GRAM = 4
MAX_GRAMS = 3
"""The last 4-gram occurring this often in the window is repetition."""
MAX_RUN = 8
"""One token this often in a row is repetition."""


def objection(
    history: Sequence[int], prefix: Sequence[int], forbidden: Set[int], *, repetition: bool = True
) -> str | None:
    """Return why a prefix must be verified, or None.

    ``history`` ends before the prefix. ``forbidden`` are special tokens, ends of sequence among
    them (an unverified one would end the request on the drafter's word), and ids no token has.
    """
    if not forbidden.isdisjoint(prefix):
        return "special token"
    if repetition and is_repetitive([*history[-WINDOW:], *prefix]):
        return "repetition"
    return None


def is_repetitive(token_ids: Sequence[int]) -> bool:
    """Return whether the last 4-gram stands thrice in the last 32 tokens, or a token 8 times on."""
    window = list(token_ids[-WINDOW:])
    last = window[-GRAM:]
    starts = range(len(window) - GRAM + 1)
    if len(last) == GRAM and sum(window[i : i + GRAM] == last for i in starts) >= MAX_GRAMS:
        return True
    run = 1
    for before, after in pairwise(window):
        run = run + 1 if before == after else 1
        if run >= MAX_RUN:
            return True
    return False
