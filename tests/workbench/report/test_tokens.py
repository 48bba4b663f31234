"""Tokens as drawn: nothing hidden, one colour scale, every fact at hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lenity.workbench.records import KIND_LETTERS
from lenity.workbench.report.token_data import TokenDetail, TokenText
from lenity.workbench.report.tokens import (
    KINDS,
    MEANINGS,
    PART,
    kinds_in,
    largest_regret,
    view,
    visible,
)
from tests.workbench.report.sample import samples


def text(**more):
    details = (TokenDetail(position=1, regret=0.5, rank=2, choice=" b\n"),)
    base = {"arm": "relaxed", "pieces": ("a", " x", ""), "kinds": "axr", "details": details}
    return TokenText(**{**base, **more})


def test_every_kind_has_a_meaning():
    assert set(KINDS.values()) == set(KIND_LETTERS) == set(MEANINGS)


@pytest.mark.parametrize(
    ("given_text", "drawn"),
    [
        ("the", "the"),
        ("\n\n", "↵\n↵\n"),
        ("\t\x00\x1b\x7f\r", "␉␀␛␡␍"),
        ("\u202eabc", "⟨U+202E⟩abc"),
        ("\u2028", "⟨U+2028⟩"),
        ("\ufeff\u200b", "⟨U+FEFF⟩⟨U+200B⟩"),
        ("\x85", "⟨U+0085⟩"),
        ("👩\u200d👧", "👩\u200d👧"),
        ("\ufffd 雨", "\ufffd 雨"),
    ],
)
def test_what_cannot_be_seen_is_made_visible(given_text, drawn):
    assert visible(given_text) == drawn


@given(st.text(st.characters(codec="utf-8")))
def test_no_control_character_reaches_the_page(word):
    assert not {c for c in visible(word) if ord(c) < 32} - {"\n"}


def test_tokens_carry_their_facts():
    first, relaxed, part = view(text(), top=2.0).tokens
    assert (first.text, first.kind, first.level, first.place) == ("a", "a", None, 1)
    assert (relaxed.level, relaxed.regret, relaxed.rank) == (0.25, "0.500", "2")
    assert relaxed.choice == " b↵\n"
    assert part.text == PART


def test_free_exceptions_are_at_the_bottom_of_the_scale():
    free = text(details=(TokenDetail(position=1, regret=0.0),))
    assert view(free, top=0.0).tokens[1].level == 0.0


def test_the_scale_ends_at_the_largest_regret_shown():
    assert largest_regret(samples()) == 2.375
    assert largest_regret(()) == 0.0


def test_only_kinds_that_occur_are_explained():
    assert [letter for letter, _, _ in kinds_in(samples())] == list("axrbsp")
    assert kinds_in(samples())[1][1] == "relaxed"
    assert kinds_in(()) == []


def test_an_answer_says_what_it_came_to():
    shown = view(text(regret_spent=0.5, score=1.0, finish_reason="stop"), top=1.0)
    assert shown.facts == "3 tokens · 1 relaxed, 0.50 nats spent · score 1 · ended by stop"
    assert [token.place for token in shown.relaxed] == [2]
    strict = view(text(kinds="aar", details=()), top=1.0)
    assert strict.facts == "3 tokens"
