"""Rules that judge each position by itself: strict, lenience, top-k."""

import math

from tests.reference.rows import argmax, is_masked, ranking, regret


def _walk(rows, draft, may_relax, passes):
    for i, token in enumerate(draft):
        row = rows[i]
        if token == argmax(row):
            continue
        if is_masked(row, token) or (may_relax and not may_relax[i]) or not passes(row, token):
            return i
    return len(draft)


def strict(rows, draft):
    """Accept while the ids are equal (Leviathan et al. 2023 at temperature 0)."""
    return _walk(rows, draft, None, lambda row, token: False)


def lenience(rows, draft, *, ratio, may_relax=None):
    """Accept while p(x) >= ratio * max p, that is regret <= -log ratio; ratio 1 compares ids."""
    limit = -math.log(ratio)
    return _walk(rows, draft, may_relax, lambda row, x: ratio < 1 and regret(row, x) <= limit)


def top_k(rows, draft, *, k, may_relax=None):
    """Accept while the token is among the k first of the row's ranking."""
    return _walk(rows, draft, may_relax, lambda row, x: x in ranking(row)[:k])
