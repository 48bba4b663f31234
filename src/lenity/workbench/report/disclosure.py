"""The disclosure of a report as rows of facts, in an order people look for them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from lenity.workbench.facts import TargetFacts
from lenity.workbench.provenance import Provenance
from lenity.workbench.report.data import Disclosure


@dataclass(frozen=True, slots=True)
class Fact:
    """One name and what belongs to it."""

    name: str
    values: tuple[str, ...]
    is_code: bool = False
    """Whether it is machine text: hashes, commands, specs"""


def facts_of(disclosure: Disclosure) -> list[Fact]:
    """Return what is disclosed: what was not recorded is left out, what is empty is "none"."""
    found = [Fact("Runs", disclosure.run_ids, is_code=True)]
    found.append(Fact("Protocols", disclosure.protocols))
    if disclosure.provenance:
        found += _origin(disclosure.provenance)
    found = [fact for fact in found if fact.values]
    lists = {
        "Exclusions": disclosure.exclusions,
        "Dropped triplets": disclosure.dropped_triplets,
        "Failed samples": disclosure.failed_samples,
    }
    found += [Fact(name, v or ("none",)) for name, v in lists.items() if v is not None]
    if disclosure.divergences is not None:
        labels = (f"{label}: {count}" for label, count in disclosure.divergences.items())
        found.append(Fact("First divergences from strict", tuple(labels) or ("none",)))
    if disclosure.notes:
        found.append(Fact("Notes", disclosure.notes))
    return found


def _origin(origin: Provenance) -> list[Fact]:
    machine = origin.hardware
    versions = origin.versions.model_dump(exclude_none=True)
    changes = " with local changes" if origin.git and origin.git.is_dirty else ""
    return [
        Fact("Hardware", (f"{machine.cpu}, {machine.cores} cores", *machine.gpus)),
        Fact("Threads", (str(origin.threads),) if origin.threads else ()),
        Fact("Versions", (", ".join(f"{name} {v}" for name, v in versions.items()),)),
        Fact("Commit", (origin.git.sha + changes,) if origin.git else (), is_code=True),
        Fact("Command", (shlex.join(origin.argv),) if origin.argv else (), is_code=True),
        Fact("Environment", _pairs(origin.environment, "="), is_code=True),
        Fact("Target", _target(origin.target) if origin.target else ()),
        Fact("Drafters", tuple(drafter.spec for drafter in origin.drafters), is_code=True),
        Fact("Template hash", (origin.template_hash,) if origin.template_hash else (), True),
        Fact("Data", _pairs(origin.data, " at "), is_code=True),
        Fact("Counters", (f"definitions, version {origin.counters_version}",)),
    ]


def _target(target: TargetFacts) -> tuple[str, ...]:
    """Return one line a fact that is known of the target, the name first."""
    known = target.model_dump(exclude_none=True, exclude={"name"})
    return (target.name, *(f"{name.replace('_', ' ')} {value}" for name, value in known.items()))


def _pairs(mapping: Mapping[str, str], between: str) -> tuple[str, ...]:
    return tuple(f"{name}{between}{value}" for name, value in mapping.items())


def point_facts(point: Mapping[str, JsonValue]) -> list[Fact]:
    """Return an operating point's settings; what is not set is left out."""
    return [
        Fact(name.replace("_", " "), (_plain(value),), is_code=True)
        for name, value in point.items()
        if value is not None
    ]


def _plain(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
