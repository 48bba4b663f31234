"""The measure quality is judged by."""

import numpy as np

from lenity.workbench.pairing import Pairs
from lenity.workbench.quality import judge_pairs
from tests.workbench.handmade import request

KNOBS = {"margin": 0.01, "logprob_margin": 0.02, "resamples": 200}


def arm(name, scores):
    return [
        request(("ab", 1), arm=name, item_id=str(i), score=score, logprobs=(-1.0, -1.0))
        for i, score in enumerate(scores)
    ]


def judged(scores):
    pairs = Pairs.of(arm("strict", scores), arm("relaxed", scores))
    return judge_pairs(pairs, np.random.default_rng(0), **KNOBS)


def test_scores_where_the_task_carries_signal():
    verdict, signal = judged([1.0] * 40)
    assert signal.has_signal
    assert verdict.measure == "score"


def test_log_probability_where_strict_solves_nothing_or_nothing_is_scored():
    verdict, signal = judged([0.0] * 40)
    assert not signal.has_signal
    assert verdict.measure == "logprob"
    verdict, signal = judged([None] * 40)
    assert signal is None
    assert verdict.measure == "logprob"
