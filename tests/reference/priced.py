"""The priced prefix, by listing every prefix, keeping the feasible ones and taking the best."""

from fractions import Fraction

from tests.reference.rows import UNITS, argmax, is_masked, regret, units

INF = float("inf")


def price_now(price, price_max, budget, spent_units):
    """price * (price_max / price)^z with z = s / B, and the price itself without pacing."""
    if price_max is None or budget in (0, INF):
        return price
    share = spent_units / units(budget)
    return price * (price_max / price) ** min(max(share, 0.0), 1.0)


def priced(
    rows,
    draft,
    *,
    budget=INF,
    price=0.0,
    price_max=None,
    block_cap=None,
    gate=None,
    spent_units=0,
    may_relax=None,
):
    """Return (accepted length, units charged) of one request."""
    now = price_now(price, price_max, budget, spent_units)
    left = INF if budget == INF else units(budget) - spent_units
    best, best_gain, best_cost = 0, Fraction(0), 0
    for length in range(1, len(draft) + 1):
        wrong = [i for i in range(length) if draft[i] != argmax(rows[i])]
        if any(
            budget == 0 or is_masked(rows[i], draft[i]) or (may_relax and not may_relax[i])
            for i in wrong
        ):
            continue
        nats = [regret(rows[i], draft[i]) for i in wrong]
        cost = sum(map(units, nats))
        is_many = block_cap is not None and len(wrong) > block_cap
        if wrong and (cost > left or is_many):
            continue
        if gate not in (None, INF) and any(
            r / (len(draft) - i) > Fraction(gate) for i, r in zip(wrong, nats, strict=True)
        ):
            continue
        if cost and now == INF:
            continue
        gain = length - (Fraction(now) * Fraction(cost, UNITS) if cost else 0)
        if (-gain, cost, length) < (-best_gain, best_cost, best):
            best, best_gain, best_cost = length, gain, cost
    return best, best_cost
