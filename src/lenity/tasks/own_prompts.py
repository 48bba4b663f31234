"""lenity's own prompts without right answers, by family: for speed, lengths and log-probabilities.

Prompt i of a family is a function of (family, seed, i) alone. The templates are other ones than
those drafters are trained on.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from lenity.tasks.base import Item, Loaded, Task, made, user
from lenity.tasks.small_exact import chosen_families, distinct
from lenity.tasks.words import (
    ADJECTIVES,
    ANIMALS,
    COLUMNS,
    NAMES,
    OBJECTS,
    PLACES,
    ROUTINES,
    SUBJECTS,
    VERBS,
)

FAMILIES: dict[str, tuple[str, ...]] = {
    "chat": (
        "Tell me about {subject} in a short text.",
        "I would like to understand {subject}. Where should I begin?",
        "Give three facts about {subject}, and say why each matters.",
        "Compare {subject} with {other_subject} in one paragraph.",
        "Write a conversation between {name} and {other_name} about {subject}.",
    ),
    "code": (
        "Implement a Python function that {routine}. Include type hints.",
        "Write Python code that {routine}, then test it with two assertions.",
        "Show how to write a function in Python that {routine}, and explain each line.",
        "Write a small Python module: one function that {routine}, another that {other_routine}.",
    ),
    "maths": (
        "{name} packs {a} {things} into each of {b} crates. How many are packed? Show how.",
        "A train carries {big} people. At the {place} {a} get off, {b} get on. How many are on it?",
        "Tickets cost {b} euros. {name} buys {a} and pays with {big} euros. Work out the change.",
        "{name} runs {a} km on Monday and {b} km on each of the next three days. How far in all?",
        "Multiply {a} by {b}, then subtract {b}. Explain every step.",
    ),
    "data": (
        "Return a JSON array of four objects with the keys {c1}, {c2} and {c3}.",
        "Write a CSV file with the columns {c1}, {c2}, {c3} and five made-up rows.",
        "Make a Markdown table of {things} with the columns {c1} and {c2}, six rows long.",
        "List the numbers from {a} to {above}, one per line, each with its square.",
        "Write a YAML document that describes {name}: give {c1}, {c2} and {c3}.",
    ),
    "rewrite": (
        "Rewrite this text in the past tense: {story}",
        "Summarise this text in one sentence: {story}",
        "Correct the spelling of this text, and change nothing else: {story}",
        "Write this text again with {other_name} in place of {name}: {story}",
        "List every name and place in this text: {story}",
    ),
}

_SENTENCES = (
    "{name} and {other_name} meet at the {place} every morning.",
    "A {adjective} {animal} lives near the {place}, and it {verb} the garden twice.",
    "They carry {a} {things} in a {adjective} box.",
    "When it rains, {name} waits under the roof of the {place}.",
    "{other_name} has counted {b} {things} and wants to find the rest.",
    "In the evening they write down what the {animal} did.",
)


def _prompt(family: str, draw: random.Random) -> tuple[str, str]:
    """Return a prompt, and no answer."""
    name, other_name = draw.sample(NAMES, 2)
    subject, other_subject = draw.sample(SUBJECTS, 2)
    routine, other_routine = draw.sample(ROUTINES, 2)
    c1, c2, c3 = draw.sample(COLUMNS, 3)
    a = draw.randint(3, 19)
    words = {
        "name": name,
        "other_name": other_name,
        "subject": subject,
        "other_subject": other_subject,
        "routine": routine,
        "other_routine": other_routine,
        "c1": c1,
        "c2": c2,
        "c3": c3,
        "a": a,
        "above": a + draw.randint(6, 15),
        "b": draw.randint(2, 12),
        "big": draw.randint(240, 400),
        "things": draw.choice(OBJECTS),
        "place": draw.choice(PLACES),
        "adjective": draw.choice(ADJECTIVES),
        "animal": draw.choice(ANIMALS),
        "verb": draw.choice(VERBS),
    }
    story = " ".join(s.format(**words) for s in draw.sample(_SENTENCES, 4))
    return draw.choice(FAMILIES[family]).format(story=story, **words), ""


class OwnPrompts(Task):
    """Chat, code, maths, data and rewriting prompts of lenity's own; no scorer."""

    idea: ClassVar[str] = "chat, code, maths, data and rewriting prompts, no scorer"
    paper: ClassVar[str] = "lenity's own"
    source: ClassVar[str] = "made here from templates"
    licence: ClassVar[str] = "Apache-2.0"

    type: Literal["own_prompts"] = "own_prompts"
    max_new_tokens: int = Field(default=256, ge=1)
    """New tokens an answer may have where nobody says otherwise"""
    per_family: int = Field(default=40, ge=1, le=400)
    """Different prompts of each family"""
    families: str = "+".join(FAMILIES)
    """Families, joined by +"""
    seed: int = 0
    """Of the prompts drawn"""

    @property
    def has_scorer(self) -> bool:
        """Return False: there are no right answers."""
        return False

    def open(self, data: str | Path | None = None) -> Loaded:
        """Return the prompts, families one after the other; no data is read."""
        items = []
        for family in chosen_families(self.families, FAMILIES):
            make = partial(_prompt, family)
            found = distinct(make, family, self.seed, self.per_family)
            items += [
                Item(
                    id=f"own_prompts/{family}/{index}",
                    messages=(user(text),),
                    prompt=f"{text}\n\n",
                    family=family,
                    about=text,
                )
                for index, (text, _) in enumerate(found)
            ]
        return made(items, "own_prompts")
