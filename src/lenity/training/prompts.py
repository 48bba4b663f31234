"""lenity's own prompts: templates filled from word lists, by family, in a fixed order.

They are written for this project, so that a drafter trained on a model's replies to them rests on
no test set. Prompt i of a family is a function of i alone; held-out prompts are those whose hash
falls into a fixed tenth, so a prompt is never on both sides.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator

NAMES = (
    "Ada Ben Chloe Dan Elena Farid Grace Hugo Iris Jonas Kira Liam Mei Noor Omar Priya Quinn Rosa "
    "Sam Tara Uma Victor Wren Yusuf Zoe"
).split()
THINGS = (
    "apples pencils stickers marbles books cookies tickets stamps shells coins cards flowers "
    "oranges bottles plates chairs lamps buttons candles toys"
).split()
PLACES = (
    "shop library market school garden museum bakery farm station park office kitchen harbour "
    "workshop bookshop"
).split()
TOPICS = (
    "the water cycle|photosynthesis|how bread rises|why the sky is blue|the phases of the moon|"
    "how vaccines work|gravity|how a bicycle stays upright|recycling|the history of writing|"
    "volcanoes|how rainbows form|the human heart|solar power|how bees make honey|earthquakes|"
    "healthy sleep|how computers store numbers|the seasons|electric cars|tides|coral reefs|"
    "how glass is made|friendship|learning a new language|time management|saving money|"
    "public speaking|growing tomatoes|caring for a cat|writing a letter|planning a trip|"
    "regular exercise|making coffee|teamwork|reading maps|the internet|black holes|penguins|trees"
).split("|")
FUNCTIONS = (
    "returns the sum of a list of numbers|returns the largest number of a list|reverses a string|"
    "counts the vowels in a string|checks whether a number is prime|computes a factorial|"
    "returns the n-th Fibonacci number|removes duplicates from a list|checks for a palindrome|"
    "counts how often each word occurs in a text|merges two sorted lists|flattens a nested list|"
    "converts Celsius to Fahrenheit|finds the second largest number of a list|sorts a list of "
    "tuples by the second item|computes the average of a list|returns the common items of two "
    "lists|reads a file and returns its lines|capitalises every word of a sentence|"
    "computes the greatest common divisor of two numbers|checks whether two strings are anagrams|"
    "returns all even numbers of a list|transposes a matrix|rotates a list by k places|"
    "counts the digits of a number|finds the longest word of a sentence"
).split("|")
FIELDS = "name age city job email colour country hobby height language pet team".split()

_MATHS = (
    "{a} has {m} {x}. {b} gives {a} {n} more. How many {x} does {a} have now?",
    "A {p} sells {x} for {n} dollars each. {a} buys {m} of them. How much does {a} pay?",
    "{a} had {big} {x} and gave {n} to {b}. How many {x} are left? Explain step by step.",
    "There are {m} boxes with {n} {x} in each box. How many {x} are there in total?",
    "{a} reads {m} pages every day. How many pages does {a} read in {n} days?",
    "What is {big} plus {m}? Show your work.",
    "{a} and {b} share {big} {x} equally. How many does each get?",
)
_CODE = (
    "Write a Python function that {f}.",
    "Write a Python function called solve that {f}. Add a docstring.",
    "Write a Python function that {f} and show an example of how to use it.",
    "Write a Python class with a method that {f}.",
    "Write two Python functions: one that {f}, and one that {g}.",
    "Write a Python program with a function that {f} and a main part that also {g}.",
    "Write unit tests for a Python function that {f} and another that {g}.",
)
_CHAT = (
    "Explain {t} in a few sentences.",
    "Explain {t} to a child.",
    "Give me five tips about {t}.",
    "Write a short paragraph about {t}.",
    "What are the main points to know about {t}?",
    "Write an email to {a} about {t}.",
    "Write a short story about {a} and {b} in a {p}.",
    "List three questions about {t} and answer them.",
)
_DATA = (
    "Write a JSON object with the fields {f1}, {f2} and {f3} for a person called {a}.",
    "Make a JSON list of three people with the fields {f1} and {f2}.",
    "Make a table with the columns {f1}, {f2} and {f3} and three rows.",
    "List ten {x} or things you can find in a {p}, one per line, numbered.",
    "Count from {n} to {m2}, one number per line.",
    "Repeat this sentence three times: {a} and {b} met at the {p} to trade {x}.",
)

FAMILIES: dict[str, tuple[str, ...]] = {
    "maths": _MATHS,
    "code": _CODE,
    "chat": _CHAT,
    "data": _DATA,
}


def prompt(family: str, index: int) -> str:
    """Return prompt ``index`` of a family; the same for ever."""
    draw = random.Random(f"{family}:{index}")
    a, b = draw.sample(NAMES, 2)
    f, g = draw.sample(FUNCTIONS, 2)
    f1, f2, f3 = draw.sample(FIELDS, 3)
    n = draw.randint(2, 12)
    templates = FAMILIES[family]
    return templates[index % len(templates)].format(
        a=a,
        b=b,
        p=draw.choice(PLACES),
        x=draw.choice(THINGS),
        t=draw.choice(TOPICS),
        f=f,
        g=g,
        f1=f1,
        f2=f2,
        f3=f3,
        n=n,
        m=draw.randint(3, 40),
        m2=n + draw.randint(8, 25),
        big=draw.randint(41, 120),
    )


def is_held_out(text: str) -> bool:
    """Return whether a prompt belongs to the tenth that is never trained on."""
    return hashlib.sha256(text.encode()).digest()[0] % 10 == 0


def prompts(families: tuple[str, ...], count: int, *, held_out: bool) -> Iterator[tuple[str, str]]:
    """Yield ``count`` distinct (family, prompt) pairs of one side, families taking turns.

    A family whose templates are exhausted drops out; the iteration ends when all have.
    """
    seen: set[str] = set()
    index, idle = 0, 0
    while len(seen) < count and idle < 2000:
        idle += 1
        for family in families:
            text = prompt(family, index)
            if text not in seen and is_held_out(text) == held_out and len(seen) < count:
                seen.add(text)
                idle = 0
                yield family, text
        index += 1
