"""Small questions with one right answer, made from templates.

A model of 135M parameters can do some of them, so that an audit on it carries signal where GSM8K
and HumanEval carry none.

Item i of a family is a function of (family, seed, i) alone; the answer is known by construction.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from lenity.errors import ConfigError
from lenity.registry import did_you_mean
from lenity.tasks.base import Item, Loaded, Score, Task, made, user
from lenity.tasks.final_number import numbers
from lenity.tasks.words import (
    ADJECTIVES,
    ANIMALS,
    CAPITALS,
    DOMAINS,
    NAMES,
    OBJECTS,
    OTHER_SPELLINGS,
    PLACES,
    SURNAMES,
    VERBS,
)

Question = tuple[str, str]
"""What is asked, and the right answer."""

_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")

_CAPITAL = (
    "What is the capital of {country}?",
    "Name the capital city of {country}.",
    "Which city is the capital of {country}?",
)
_SUM = (
    "What is {a} + {b}?",
    "Add {a} and {b}. What do you get?",
    "Calculate {a} plus {b}.",
)
_COPY = (
    "Copy this sentence exactly: {sentence}",
    "Write the following sentence again, and nothing else: {sentence}",
    "Repeat after me: {sentence}",
)
_WORD = (
    ("{name} has {a} {things} and finds {b} more. How many {things} does {name} have?", 1),
    ("There are {a} {things} on the table. {name} adds {b}. How many are there now?", 1),
    ("{name} has {a} {things} and loses {b}. How many {things} are left?", -1),
    ("There were {a} {things} in a bag. {name} took out {b}. How many are still in it?", -1),
)
_MAIL = (
    "Extract the email address from this text: {text}",
    "What is the email address in this text? {text}",
)
_LETTER = (
    "Please write to {name} {surname} at {address} before Friday.",
    "{name} {surname} moved to another office; the new address is {address}, the phone stays.",
    "For tickets to the {place}, contact {address} and ask for {name}.",
)


def _capital(draw: random.Random) -> Question:
    country = draw.choice(tuple(CAPITALS))
    return draw.choice(_CAPITAL).format(country=country), CAPITALS[country]


def _sum(draw: random.Random) -> Question:
    a, b = draw.randint(0, 9), draw.randint(0, 9)
    return draw.choice(_SUM).format(a=a, b=b), str(a + b)


def _copy(draw: random.Random) -> Question:
    adjective, other = draw.sample(ADJECTIVES, 2)
    sentence = (
        f"The {adjective} {draw.choice(ANIMALS)} {draw.choice(VERBS)} the {other} "
        f"{draw.choice(PLACES)}."
    )
    return draw.choice(_COPY).format(sentence=sentence), sentence


def _word_problem(draw: random.Random) -> Question:
    template, sign = draw.choice(_WORD)
    b = draw.randint(1, 8)
    a = draw.randint(b + 1, 12)
    text = template.format(name=draw.choice(NAMES), things=draw.choice(OBJECTS), a=a, b=b)
    return text, str(a + sign * b)


def _email(draw: random.Random) -> Question:
    name, surname = draw.choice(NAMES), draw.choice(SURNAMES)
    separator = draw.choice(("", ".", "_"))
    address = f"{name.lower()}{separator}{surname.lower()}@{draw.choice(DOMAINS)}"
    text = draw.choice(_LETTER).format(
        name=name, surname=surname, address=address, place=draw.choice(PLACES)
    )
    return draw.choice(_MAIL).format(text=text), address


FAMILIES: dict[str, Callable[[random.Random], Question]] = {
    "capital": _capital,
    "sum": _sum,
    "copy": _copy,
    "word_problem": _word_problem,
    "email": _email,
}


class SmallExact(Task):
    """Capitals, sums, copying, one-step problems, e-mail addresses: exact answers."""

    idea: ClassVar[str] = "capitals, 1-digit sums, copying, one-step problems, e-mail extraction"
    paper: ClassVar[str] = "lenity's own"
    source: ClassVar[str] = "made here from templates"
    licence: ClassVar[str] = "Apache-2.0"

    type: Literal["small_exact"] = "small_exact"
    max_new_tokens: int = Field(default=64, ge=1)
    """New tokens an answer may have where nobody says otherwise"""
    per_family: int = Field(default=60, ge=1, le=150)
    """Different questions of each family"""
    families: str = "+".join(FAMILIES)
    """Families, joined by +"""
    seed: int = 0
    """Of the questions drawn"""

    def open(self, data: str | Path | None = None) -> Loaded:
        """Return the questions, families one after the other; no data is read."""
        names = chosen_families(self.families, FAMILIES)
        items = [
            Item(
                id=f"small_exact/{family}/{index}",
                messages=(user(text),),
                prompt=f"Question: {text}\nAnswer:",
                reference=answer,
                family=family,
                about=text,
            )
            for family in names
            for index, (text, answer) in enumerate(
                distinct(FAMILIES[family], family, self.seed, self.per_family)
            )
        ]
        return made(items, "small_exact")

    def judge(self, item: Item, answer: str) -> Score:
        """Return 1 where the answer is the one by construction, by the family's own rule."""
        said = answer.split("\nQuestion:")[0]
        read = _READERS[item.family](said)
        is_right = read == item.reference
        detail = f"read {read!r}" + ("" if is_right else f"; expected {item.reference!r}")
        return Score(value=float(is_right), detail=detail, answer=read)


def chosen_families(spelled: str, known: dict[str, Any]) -> list[str]:
    """Return the families of ``a+b``. Raises ConfigError."""
    names = [name.strip() for name in spelled.split("+")]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"Unknown family {name!r}.{did_you_mean(name, known)} Families: {', '.join(known)}."
            )
    return list(dict.fromkeys(names))


def distinct(
    make: Callable[[random.Random], Question], family: str, seed: int, count: int
) -> list[Question]:
    """Return the first ``count`` different questions of a family."""
    found: dict[str, str] = {}
    index = 0
    while len(found) < count:
        text, answer = make(random.Random(f"{family}:{seed}:{index}"))
        found.setdefault(text, answer)
        index += 1
    return list(found.items())


def _read_capital(said: str) -> str | None:
    """Return the one capital that is named, in whatever spelling; several are no answer."""
    named = {
        capital
        for capital in CAPITALS.values()
        for spelling in (capital, *OTHER_SPELLINGS.get(capital, ()))
        if re.search(rf"(?<!\w){re.escape(spelling)}(?!\w)", said, re.IGNORECASE)
    }
    if len(named) > 1:
        return ", ".join(sorted(named))
    return named.pop() if named else None


def _read_number(said: str) -> str | None:
    """Return the last number of the first paragraph that has one."""
    for paragraph in said.split("\n\n"):
        if found := numbers(paragraph):
            value = found[-1][1]
            return f"{value.normalize():f}" if value else "0"
    return None


def _read_copy(said: str) -> str | None:
    """Return the answer without quotation marks around it and spaces."""
    return said.strip().strip("\"'“”*`").strip()


def _read_email(said: str) -> str | None:
    """Return the one address that is named."""
    found = sorted({match.rstrip(".").casefold() for match in _EMAIL.findall(said)})
    return ", ".join(found) if found else None


_READERS: dict[str, Callable[[str], str | None]] = {
    "capital": _read_capital,
    "sum": _read_number,
    "copy": _read_copy,
    "word_problem": _read_number,
    "email": _read_email,
}
