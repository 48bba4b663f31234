import math

import numpy as np
import pytest

from lenity.errors import ProtocolError
from lenity.workbench.pairing import Pairs, mean_logprob, score
from tests.workbench.handmade import failed, scored, text


def test_requests_are_paired_by_task_item_and_repeat():
    strict = [text(1, item_id="a"), text(2, item_id="b"), text(3, item_id="a", repeat=1)]
    relaxed = [text(6, item_id="b"), text(7, item_id="a", repeat=1), text(5, item_id="a")]
    pairs = Pairs.of(strict, relaxed)
    assert [(s.token_ids, r.token_ids) for s, r in pairs.pairs] == [
        ((1,), (5,)),
        ((2,), (6,)),
        ((3,), (7,)),
    ]
    assert pairs.excluded == ()


def test_a_pair_with_a_side_that_did_not_end_well_is_left_out_and_listed():
    strict = [text(1, item_id="a"), failed(item_id="b"), text(1, item_id="c"), text(1, item_id="d")]
    relaxed = [
        text(1, item_id="a", finish_reason="interrupted"),
        text(1, item_id="b"),
        failed(item_id="c"),
        text(1, item_id="e"),
    ]
    pairs = Pairs.of(strict, relaxed)
    assert pairs.pairs == ()
    assert pairs.excluded == (
        "toy@1 a, repeat 0: interrupted in relaxed",
        "toy@1 b, repeat 0: failed in strict (out of memory)",
        "toy@1 c, repeat 0: failed in relaxed (out of memory)",
        "toy@1 d, repeat 0: not in relaxed",
        "toy@1 e, repeat 0: not in strict",
    )


def test_a_request_that_stands_twice_is_refused():
    with pytest.raises(ProtocolError, match="toy@1 1, repeat 0, in an arm, got a second one"):
        Pairs.of([text(1), text(1)], [text(1)])


def test_a_prompt_has_one_vote_whatever_its_repeats():
    values = scored([1, 1, 0, 1], [0, 1, 0, 0], repeats=2).values(score, "score")
    assert values.prompts == (("toy@1", "0"), ("toy@1", "1"))
    np.testing.assert_array_equal(values.strict, [1, 0.5])
    np.testing.assert_array_equal(values.relaxed, [0.5, 0])
    np.testing.assert_array_equal(values.differences, [-0.5, -0.5])
    assert values.num_pairs == 4


def test_what_has_no_number_is_left_out():
    strict = [text(1, item_id=i, score=1.0) for i in "abc"]
    relaxed = [text(1, item_id="a"), *(text(1, item_id=i, score=0.0) for i in "bc")]
    values = Pairs.of(strict, relaxed).values(score, "score")
    assert values.excluded == ("toy@1 a, repeat 0: no score",)
    with pytest.raises(ProtocolError, match="at least 2 prompts with a score in both arms, got 1"):
        Pairs.of(strict[:2], relaxed[:2]).values(score, "score")


def test_the_mean_log_probability_is_per_token():
    assert mean_logprob(text(1, 2, logprobs=(-1.0, -2.0))) == -1.5
    assert mean_logprob(text(1, 2)) is None
    with pytest.raises(ProtocolError, match="finite log-probabilities, got a mean of -inf"):
        mean_logprob(text(1, logprobs=(-math.inf,)))
