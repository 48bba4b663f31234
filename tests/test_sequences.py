import pytest

from lenity.requests import GenerationSettings
from lenity.sequences import Commit, Sequence
from lenity.types import FinishReason, RoundRecord, TokenKind, TokenReceipt


def sequence(*, limit=None, processors=(), **changes):
    settings = GenerationSettings(**changes)
    return Sequence(
        index=0,
        name="0",
        token_ids=[5, 6, 7],
        prompt_length=3,
        settings=settings,
        policy=None,
        requested_policy="strict",
        seed=0,
        ending_ids=frozenset(),
        guarded_ids=frozenset(),
        max_length=min(limit or 10**9, 3 + settings.max_new_tokens),
        processors=processors,
    )


def commit(*token_ids, reason=None):
    receipts = tuple(
        TokenReceipt(token_id=i, kind=TokenKind.ACCEPTED, regret=0.0, logprob=0.0)
        for i in token_ids
    )
    count = len(token_ids)
    record = RoundRecord(
        drafted=count, evaluated=count, accepted=count, emitted=count, relaxed=0, regret_units=0
    )
    return Commit(receipts=receipts, record=record, finish_reason=reason)


class Listing:
    """Remembers all it was told, prompt included; may lose its patience."""

    def __init__(self, patience=10**9):
        self.patience = patience

    def start(self, prompt_ids):
        return tuple(prompt_ids)

    def advance(self, state, token_id):
        self.patience -= 1
        if self.patience < 0:
            raise KeyboardInterrupt
        return (*state, token_id)

    def apply(self, logits, state):
        return logits


@pytest.mark.parametrize(
    ("gamma", "room", "limit"), [(5, 9, 5), (5, 6, 5), (5, 5, 4), (5, 2, 1), (5, 1, 0), (0, 9, 0)]
)
def test_one_token_of_the_room_is_left_for_the_target(gamma, room, limit):
    row = sequence(gamma=gamma, max_new_tokens=room)
    assert (row.room, row.draft_limit) == (room, limit)
    assert sequence(gamma=gamma, max_new_tokens=99, limit=3 + room).draft_limit == limit


def test_a_commit_moves_everything_together():
    row = sequence(max_new_tokens=4, processors=(Listing(),), strict_after=(9,))
    row.add(commit(8, 9))
    assert row.token_ids == [5, 6, 7, 8, 9]
    assert (row.num_emitted, row.room, row.draft_limit) == (2, 2, 1)
    assert row.processor_states == ((5, 6, 7, 8, 9),)
    assert row.is_phase_over
    assert not row.is_finished
    row.add(commit(1, reason=FinishReason.STOP))
    assert row.is_finished
    assert row.is_phase_over  # once over, always over
    with pytest.raises(AssertionError, match="frozen"):
        row.add(commit(2))
    assert row.token_ids == [5, 6, 7, 8, 9, 1]


def test_the_phase_goes_on_until_its_end():
    row = sequence(strict_after=(9, 4))
    row.add(commit(5, 6))
    assert not row.is_phase_over
    row.add(commit(1, 4, 2))
    assert row.is_phase_over


@pytest.mark.parametrize("patience", range(6))
def test_a_commit_that_is_interrupted_changes_nothing(patience):
    row = sequence(processors=(Listing(), Listing(patience), Listing()), strict_after=(8,))
    before = row.processor_states
    if patience < 3:
        with pytest.raises(KeyboardInterrupt):
            row.add(commit(8, 9, 10))
        assert (row.token_ids, row.commits, row.processor_states) == ([5, 6, 7], [], before)
        assert not row.is_phase_over
    else:
        row.add(commit(8, 9, 10))
        assert row.processor_states == ((5, 6, 7, 8, 9, 10),) * 3


def test_a_commit_lists_its_tokens():
    assert commit(3, 1, 2).token_ids == (3, 1, 2)


def test_only_new_tokens_end_the_phase():
    row = sequence(strict_after=(6,))  # 6 stands in the prompt
    assert not row.is_phase_over
    row.add(commit(5, 7))
    assert not row.is_phase_over
    row.add(commit(6))
    assert row.is_phase_over
