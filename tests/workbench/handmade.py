"""Requests of an arm, written round by round as the kinds of their tokens."""

from __future__ import annotations

from collections.abc import Sequence

from lenity.workbench.pairing import Pairs
from lenity.workbench.records import UNITS_PER_NAT, RelaxedToken, RoundCounts, SampleRecord


def a_round(kinds: str, drafted: int, regret: float = 0.5, **changes: object) -> RoundCounts:
    """One round: ``kinds`` are its tokens' letters, each x costs ``regret`` nats."""
    is_skip = "s" in kinds
    base = {
        "drafted": drafted,
        "evaluated": 0 if is_skip else drafted,
        "accepted": kinds.count("a") + kinds.count("x"),
        "emitted": len(kinds),
        "relaxed": kinds.count("x"),
        "skipped": kinds.count("s"),
        "target_passes": 0 if is_skip else 1,
        "regret_units": round(kinds.count("x") * regret * UNITS_PER_NAT),
    }
    return RoundCounts(**{**base, **changes})


def request(*rounds: tuple[str, int] | RoundCounts, regret: float = 0.5, **changes: object):
    """One request of rounds such as ("axr", 4): kinds and draft tokens; ids count up from 0."""
    made = [r if isinstance(r, RoundCounts) else a_round(*r, regret=regret) for r in rounds]
    kinds = "".join(r[0] for r in rounds if not isinstance(r, RoundCounts))
    base = {
        "arm": "relaxed",
        "task": "toy@1",
        "item_id": "1",
        "token_ids": tuple(range(len(kinds))),
        "kinds": kinds,
        "relaxed": tuple(
            RelaxedToken(position=i, regret=regret) for i, k in enumerate(kinds) if k == "x"
        ),
        "rounds": tuple(made),
        "finish_reason": "stop",
    }
    return SampleRecord(**{**base, **changes})


def text(*token_ids: int, **changes: object) -> SampleRecord:
    """One request of plain tokens."""
    return request(*[("p", 0)] * len(token_ids), token_ids=tuple(token_ids), **changes)


def failed(**changes: object) -> SampleRecord:
    """One request that ended in an error."""
    base = {"arm": "relaxed", "task": "toy@1", "item_id": "1", "error": "out of memory"}
    return SampleRecord(status="failed", **{**base, **changes})


def timed(seconds: float, num_tokens: int = 4, **changes: object) -> SampleRecord:
    """One request of plain tokens that took ``seconds``, half of them in target passes."""
    each = seconds / 2 / num_tokens
    rounds = tuple(a_round("p", 0, target_seconds=each) for _ in range(num_tokens))
    return text(*range(num_tokens), rounds=rounds, wall_seconds=seconds, **changes)


def scored(strict: Sequence[float], relaxed: Sequence[float], repeats: int = 1) -> Pairs:
    """Pairs with these scores, ``repeats`` in a row of one prompt."""

    def arm(name: str, scores: Sequence[float]) -> list[SampleRecord]:
        return [
            text(1, arm=name, item_id=str(i // repeats), repeat=i % repeats, score=float(score))
            for i, score in enumerate(scores)
        ]

    return Pairs.of(arm("strict", strict), arm("relaxed", relaxed))
