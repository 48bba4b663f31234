"""What passes between stages refuses what does not fit, and rates come from counts."""

import dataclasses

import jaxtyping
import pytest
import torch

from lenity.errors import ShapeError
from lenity.types import (
    Draft,
    FinishReason,
    Generation,
    RoundRecord,
    Scores,
    StageSeconds,
    TokenKind,
    TokenReceipt,
)


def ints(*shape):
    return torch.zeros(*shape, dtype=torch.int64)


def record(**changes):
    counts = {"drafted": 4, "evaluated": 4, "accepted": 3, "emitted": 4, "relaxed": 1}
    return RoundRecord(**(counts | {"regret_units": 1 << 19} | changes))


def generation(rounds, num_tokens, receipt=()):
    return Generation(
        prompt_ids=(1, 2),
        token_ids=tuple(range(num_tokens)),
        text=None,
        finish_reason=FinishReason.LENGTH,
        stop_match=None,
        receipt=receipt,
        rounds=tuple(rounds),
        requested_policy="strict",
        effective_policy="strict",
        drafter="ngram",
        gamma=4,
    )


def test_a_draft_knows_its_padded_width():
    assert Draft(token_ids=ints(2, 3), lengths=ints(2)).gamma == 3
    assert Draft(token_ids=ints(2, 0), lengths=ints(2)).gamma == 0


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((2, 3), (3,)), ((2, 3), (2, 1))])
def test_a_draft_is_one_block_per_request(shapes, monkeypatch):
    """In production nobody checks annotations, so the class checks by itself."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    ids, lengths = shapes
    with pytest.raises(ShapeError, match=r"Draft expects token_ids \(B, G\).*, got .*Pad"):
        Draft(token_ids=ints(*ids), lengths=ints(*lengths))


def test_scores_have_a_bonus_row():
    fields = {"top_id": ints(1, 3), "top_logit": torch.zeros(1, 3)}
    narrow, wide = torch.zeros(1, 2), torch.zeros(1, 3)
    assert Scores(**fields, draft_logit=narrow, regret=narrow).logits is None
    with pytest.raises(ShapeError, match=r"got 3 rows for 3 draft positions.*bonus token"):
        Scores(**fields, draft_logit=wide, regret=wide)


@pytest.mark.parametrize(
    "changes",
    [
        {"accepted": 5, "evaluated": 4},
        {"evaluated": 5, "drafted": 4},
        {"relaxed": 4, "accepted": 3},
    ],
)
def test_a_round_cannot_count_more_than_there_was(changes):
    with pytest.raises(AssertionError):
        record(**changes)


def test_a_round_may_count_everything():
    assert record(accepted=4, relaxed=4).relaxed == 4


def test_what_passes_on_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        record().accepted = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        Draft(token_ids=ints(1, 1), lengths=ints(1)).lengths = ints(1)


def test_seconds_add_up():
    assert StageSeconds().total == 0
    assert StageSeconds(draft=1.0, target=2.0, verify=4.0, commit=8.0).total == 15
    assert record().seconds == StageSeconds()


def test_rates_are_made_from_sums():
    """Three rounds, five passes, ten tokens: the mean of the rounds' rates is another."""
    rounds = [
        record(),
        record(drafted=2, evaluated=1, accepted=0, emitted=1, relaxed=0, regret_units=0),
        record(accepted=4, emitted=5, relaxed=2, regret_units=3 << 20, target_passes=3),
    ]
    out = generation(rounds, num_tokens=10)
    assert out.num_target_passes == 5
    assert out.num_relaxed == 3
    assert out.regret_spent == 3.5
    assert out.tokens_per_round == pytest.approx(10 / 3)
    assert out.tokens_per_target_pass == 2
    assert out.relaxed_share == 0.3
    assert out.acceptance_rate == pytest.approx(7 / 9)


def test_nothing_has_rates_of_zero():
    out = generation([], num_tokens=0)
    assert out.tokens_per_round == out.tokens_per_target_pass == 0
    assert out.relaxed_share == out.acceptance_rate == out.regret_spent == 0
    plain = [record(drafted=0, evaluated=0, accepted=0, emitted=1, relaxed=0, regret_units=0)]
    assert generation(plain, num_tokens=1).acceptance_rate == 0


def test_logprobs_are_read_off_the_receipt():
    receipt = tuple(
        TokenReceipt(token_id=i, kind=TokenKind.ACCEPTED, regret=0.0, logprob=-float(i))
        for i in range(3)
    )
    assert generation([record()], 3, receipt).logprobs == (0.0, -1.0, -2.0)
    assert receipt[0].top_logprobs == ()


def test_kinds_and_reasons_are_their_own_spelling():
    assert f"{TokenKind.RELAXED} {FinishReason.STOP}" == "relaxed stop"
    assert TokenKind("skipped") is TokenKind.SKIPPED
