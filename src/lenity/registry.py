"""Names to classes, imported only when asked for; and the one spelling of a setting.

``asd:budget=8,gate=0.25,block_cap=2`` is a *spec*: a registered name and knobs. The same spelling
is used on the command line, in files, in plot legends and in test ids.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from lenity.errors import ConfigError, RegistryError


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

    def _targets(self) -> dict[str, str]:
        group = f"lenity.{self.kind.replace('policy', 'policie')}s"
        return {e.name: e.value for e in entry_points(group=group)} | self._table


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest known names, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=2, cutoff=0.5)
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
        raise ConfigError(_explain(error, model, owner)) from None


def _is_none(value: object, field: FieldInfo) -> bool:
    """Return whether a knob that may be None is spelled ``none``."""
    return value in ("none", "None") and type(None) in get_args(field.annotation)


def _explain(error: ValidationError, model: type[BaseModel], owner: str) -> str:
    lines = []
    for item in error.errors():
        name = str(item["loc"][0]) if item["loc"] else "value"
        described = model.model_fields[name].description if name in model.model_fields else None
        expected = f" {name}: {described}." if described else ""
        got = "" if item["type"] == "missing" else f", got {item['input']!r}"
        lines.append(f"{owner}: {name}: {item['msg']}{got}.{expected}")
    return "\n".join(lines)
