"""What the scalar twins read off one row of logits (a list of floats, -inf where masked)."""

from fractions import Fraction

UNITS = 2**20


def argmax(row):
    """The first index of the largest logit."""
    best = 0
    for token, logit in enumerate(row):
        if logit > row[best]:
            best = token
    return best


def is_masked(row, token):
    return row[token] == -float("inf")


def regret(row, token):
    """Nats given away by this finite token, as an exact fraction."""
    return Fraction(row[argmax(row)]) - Fraction(row[token])


def units(nats):
    """Nats as ledger units: the nearest integer of 2^-20, halves to even."""
    return round(Fraction(nats) * UNITS)


def ranking(row):
    """Token ids from the largest logit to the smallest, equal ones by id."""
    return sorted(range(len(row)), key=lambda token: (-row[token], token))
