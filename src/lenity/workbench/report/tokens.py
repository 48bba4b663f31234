"""The token view: what each token looks like, and what is said of it when it is pointed at."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from lenity.workbench.records import KIND_LETTERS
from lenity.workbench.report.token_data import RELAXED, TokenDetail, TokenSample, TokenText

KINDS = {letter: kind for kind, letter in KIND_LETTERS.items()}
MEANINGS = {
    "accepted": "a draft token, the target's own choice",
    "relaxed": "a draft token strict would have rejected",
    "recovered": "the target's token after a rejection",
    "bonus": "the target's token after a full draft",
    "skipped": "committed without a target pass",
    "plain": "the target's token, nothing drafted",
}
PART = "·"
"""Stands for a token that is a part of the next token's character."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One token as drawn."""

    text: str
    kind: str
    """Letter, also its CSS class"""
    level: float | None
    """Regret as a share of the largest one shown, 0 to 1; none where there is no regret"""
    regret: str | None
    """Nats"""
    rank: str | None
    choice: str | None
    place: int
    """Number among the new tokens, 1 the first"""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One arm's answer as drawn."""

    text: TokenText
    tokens: tuple[Token, ...]

    @property
    def relaxed(self) -> tuple[Token, ...]:
        """The relaxed tokens, in order."""
        return tuple(token for token in self.tokens if token.kind == RELAXED)

    @property
    def facts(self) -> str:
        """What the answer came to, in a line."""
        text = self.text
        parts = [f"{len(self.tokens)} tokens"]
        if self.relaxed or text.regret_spent:
            parts.append(f"{len(self.relaxed)} relaxed, {text.regret_spent:.2f} nats spent")
        if text.score is not None:
            parts.append(f"score {text.score:g}")
        if text.finish_reason:
            parts.append(f"ended by {text.finish_reason}")
        return " · ".join(parts)


def largest_regret(samples: Iterable[TokenSample]) -> float:
    """Return the largest regret shown, nats: where the colour scale ends."""
    return max(
        (d.regret for s in samples for t in s.texts for d in t.details if d.regret is not None),
        default=0.0,
    )


def kinds_in(samples: Iterable[TokenSample]) -> list[tuple[str, str, str]]:
    """Return letter, name and meaning of the kinds that occur, in their usual order."""
    found = {letter for sample in samples for text in sample.texts for letter in text.kinds}
    return [(letter, kind, MEANINGS[kind]) for letter, kind in KINDS.items() if letter in found]


def view(text: TokenText, top: float) -> View:
    """Return an answer as drawn, on a colour scale that ends at ``top`` nats."""
    details = {detail.position: detail for detail in text.details}
    tokens = (
        _token(i, piece, kind, details.get(i), top)
        for i, (piece, kind) in enumerate(zip(text.pieces, text.kinds, strict=True))
    )
    return View(text=text, tokens=tuple(tokens))


def _token(i: int, piece: str, kind: str, detail: TokenDetail | None, top: float) -> Token:
    regret = detail.regret if detail else None
    rank = detail.rank if detail else None
    choice = detail.choice if detail else None
    return Token(
        text=visible(piece) or PART,
        kind=kind,
        level=None if regret is None else round(regret / top, 3) if top else 0.0,
        regret=None if regret is None else f"{regret:.3f}",
        rank=None if rank is None else str(rank),
        choice=None if choice is None else visible(choice),
        place=i + 1,
    )


def visible(text: str) -> str:
    """Return the text with what cannot be seen, or would turn the page around, made visible.

    A line end keeps its effect behind its mark. Control characters stand as their Unicode
    pictures; characters that only format (among them those that reverse the direction of text),
    unassigned ones and line separators as their code points.
    """
    return "".join(map(_visible, text))


def _visible(char: str) -> str:
    if char == "\n":
        return "↵\n"
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    # a joiner inside a word or an emoji draws nothing by itself and belongs where it is
    hidden = unicodedata.category(char) in ("Cc", "Cf", "Co", "Cn", "Zl", "Zp")
    return f"⟨U+{code:04X}⟩" if hidden and char not in "\u200c\u200d" else char
