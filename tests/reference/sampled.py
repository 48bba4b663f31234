"""Strict speculative sampling on one row, in Python floats (Leviathan et al. 2023, section 2.3)."""

import math


def accept_prob(p, q, token):
    """min(1, p(x) / q(x)); without q the token was chosen with certainty."""
    return min(1.0, p[token] / (1.0 if q is None else q[token]))


def residual(p, q, token):
    """norm((p - q)+), or p where nothing is left."""
    law = [float(x == token) for x in range(len(p))] if q is None else q
    left = [max(a - b, 0.0) for a, b in zip(p, law, strict=True)]
    mass = math.fsum(left)
    return [x / mass for x in left] if mass > 1e-8 else list(p)


def emitted_law(q, accept, replace):
    """The law of the token a position emits when its draft is drawn from q.

    ``accept[x]`` is the probability of keeping x and ``replace[x]`` the law drawn from otherwise.
    """
    return [
        math.fsum(
            q[x] * (accept[x] * (x == out) + (1 - accept[x]) * replace[x][out])
            for x in range(len(q))
        )
        for out in range(len(q))
    ]
