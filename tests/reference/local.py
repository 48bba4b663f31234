"""Local rules on a margin or a divergence, alone or under a ledger, walked token by token."""

import math

from tests.reference.rows import argmax, is_masked, ranking, regret, units


def _walk(rows, draft, passes, budget, spent_units, may_relax):
    """Return (accepted length, units charged, relaxed positions) of one request."""
    total, relaxed = 0, []
    for i, token in enumerate(draft):
        row = rows[i]
        if token == argmax(row):
            continue
        if budget == 0 or is_masked(row, token) or (may_relax and not may_relax[i]):
            return i, total, relaxed
        cost = units(regret(row, token))
        is_dear = budget not in (None, math.inf) and spent_units + total + cost > units(budget)
        if is_dear or not passes(i, row, token):
            return i, total, relaxed
        total += cost
        relaxed.append(i)
    return len(draft), total, relaxed


def margin(rows, draft, *, ratio, budget=None, spent_units=0, may_relax=None):
    """Accept the second best where z_2 / z_1 > ratio and both are positive (MARS, 2601.15498)."""

    def passes(i, row, token):
        first, second = ranking(row)[:2]
        return token == second and row[second] > 0 and row[second] / row[first] > ratio

    return _walk(rows, draft, passes, budget, spent_units, may_relax)


def fuzzy(rows, laws, draft, *, kind, threshold, budget=None, spent_units=0, may_relax=None):
    """Accept where Div(p, q) <= threshold (FSD, 2502.20704); ``laws[i]`` is q or None: certain."""

    def passes(i, row, token):
        p = softmax(row)
        q = [float(v == token) for v in range(len(p))] if laws[i] is None else laws[i]
        return threshold > 0 and divergence(kind, p, q) <= threshold

    return _walk(rows, draft, passes, budget, spent_units, may_relax)


def softmax(row):
    top = max(row)
    parts = [math.exp(z - top) for z in row]
    mass = math.fsum(parts)
    return [part / mass for part in parts]


def kl(p, q):
    """KL(p || q) in nats; infinite where q has nothing."""
    if any(a > 0 and b == 0 for a, b in zip(p, q, strict=True)):
        return math.inf
    return math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def divergence(kind, p, q):
    if kind == "tv":
        return math.fsum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2
    if kind == "js":
        middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
        return (kl(p, middle) + kl(q, middle)) / 2
    return kl(p, q) if kind == "kl" else kl(q, p)
