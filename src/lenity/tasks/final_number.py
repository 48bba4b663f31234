"""The number an answer ends with, wherever it was put."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

# A minus counts only where it touches its number and nothing stands before it: 16-3 ends with 3.
# U+2212 is the minus of typography.
_NUMBER = re.compile(
    r"(?<![\w.])(?P<sign>[-\u2212]?)(?:[$€£]\s?)?(?P<inner>[-\u2212]?)"
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?P<power>[eE][+-]?\d+)?"
)
_MARKED = re.compile(r"####\s*(.+)")
_SAID = re.compile(r"\banswer\b[^\n.]{0,40}?(?:\bis\b|:|=)([^\n]+)", re.IGNORECASE)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A number as it was written, its value, and by which rule it was found."""

    text: str
    value: Decimal
    rule: str


def numbers(text: str) -> list[tuple[str, Decimal]]:
    """Return every number of a text, as written and as a value; thousands may have commas."""
    plain = text.replace("{,}", ",").replace("\\$", "$").replace("\\!", "").replace("\\,", "")
    found = []
    for match in _NUMBER.finditer(plain):
        digits = match["digits"].replace(",", "") + (match["power"] or "")
        sign = "-" if match["sign"] or match["inner"] else ""
        try:
            found.append((match[0], Decimal(sign + digits)))
        except InvalidOperation:  # an exponent beyond what Decimal holds
            continue
    return found


def final_number(text: str) -> Found | None:
    r"""Return the number a solution ends with.

    Looked for in this order: behind the last ``####``, in the last ``\boxed{}``, behind the last
    "answer is" (what follows its last "=", else the first number), at the very end of the text.
    """
    marked = [m[1] for m in _MARKED.finditer(text) if numbers(m[1])]
    if marked:
        return _first(marked[-1], "####")
    box = last_boxed(text)
    if box is not None and numbers(box):
        return _last(box, "boxed")
    said = [m[1] for m in _SAID.finditer(text) if numbers(m[1])]
    if said:
        _, _, right = said[-1].rpartition("=")
        return _first(right if numbers(right) else said[-1], "answer is")
    return _last(text, "last number")


def _first(text: str, rule: str) -> Found | None:
    found = numbers(text)
    return Found(text=found[0][0], value=found[0][1], rule=rule) if found else None


def _last(text: str, rule: str) -> Found | None:
    found = numbers(text)
    return Found(text=found[-1][0], value=found[-1][1], rule=rule) if found else None


def last_boxed(text: str) -> str | None:
    r"""Return what stands in the last complete ``\boxed{…}``, braces inside it included.

    A box the text breaks off in does not count. ``\boxed 5`` is taken as far as the next space.
    """
    for match in reversed(list(_BOX.finditer(text))):
        start = match.end()
        if start < len(text) and text[start] == "{":
            end = _closing_brace(text, start)
            if end is not None:
                return text[start + 1 : end].strip()
        elif bare := re.match(r"[^\s$.,;]+", text[start:]):
            return bare[0]
    return None


def _closing_brace(text: str, start: int) -> int | None:
    """Return where the brace opened at ``start`` closes; escaped braces are not counted."""
    depth, index = 0, start
    while index < len(text):
        char = text[index]
        if char == "\\":
            index += 2
            continue
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return index
        index += 1
    return None
