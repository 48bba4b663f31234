"""A request at rest: a line whose counters do not add up is refused."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from lenity.types import UNITS_PER_NAT as LIVE_UNITS
from lenity.types import TokenKind
from lenity.workbench.records import (
    KIND_LETTERS,
    UNITS_PER_NAT,
    RelaxedToken,
    RoundCounts,
    SampleRecord,
    hash_ids,
)
from tests.workbench.handmade import request


def test_kinds_and_units_are_those_of_the_loop():
    assert set(KIND_LETTERS) == {kind.value for kind in TokenKind}
    assert len(set(KIND_LETTERS.values())) == len(KIND_LETTERS)
    assert UNITS_PER_NAT == LIVE_UNITS


def test_a_line_comes_back_as_it_was():
    record = request(("axr", 3), ("aab", 2), score=0.5, logprobs=(-0.5,) * 5 + (float("nan"),))
    again = SampleRecord.model_validate_json(record.model_dump_json())
    assert again.model_dump_json() == record.model_dump_json()
    assert again.key == ("relaxed", 0, "toy@1", "1")
    assert again.regret_spent == 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_ids": (1, 2)}, "these must agree"),
        ({"kinds": "aa"}, "these must agree"),
        ({"relaxed": ()}, "1 relaxed kinds and 0 ledger entries"),
        ({"status": "failed"}, "a failed request needs its error"),
        ({"unknown": 1}, "Extra inputs"),
    ],
)
def test_what_does_not_add_up_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        request(("axr", 3), **changes)


def test_counters_out_of_order_are_refused():
    bad = RoundCounts(drafted=2, evaluated=3, accepted=0, emitted=1, relaxed=0, regret_units=0)
    with pytest.raises(ValidationError, match="counters out of order"):
        request(bad, token_ids=(1,), kinds="r")


def test_a_failed_request_needs_nothing_but_its_error():
    record = SampleRecord(arm="a", task="t", item_id="i", status="failed", error="boom")
    assert record.token_ids == ()


@pytest.mark.parametrize("regret", [-0.1, float("nan")])
def test_a_price_is_a_number_of_at_least_nothing(regret):
    with pytest.raises(ValidationError):
        RelaxedToken(position=0, regret=regret)


def test_hashes_tell_sequences_apart():
    assert hash_ids([1, 23]) != hash_ids([12, 3])
    assert hash_ids([]) != hash_ids([0])
    assert len(hash_ids(range(9))) == 16


def test_reading_needs_no_torch():
    code = "import sys, lenity.workbench.records; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
