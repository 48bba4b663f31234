"""``lenity list``: what there is, read from the registries themselves."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from lenity.cli.options import Json
from lenity.cli.terminal import out, print_document
from lenity.errors import MissingExtraError

if TYPE_CHECKING:
    from pydantic import BaseModel


class Kind(StrEnum):
    """What can be listed."""

    POLICIES = "policies"
    DRAFTERS = "drafters"
    MODELS = "models"
    TASKS = "tasks"
    SKIP_RULES = "skip-rules"


def list_(
    kind: Annotated[Kind, typer.Argument(help="What to list")], as_json: Json = False
) -> None:
    """List policies, drafters, models, tasks or skip rules: names, knobs, defaults, papers."""
    makers = {
        Kind.POLICIES: policies,
        Kind.DRAFTERS: drafters,
        Kind.MODELS: models,
        Kind.TASKS: tasks,
        Kind.SKIP_RULES: skip_rules,
    }
    rows = makers[kind]()
    if as_json:
        print_document({str(kind): rows})
    elif kind is Kind.MODELS:
        _print_models(rows)
    else:
        _print_rules(rows)


def policies() -> list[dict[str, Any]]:
    """Return every registered policy."""
    from lenity.policies import POLICIES
    from lenity.policies.base import TokenPolicy

    classes = {name: POLICIES.load(name) for name in POLICIES.names()}
    return [
        {
            "name": name,
            "kind": "strict" if cls.is_strict else "relaxed",
            "temperature": "any" if issubclass(cls, TokenPolicy) else "0 only",
            "idea": cls.idea,
            "paper": cls.paper,
            "knobs": knobs(cls),
        }
        for name, cls in classes.items()
    ]


def drafters() -> list[dict[str, Any]]:
    """Return every registered drafter."""
    from lenity.drafters import DRAFTERS

    classes = {name: DRAFTERS.load(name) for name in DRAFTERS.names()}
    return [
        {"name": name, "idea": cls.idea, "paper": cls.paper, "knobs": knobs(cls)}
        for name, cls in classes.items()
    ]


def skip_rules() -> list[dict[str, Any]]:
    """Return every registered skip rule."""
    from lenity.skipping import SKIP_RULES

    classes = {name: SKIP_RULES.load(name) for name in SKIP_RULES.names()}
    return [
        {"name": name, "idea": cls.idea, "paper": cls.paper, "knobs": knobs(cls)}
        for name, cls in classes.items()
    ]


def tasks() -> list[dict[str, Any]]:
    """Return every registered task."""
    from lenity.tasks import TASKS

    classes = {name: TASKS.load(name) for name in TASKS.names()}
    return [
        {
            "name": name,
            "idea": cls.idea,
            "paper": cls.paper,
            "version": cls.version,
            "source": cls.source,
            "licence": cls.licence,
            "files": list(cls.table.files) if hasattr(cls, "table") else [],
            "knobs": knobs(cls),
        }
        for name, cls in classes.items()
    ]


def models() -> list[dict[str, Any]]:
    """Return every model that has a name of its own."""
    from lenity.models.loading import MODELS

    found = [MODELS.load(name) for name in MODELS.names()]
    return [
        {"name": model.name, "about": model.about, "installed": not (gap := _gap(model))}
        | ({"to_install": gap} if gap else {})
        for model in found
    ]


def _gap(model: Any) -> str | None:
    try:
        model.source()
    except MissingExtraError as error:
        return str(error)
    return None


def knobs(model: type[BaseModel]) -> list[dict[str, Any]]:
    """Return the knobs of a policy, drafter or task, read from its fields."""
    return [
        {
            "name": name,
            "default": None if field.is_required() else field.default,
            "is_required": field.is_required(),
            "description": field.description,
        }
        for name, field in model.model_fields.items()
        if name != "type"
    ]


def _print_rules(rows: list[dict[str, Any]]) -> None:
    console = out()
    for row in rows:
        title = Text(row["name"], "bold")
        if "kind" in row:
            title.append(f"  {row['kind']}", "green" if row["kind"] == "strict" else "yellow")
            title.append(f", temperature {row['temperature']}", "dim")
        console.print(title)
        console.print(Text(f"  {row['idea']}"))
        console.print(Text(f"  {row['paper']}", "dim"))
        if row["knobs"]:
            table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
            for knob in row["knobs"]:
                table.add_row(
                    Text(f"    {knob['name']}", "cyan"), _default(knob), knob["description"]
                )
            console.print(table)
        console.print()


def _default(knob: dict[str, Any]) -> str:
    if knob["is_required"]:
        return "(required)"
    value = knob["default"]
    if value is None or isinstance(value, bool):  # 0 and 1 equal False and True, and are none
        return str(value).lower()
    return str(value)


def _print_models(rows: list[dict[str, Any]]) -> None:
    console = out()
    for row in rows:
        line = Text(row["name"], "bold")
        line.append(f"  {row['about']}", "default")
        console.print(line)
        if not row["installed"]:
            console.print(Text(f"  {row['to_install']}", "yellow"))
    console.print(
        Text("Also: any folder that save_pretrained wrote, and any hub id such as org/model.")
    )
