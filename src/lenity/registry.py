"""Names to classes, imported only when asked for; and the one spelling of a setting.

``asd:budget=8,gate=0.25,block_cap=2`` is a *spec*: a registered name and knobs. The same spelling
is used on the command line, in files, in plot legends and in test ids.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from lenity.errors import ConfigError, RegistryError
from lenity.paths import expanded

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)


class Registry:
    """A table of names and ``"module:Attribute"`` targets, loaded on first use.

    Third parties add entries through the entry-point group ``lenity.<plural kind>``.
    """

    def __init__(self, kind: str, table: Mapping[str, str]) -> None:
        """Name the kind of thing (``policy``) and list what lenity ships."""
        self.kind, self._table = kind, dict(table)

    def names(self) -> tuple[str, ...]:
        """Return every registered name, sorted."""
        return tuple(sorted(self._targets()))

    def load(self, name: str) -> Any:
        """Return what ``name`` stands for. Raises RegistryError with the nearest names."""
        # our own table first: entry points are read from disk
        targets = self._table if name in self._table else self._targets()
        if name not in targets:
            raise RegistryError(
                f"Unknown {self.kind} {name!r}.{did_you_mean(name, targets)} "
                f"Available: {', '.join(self.names())}."
            )
        module, _, attribute = targets[name].partition(":")
        return getattr(import_module(module), attribute)

    def build(self, base: type[T], spec: str | T, knobs: Mapping[str, object]) -> T:
        """Return what a spec names, built with its own knobs and ``knobs``, which win.

        An instance of ``base`` is returned as it is. Raises RegistryError for an unknown name and
        ConfigError for an unknown or unusable knob.
        """
        if isinstance(spec, base):
            return spec
        name, written = split_spec(str(spec))
        built: T = build_knobs(self.load(name), {**written, **knobs}, f"{self.kind} {name!r}")
        return built

    def _targets(self) -> dict[str, str]:
        group = f"lenity.{self.kind.replace('policy', 'policie')}s"
        return {e.name: e.value for e in entry_points(group=group)} | self._table


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest known names, or nothing."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
    close = close or difflib.get_close_matches(name.lower(), known, n=2, cutoff=0.5)
    return f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Split ``"name:knob=value,..."`` into name and raw knobs. Raises ConfigError."""
    name, _, tail = spec.strip().partition(":")
    knobs: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in tail.split(","))):
        key, equals, value = item.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ConfigError(
                f"Expected knob=value in {spec!r}, got {item!r}. Write for example "
                f"'asd:budget=8,gate=0.25,block_cap=2'."
            )
        if key.strip() in knobs:
            raise ConfigError(f"Knob {key.strip()!r} stands twice in {spec!r}. Keep one of them.")
        knobs[key.strip()] = value.strip()
    return name.strip(), knobs


def join_spec(name: str, knobs: Mapping[str, object]) -> str:
    """Return the spec of a name and its knobs; the inverse of split_spec."""
    body = ",".join(f"{key}={_spell(value)}" for key, value in knobs.items())
    return f"{name}:{body}" if body else name


def _spell(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)


def build_knobs(model: type[BaseModel], knobs: Mapping[str, object], owner: str) -> Any:
    """Return ``model(**knobs)``, with errors that teach.

    ``"none"`` stands for None. Unknown knobs are refused with the nearest name; a value out of
    range says what the knob expects. Raises ConfigError.
    """
    for key in knobs:
        if key not in model.model_fields:
            fields = [name for name in model.model_fields if name != "type"]
            raise ConfigError(
                f"{owner} has no knob {key!r}.{did_you_mean(key, fields)} "
                f"Its knobs: {', '.join(fields) or 'none'}."
            )
    values = {k: None if _is_none(v, model.model_fields[k]) else v for k, v in knobs.items()}
    try:
        return model(**values)
    except ValidationError as error:
        raise ConfigError(explain(error, model, owner)) from None


def _is_none(value: object, field: FieldInfo) -> bool:
    """Return whether a knob that may be None is spelled ``none``."""
    return value in ("none", "None") and type(None) in get_args(field.annotation)


_EXPECTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "enum": "{expected}",
    "extra_forbidden": "no field of this name",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer of fewer digits",
    "int_type": "an integer",
    "is_instance_of": "a {class}",
    "json_invalid": "JSON",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "none_required": "none",
    "string_pattern_mismatch": "a text like {pattern}",
    "string_type": "a text",
    "too_long": "at most {max_length} items",
    "too_short": "at least {min_length} items",
    "tuple_type": "a list",
}
"""What a knob expected, by pydantic's name of the error; values in braces are in its context."""

_OURS = ("value_error", "assertion_error")
"""Errors that a validator wrote itself."""

LONGEST_INPUT = 120
"""Characters of a refused value that are shown."""


def explain(error: ValidationError, model: type[BaseModel], owner: str, noun: str = "knob") -> str:
    """Return what was expected of each field of ``model`` and what came, a line per field.

    In our words, so that the same mistake reads the same in a spec, a call and a file. ``noun`` is
    what a field is called.
    """
    by_field: dict[tuple[int | str, ...], list[ErrorDetails]] = {}
    for item in error.errors(include_url=False):
        where = item["loc"]
        # where several types are allowed, pydantic's places name the type that was tried
        by_field.setdefault(where[:1] if _is_choice(model, where) else where, []).append(item)
    return "\n".join(
        _explain_field(at, found, model, owner, noun) for at, found in by_field.items()
    )


def explain_file(error: ValidationError, model: type[BaseModel], file: object) -> str:
    """Return the first thing wrong with a file that holds ``model``: file, field, what came."""
    line = explain(error, model, str(file), "field").splitlines()[0]
    first = error.errors(include_url=False)[0]
    is_unknown = first["type"] == "extra_forbidden" and len(first["loc"]) == 1
    return line + (did_you_mean(str(first["loc"][0]), model.model_fields) if is_unknown else "")


def read_file(model: type[ModelT], file: str | Path, *, expected: str, advice: str) -> ModelT:
    """Return what a JSON file holds.

    Raises ConfigError: ``expected``, what came (file and field), and ``advice``.
    """
    try:
        return model.model_validate_json(expanded(file).read_bytes())
    except (OSError, ValueError) as error:  # a name may be none at all
        reason = f"{str(error).rstrip('.')}."
        if isinstance(error, ValidationError):
            reason = explain_file(error, model, file)
        raise ConfigError(f"Expected {expected}. {reason} {advice}") from None


def explain_value(error: ValidationError) -> str:
    """Return what was expected of a value that is no model's field, and what came."""
    return _compare(error.errors(include_url=False))


def _is_choice(model: type[BaseModel], where: tuple[int | str, ...]) -> bool:
    field = model.model_fields.get(str(where[0])) if where else None
    options = () if field is None else get_args(field.annotation)
    return get_origin(getattr(field, "annotation", None)) in (Union, UnionType) and (
        len([option for option in options if option is not type(None)]) > 1
    )


def _explain_field(
    where: tuple[int | str, ...],
    found: list[ErrorDetails],
    model: type[BaseModel],
    owner: str,
    noun: str,
) -> str:
    field = model.model_fields.get(str(where[0])) if where else None
    about = " ".join((field.description or "").split()).rstrip(".") if field is not None else ""
    name, first = ".".join(map(str, where)), found[0]
    if first["type"] == "missing":
        means = f": {about}" if about else ""
        return f"{owner} needs the {noun} {name}{means}.{_example(name, field, model)}"
    place = f"{owner}: {name}: " if name else f"{owner}: "
    if first["type"] in _OURS:
        return f"{place}{_compare(found)}"
    means = f" {where[0]}: {about}." if about else ""
    return f"{place}{_compare(found)}{means}"


def _compare(found: list[ErrorDetails]) -> str:
    """Return what was expected and what came; a check of our own may have said so itself."""
    if found[0]["type"] in _OURS:
        said = str(found[0].get("ctx", {}).get("error", found[0]["msg"])).rstrip(".")
        shown = _shown(found[0]["input"])
        return f"{said}." if "got " in said or shown in said else f"{said}, got {shown}."
    expected = " or ".join(dict.fromkeys(map(_expected, found)))
    return f"expected {expected}, got {_shown(found[0]['input'])}.{_near_literal(found[0])}"


def _expected(item: ErrorDetails) -> str:
    wording = _EXPECTED.get(item["type"])
    if wording is not None:
        return wording.format(**{k: _spell(v) for k, v in item.get("ctx", {}).items()})
    return item["msg"].removeprefix("Input should be ").removeprefix("Input should ")


def _near_literal(item: ErrorDetails) -> str:
    """Return the nearest of the values a knob allows."""
    if item["type"] not in ("literal_error", "enum"):
        return ""
    allowed = re.findall(r"'([^']*)'", item.get("ctx", {}).get("expected", ""))
    return did_you_mean(str(item["input"]), allowed)


def _shown(value: object) -> str:
    text = repr(value.decode(errors="replace") if isinstance(value, bytes) else value)
    return text if len(text) <= LONGEST_INPUT else f"{text[:LONGEST_INPUT]}…"


def _example(name: str, field: FieldInfo | None, model: type[BaseModel]) -> str:
    """Return how a missing knob of a spec is written; nothing for a field of a file."""
    kind = model.model_fields["type"].default if "type" in model.model_fields else None
    if not isinstance(kind, str):
        return ""
    value = field.examples[0] if field is not None and field.examples else "…"
    return f" Write for example {kind}:{name}={value}."
