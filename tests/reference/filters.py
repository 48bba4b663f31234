"""The law a token is drawn from, on one row in numpy float64: temperature and the three filters."""

import numpy as np


def softmax(row):
    weights = np.exp(row - row.max())
    return weights / weights.sum()


def probabilities(row, *, temperature, top_k=None, top_p=None, min_p=None):
    """Return (law, margin): how near the closest token came to a filter's edge, relative to it."""
    row = np.asarray(row, dtype=np.float64)
    if temperature == 0:
        return np.eye(len(row))[int(row.argmax())], 1.0
    margin = 1.0
    if top_k is not None:
        row = np.where(row >= np.sort(row)[::-1][:top_k][-1], row, -np.inf)
    law = softmax(row / temperature)
    if top_p is not None:
        kept = np.zeros_like(law)
        before = 0.0
        for token in sorted(range(len(law)), key=lambda x: (-law[x], x)):
            margin = min(margin, abs(before - top_p) if law[token] else 1.0)
            if before < top_p:
                kept[token] = law[token]
            before += law[token]
        law = kept / kept.sum()
    if min_p is not None:
        edge = min_p * law.max()
        nonzero = law[law > 0]
        margin = min(margin, float(np.abs(nonzero - edge).min() / law.max()))
        law = np.where(law >= edge, law, 0.0)
        law = law / law.sum()
    return law, margin
