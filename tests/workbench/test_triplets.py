import numpy as np
import pytest

from lenity.errors import ProtocolError
from lenity.workbench.triplets import RunTotals, Triplet, make_triplets, prompt_gain, sort_out
from tests.workbench.handmade import failed, text, timed


def run(seconds: float, **changes: object) -> RunTotals:
    base = {"output_hash": "h", "requests": 2, "tokens": 512, "seconds": seconds}
    return RunTotals(**{**base, **changes})


def triplet(before=1.0, relaxed=1.0, after=1.0, repeat=0) -> Triplet:
    runs = [r if isinstance(r, RunTotals) else run(r) for r in (before, relaxed, after)]
    return Triplet(repeat=repeat, before=runs[0], relaxed=runs[1], after=runs[2])


def test_the_gain_is_against_the_mean_of_the_stricts_speeds():
    found = triplet(before=1.0, relaxed=0.9, after=1.02)
    assert found.strict_tokens_per_second == pytest.approx((512 + 512 / 1.02) / 2)
    assert found.gain == pytest.approx(512 / 0.9 / ((512 + 512 / 1.02) / 2) - 1)
    assert found.drift == pytest.approx((1 / 1.02 - 1) / ((1 + 1 / 1.02) / 2))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (triplet(after=1.04), "drift of -3.9% between the stricts, at most 3% allowed"),
        (triplet(before=1.04), "drift of +3.9% between the stricts, at most 3% allowed"),
        (triplet(after=run(1.0, output_hash="g")), "the stricts' outputs differ: h and g"),
        (triplet(relaxed=run(1.0, tokens=511)), "unequal work: 512 tokens of 2 requests, 511"),
        (triplet(after=run(1.0, requests=1)), "unequal work"),
        (triplet(relaxed=run(1.0, failed=1)), "[0, 1, 0] requests failed in strict, relaxed"),
        (triplet(*[run(0.0, requests=0, tokens=0)] * 3), "requests failed"),
    ],
)
def test_a_triplet_that_does_not_count_is_listed_with_its_reason(bad, reason):
    good = triplet(relaxed=run(0.9, output_hash="other"), after=1.03, repeat=7)
    found = sort_out([bad, good])
    assert [t.repeat for t in found.kept] == [7]
    assert found.dropped[0].repeat == 0
    assert reason in found.dropped[0].reason


def test_the_drift_allowed_is_a_setting():
    assert sort_out([triplet(after=1.04)], max_drift=0.05).kept
    found = sort_out([triplet(after=1.02), triplet(before=1.01)])
    assert found.largest_drift == pytest.approx(0.0198, abs=1e-4)
    assert sort_out([]).largest_drift is None


def test_the_interval_is_students_over_what_was_kept():
    found = sort_out([triplet(relaxed=r, repeat=i) for i, r in enumerate((0.9, 0.91, 0.92))])
    assert found.interval.num_units == 3
    assert found.interval.estimate == pytest.approx(np.mean(found.gains))
    assert sort_out([triplet()]).interval is None


def arms(repeat: int, seconds=(1.0, 0.8, 1.0)) -> list:
    names = ("strict-a", "fast", "strict-b")
    return [
        timed(s * scale, arm=name, item_id=item, repeat=repeat)
        for name, s in zip(names, seconds, strict=True)
        for item, scale in (("1", 1.0), ("2", 3.0), ("3", 2.0))
    ]


def test_triplets_are_made_from_records_by_repeat():
    records = [*arms(0), *arms(1, (1.0, 0.8, 1.1)), *arms(2)[:6], *arms(3, (1.0, 0.5, 1.01))]
    found = make_triplets(records, "fast")
    assert [t.repeat for t in found.kept] == [0, 3]
    assert found.kept[0].gain == pytest.approx(0.25)
    assert [(d.repeat, d.reason[:17]) for d in found.dropped] == [
        (1, "drift of -9.5% be"),
        (2, "no records of str"),
    ]
    decode = make_triplets(records, "fast", clock="decode").kept[0]
    assert decode.relaxed.seconds == pytest.approx(found.kept[0].relaxed.seconds / 2)


def test_stricts_whose_outputs_differ_are_seen_whatever_the_order():
    records = arms(0)
    assert make_triplets(records[::-1], "fast").kept
    other = records[-1].model_copy(update={"token_ids": (9, 8, 7, 6)})
    assert "outputs differ" in make_triplets([*records[:-1], other], "fast").dropped[0].reason


def test_a_failed_request_drops_its_triplet():
    records = [*arms(0)[:-1], failed(arm="strict-b", item_id="3")]
    assert "[0, 0, 1] requests failed" in make_triplets(records, "fast").dropped[0].reason
    all_failed = [failed(arm=name) for name in ("strict-a", "fast", "strict-b")]
    assert "[1, 1, 1] requests failed" in make_triplets(all_failed, "fast").dropped[0].reason


def test_a_run_without_times_has_no_speed():
    with pytest.raises(ProtocolError, match="wall seconds above 0"):
        RunTotals.of([text(1)])


def test_the_gain_over_prompts_sums_kept_repeats_of_both_stricts():
    records = [*arms(0), *arms(1, (1.0, 0.8, 1.1)), *arms(3, (1.0, 0.5, 1.01))]
    triplets = make_triplets(records, "fast")
    found = prompt_gain(records, triplets, "fast", np.random.default_rng(0), resamples=200)
    # repeat 1 was dropped: relaxed 1.3 for two passes, strict 4.01 for four
    assert found.estimate == pytest.approx((2 / 1.3) / (4 / 4.01) - 1)
    assert found.num_units == 3
    assert found.low == pytest.approx(found.high)
