"""Answers token by token: what has to fit together, and how a record becomes one."""

import pytest
from pydantic import ValidationError

from lenity.workbench.records import RelaxedToken, RoundCounts
from lenity.workbench.report.token_data import TokenDetail, TokenText
from tests.workbench.made import record


def text(**changes):
    details = (TokenDetail(position=1, regret=0.5),)
    base = {"arm": "relaxed", "pieces": ("a", "b"), "kinds": "ax", "details": details}
    return TokenText(**{**base, **changes})


def test_what_fits_is_kept():
    assert text().details[0].regret == 0.5


@pytest.mark.parametrize(
    "changes",
    [
        {"pieces": ("a",)},
        {"kinds": "az"},
        {"details": ()},
        {"details": (TokenDetail(position=1),)},
        {"details": (TokenDetail(position=0, regret=1),)},
        {"details": (TokenDetail(position=1, regret=1), TokenDetail(position=1, regret=2))},
        {"details": (TokenDetail(position=1, regret=1), TokenDetail(position=2, regret=2))},
        {"details": (TokenDetail(position=1, regret=1), TokenDetail(position=7))},
    ],
)
def test_what_does_not_fit_is_refused(changes):
    with pytest.raises(ValidationError, match="relaxed: expected one"):
        text(**changes)


def test_half_a_surrogate_pair_can_be_written():
    found = text(pieces=("a\ud800", "\U0001f600"))
    assert found.pieces == ("a?", "\U0001f600")
    assert TokenText.model_validate_json(found.model_dump_json()) == found


def test_a_record_becomes_an_answer():
    counts = RoundCounts(
        drafted=2, evaluated=2, accepted=2, emitted=2, relaxed=1, regret_units=1 << 19
    )
    made = record(
        kinds="ax",
        rounds=(counts,),
        relaxed=(RelaxedToken(position=1, regret=0.5, rank=1, choice_id=9),),
        score=1.0,
        score_detail="read 9",
    )
    answer = TokenText.of(made, ["3", "4"], lambda token_id: f"<{token_id}>")
    assert answer.pieces == ("3", "4")
    assert answer.details == (TokenDetail(position=1, regret=0.5, rank=1, choice="<9>"),)
    assert (answer.regret_spent, answer.score, answer.note) == (0.5, 1.0, "read 9")


def test_a_record_without_choices_becomes_an_answer():
    counts = RoundCounts(
        drafted=2, evaluated=2, accepted=2, emitted=2, relaxed=1, regret_units=1 << 19
    )
    made = record(kinds="ax", rounds=(counts,), relaxed=(RelaxedToken(position=1, regret=0.5),))
    assert TokenText.of(made, ["3", "4"], str).details[0].choice is None
