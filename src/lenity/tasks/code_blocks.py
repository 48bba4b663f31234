"""A program from a reply: out of fences, out of prose, or as the continuation of a stub."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings

_FENCE = re.compile(
    r"^[ \t]*(```+|~~~+)[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.M | re.S
)
_FENCE_LINE = re.compile(r"^[ \t]*(?:```+|~~~+)[ \t]*([\w+-]*)[^\n]*$", re.M)
_CODE_LINE = re.compile(
    r"(?:from\s+\w|import\s+\w|def\s+\w|async\s+def\s|class\s+\w|@\w|[A-Za-z_]\w*\s*=\s*\S)"
)


def solution(reply: str, *, entry_point: str, stub: str = "") -> str:
    """Return a program that should define ``entry_point``.

    ``stub`` is the beginning of a program that the reply may go on with: imports, helpers, a
    signature. A reply that defines the function itself is put behind what the stub has before it.
    Looked for in this order: the first fenced block that defines the function, the function in
    unfenced text, a fenced block or the text itself as continuation of the stub.
    """
    blocks = [textwrap.dedent(match[3]) for match in _FENCE.finditer(reply)]
    for block in blocks:
        if defines(block, entry_point):
            return _before(stub, entry_point) + _parsable(block)
    fences = _FENCE_LINE.findall(reply)
    if len(fences) % 2 and not fences[0]:  # it closes what the prompt opened
        reply, blocks = _FENCE_LINE.split(reply)[0], []
    if not blocks and defines(reply, entry_point):
        return _before(stub, entry_point) + _parsable(_from_first_code_line(reply))
    rest = blocks[0] if blocks else reply
    return stub + _continuation(stub, rest) if stub else rest


def defines(text: str, name: str) -> bool:
    """Return whether a function of this name is defined at the left margin."""
    return re.search(rf"^(?:async\s+)?def\s+{re.escape(name)}\s*\(", text, re.M) is not None


def _before(stub: str, entry_point: str) -> str:
    """Return what the stub has before the function itself."""
    match = re.search(rf"^(?:async\s+)?def\s+{re.escape(entry_point)}\s*\(", stub, re.M)
    return stub[: match.start()] if match else ""


def _from_first_code_line(text: str) -> str:
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if _CODE_LINE.match(line)), 0)
    return "\n".join(lines[first:])


def _parsable(code: str) -> str:
    """Return the longest beginning of some code, in whole lines, that is Python; else all of it."""
    lines = code.split("\n")
    for end in range(len(lines), 0, -1):
        text = "\n".join(lines[:end])
        if is_python(text):
            return text + "\n"
    return code


def _continuation(stub: str, text: str) -> str:
    """Return what goes behind the stub: as far as the text is indented, indented if it lost that.

    Decoders strip what a text begins with, so the first line, or all of them, may be too far left.
    """
    text = text.lstrip("\n")
    first, newline, rest = text.partition("\n")
    if not first or first[0].isspace():
        return _indented_part(text)
    first_moved = "    " + first + newline + _indented_part(rest)
    if rest.strip() and not rest.lstrip("\n")[0].isspace():
        all_moved = textwrap.indent(text, "    ")
        return all_moved if is_python(stub + all_moved) else first_moved
    return first_moved


def _indented_part(text: str) -> str:
    """Return the lines before the first that stands at the left margin."""
    kept = []
    for line in text.split("\n"):
        if line and not line[0].isspace():
            break
        kept.append(line)
    return "\n".join(kept) + "\n"


def is_python(code: str) -> bool:
    """Return whether Python can read a program; nothing of it is run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes such as "\d" are no concern of ours
            ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
