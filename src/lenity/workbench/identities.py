"""What every published rate rests on, checked request by request when counters are summed."""

from __future__ import annotations

from collections.abc import Iterable

from lenity.errors import ProtocolError
from lenity.workbench.records import KIND_LETTERS, UNITS_PER_NAT, SampleRecord


def check_identities(record: SampleRecord) -> None:
    """Check what every published rate rests on. Raises ProtocolError, naming the request.

    Of a request: emitted = ids = kinds; accepted = kinds a + x; relaxed = kinds x = ledger
    entries, at the places of the x; skipped = kinds s; the ledger's charge is the sum of its
    entries (at least that where tokens were skipped, whose debt has no entry); one log-probability
    a token, or none at all. Of a round: relaxed <= accepted <= evaluated <= drafted (accepted is
    a prefix, never the sum of a mask), and at most one token a target pass beyond the accepted
    and skipped ones.
    """
    for number, counts in enumerate(record.rounds):
        is_ordered = counts.relaxed <= counts.accepted <= counts.evaluated <= counts.drafted
        added = counts.emitted - counts.accepted - counts.skipped
        if not is_ordered or not 0 <= added <= counts.target_passes:
            raise _broken(record, f"ordered counters in round {number}", str(counts))
    for expected, left, right in _sums(record):
        if left != right:
            raise _broken(record, expected, f"{left} and {right}")
    _check_charge(record)


def _sums(record: SampleRecord) -> Iterable[tuple[str, object, object]]:
    """Yield what must be equal: in words, and both sides."""
    rounds, kinds, num_tokens = record.rounds, record.kinds, len(record.token_ids)
    letters = KIND_LETTERS
    kept = kinds.count(letters["accepted"]) + kinds.count(letters["relaxed"])
    places = [i for i, kind in enumerate(kinds) if kind == letters["relaxed"]]
    yield "emitted = token ids", sum(r.emitted for r in rounds), num_tokens
    yield "kinds = token ids", len(kinds), num_tokens
    yield "accepted = kinds a + x", sum(r.accepted for r in rounds), kept
    yield "relaxed = kinds x", sum(r.relaxed for r in rounds), len(places)
    yield "skipped = kinds s", sum(r.skipped for r in rounds), kinds.count(letters["skipped"])
    yield "ledger entries at kinds x", [entry.position for entry in record.relaxed], places
    yield "known kinds only", sorted(set(kinds) - set(letters.values())), []
    yield "a log-probability for each token", len(record.logprobs) or num_tokens, num_tokens


def _check_charge(record: SampleRecord) -> None:
    charged = sum(r.regret_units for r in record.rounds)
    entered = sum(round(entry.regret * UNITS_PER_NAT) for entry in record.relaxed)
    has_debt = any(r.skipped for r in record.rounds)
    if charged < entered or (charged > entered and not has_debt):
        raise _broken(record, "charged regret = ledger entries", f"{charged} and {entered} units")


def _broken(record: SampleRecord, expected: str, got: str) -> ProtocolError:
    return ProtocolError(
        f"{record.arm}, repeat {record.repeat}, {record.task} {record.item_id}: expected "
        f"{expected}, got {got}. The counters of this run cannot be trusted; record it again."
    )
