"""Inputs and outputs of MBPP+: which Python values JSON stood for, and when two outputs agree.

The release stores inputs as JSON, so a tuple became a list and a complex number a text. The calls
in a row's own assertions show what each argument is; inputs take that shape.

When outputs agree is what EvalPlus does (Liu et al. 2023, arXiv 2305.01210): equal, or floats
within a tolerance, or equal as sets for tasks whose order is open, or a truth value where any match
will do. Its special cases for Mbpp/558 and Mbpp/581 (another formula counts too) are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

UNORDERED = frozenset(
    {
        "similar_elements",
        "find_char_long",
        "common_in_nested_lists",
        "extract_singly",
        "larg_nnum",
        "intersection_array",
        "find_dissimilar",
        "Diff",
    }
)
"""Functions whose result is a set in any order."""

MATCHING = frozenset({"check_str", "text_match_three", "text_starta_endb"})
"""Functions that say whether something matches: true or a match, false or None."""


def example_calls(assertions: str, entry_point: str) -> list[list[Any]]:
    """Return the literal arguments of every call of ``entry_point`` in some assertions."""
    calls = []
    for node in ast.walk(ast.parse(assertions)):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if is_call and node.func.id == entry_point:  # type: ignore[attr-defined]
            try:
                calls.append([ast.literal_eval(a) for a in node.args])  # type: ignore[attr-defined]
            except ValueError:  # an argument that is computed shows no shape
                continue
    return calls


def shaped(inputs: Sequence[Sequence[Any]], examples: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return inputs, each a list of arguments, in the shape that the examples show."""
    return [
        [
            _argument(value, [call[place] for call in examples if place < len(call)])
            for place, value in enumerate(arguments)
        ]
        for arguments in inputs
    ]


def _argument(value: Any, examples: list[Any]) -> Any:
    """Return an argument; a text where all examples are numbers is a number, if it reads as one."""
    if isinstance(value, str) and examples and all(isinstance(e, _NUMBERS) for e in examples):
        for read in (int, float, complex):
            try:
                return read(value)
            except ValueError:
                continue
    return _shape(value, examples, list)


_NUMBERS = (int, float, complex)


def _shape(value: Any, examples: list[Any], around: type) -> Any:
    """Return a value whose lists are what the examples have there, or what is around them."""
    if isinstance(value, dict):
        inside = [v for e in examples if isinstance(e, dict) for v in e.values()]
        return {key: _shape(held, inside, list) for key, held in value.items()}
    if not isinstance(value, list):
        return value
    alike = [e for e in examples if isinstance(e, list | tuple | set)]
    kinds = {type(e) for e in alike} or {around}
    kind = kinds.pop() if len(kinds) == 1 else list
    inside = [v for e in alike for v in e]
    return kind(_shape(held, inside, kind) for held in value)


def agree(got: Any, wanted: Any, tolerance: float, how: str = "equal") -> bool:
    """Return whether an output is what was wanted; ``how`` is equal, set or match.

    A tolerance of 0 is 1e-6 where a float was wanted. The source of this function is also run in
    the sandbox, so it uses nothing from outside itself.
    """
    if how == "set":
        return bool(set(got) == set(wanted))
    if how == "match":
        return bool(got == wanted if isinstance(got, bool) else bool(wanted) == (got is not None))
    if got == wanted:
        return True
    if isinstance(wanted, float) or (tolerance > 0 and isinstance(wanted, int | float)):
        if isinstance(got, bool) or not isinstance(got, int | float):
            return False
        if got != got or wanted != wanted:
            return got != got and wanted != wanted
        return bool(abs(got - wanted) <= (tolerance or 1e-6) + 1e-7 * abs(wanted))
    if isinstance(wanted, list | tuple):
        return (
            type(got) is type(wanted)
            and len(got) == len(wanted)
            and all(agree(g, w, tolerance) for g, w in zip(got, wanted, strict=True))
        )
    return False
