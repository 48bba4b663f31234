"""Which measure quality is judged by, and the verdict on it: the same rule in tune and audit."""

from __future__ import annotations

import numpy as np

from lenity.workbench.pairing import Pairs
from lenity.workbench.verdicts import (
    QualityVerdict,
    SignalCheck,
    check_signal,
    judge_logprobs,
    judge_quality,
)


def judge_pairs(
    pairs: Pairs,
    rng: np.random.Generator,
    *,
    margin: float,
    logprob_margin: float,
    resamples: int,
) -> tuple[QualityVerdict, SignalCheck | None]:
    """Judge by score where the task carries signal, by the target's log-probability elsewhere.

    The check is None where nothing is scored. Raises ProtocolError below 2 prompts.
    """
    is_scored = any(strict.score is not None for strict, _ in pairs.pairs)
    signal = check_signal(pairs, margin=margin) if is_scored else None
    if signal is not None and signal.has_signal:
        return judge_quality(pairs, rng, margin=margin, resamples=resamples), signal
    return judge_logprobs(pairs, rng, margin=logprob_margin, resamples=resamples), signal
