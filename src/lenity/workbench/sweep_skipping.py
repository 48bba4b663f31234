"""Arms of the skipping sweeps: grids of every skip rule, the baselines, and gates left out.

The grids are those of arXiv 2608.14787. Learned rules take part where their predictor is given; all
skip rules share their further knobs (min_prefix, max_unverified, debt, repetition_guard).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from lenity.errors import ConfigError
from lenity.registry import did_you_mean, explain_file, join_spec, split_spec
from lenity.workbench.diagnostics import GATES
from lenity.workbench.records import Frozen

Estimand = Literal["marginal", "conditional"]
LEARNED: tuple[Estimand, ...] = ("marginal", "conditional")

DESCRIPTION, WEIGHTS = "predictor.json", "predictor.safetensors"
"""Files of a predictor; lenity.skipping.survival, which reads them, needs torch."""
MIN_PREFIX = 6
"""K_min of the published grids; gamma where that is smaller."""

RAW_GATES = tuple(
    [(local, prefix) for local in (0.90, 0.95) for prefix in (0.995, 0.98, 0.95, 0.90)]
    + [(0.80, 0.93), (0.80, 0.85), (0.70, 0.70), (0.60, 0.50)]
)
"""Pairs (local, prefix) of the published grid, every other prefix gate."""
MARGINAL_GATES = (0.99, 0.98, 0.97, 0.95, 0.93, 0.90, 0.85)
"""Both gates of marginal survival, which are one."""
CONDITIONAL_LOCAL = 0.90
CONDITIONAL_PREFIXES = (0.99, 0.98, 0.97, 0.95, 0.93, 0.90, 0.85, 0.80)
RATIOS = (0.99, 0.95, 0.9, 0.8, 0.5, 0.3)
TOP_KS = (2, 3, 5)
PERIODS = (3, 4, 8)

FAMILIES = ("code", "maths")
"""What predictors can be told of the prompts: the flags among their features."""

ABLATED: Mapping[str, tuple[str, ...]] = {
    "both gates": (),
    "local only": ("prefix",),
    "prefix only": ("local",),
}
"""Gates at work -> those set to 0, which lets everything pass. Nothing is tuned again."""

SKIPPING = ("raw", "marginal", "conditional", "periodic")
RULES = (*SKIPPING, "lenience", "top_k")
"""Rules that a skipping sweep draws."""


class Predictor(Frozen):
    """A trained survival predictor that a sweep uses."""

    estimand: Estimand
    """Which rule takes it"""
    folder: str
    """Where it lies"""
    digest: str
    """16 hex digits over description and weights: another one is another run"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One arm of a grid: its name, the rule it belongs to, where it stands, what it runs."""

    name: str
    curve: str
    x: str
    policy: str = "strict"
    skip: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all skip rules of a grid have in common."""

    gamma: int
    predictors: Sequence[Predictor] = ()
    family: str | None = None
    """What predictors are told of the prompts: code or maths"""
    skip: str | None = None
    """Spec whose knobs, gates and predictor left out, hold for every skip rule"""

    @property
    def knobs(self) -> dict[str, str]:
        """The further knobs, min_prefix among them."""
        own = ("local", "prefix", "predictor", "family", "period", "count")
        found = split_spec(self.skip)[1] if self.skip else {}
        kept = {name: value for name, value in found.items() if name not in own}
        return {"min_prefix": str(min(MIN_PREFIX, self.gamma)), **kept}

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that can take part, learned ones by their predictors."""
        known = {predictor.estimand for predictor in self.predictors}
        return tuple(rule for rule in RULES if rule not in LEARNED or rule in known)

    def spec(self, rule: str, knobs: Mapping[str, object]) -> str:
        """Return the spec of a skip rule with the shared knobs, its predictor filled in."""
        shared: dict[str, object] = dict(self.knobs)
        minimum = shared.pop("min_prefix")
        if rule == "periodic":
            # nothing of it is gated, and no count of unverified tokens stops it
            shared = {k: v for k, v in shared.items() if k != "max_unverified"}
            return join_spec(rule, {"count": minimum, **shared, **knobs})
        return join_spec(
            rule, {**self._predictor(rule, knobs), "min_prefix": minimum, **shared, **knobs}
        )

    def _predictor(self, rule: str, knobs: Mapping[str, object]) -> dict[str, object]:
        """Return the predictor's knobs, where the rule needs one and has none yet."""
        if rule not in LEARNED or "predictor" in knobs:
            return {}
        found = [p.folder for p in self.predictors if p.estimand == rule]
        if not found:
            raise ConfigError(
                f"Expected a predictor of {rule} survival for the rule {rule!r}, got none. Give "
                f"--predictor RUN, a run of `lenity train survival`, or leave the rule out."
            )
        told = {} if self.family is None else {"family": self.family}
        return {"predictor": found[0], **told}


def check_family(family: str | None) -> None:
    """Raise ConfigError for a family that no predictor knows."""
    if family is not None and family not in FAMILIES:
        raise ConfigError(
            f"Expected a family among {', '.join(FAMILIES)}, which is what survival predictors are "
            f"told, got {family!r}.{did_you_mean(family, FAMILIES)} Correct it, or leave it out."
        )


def skipping_grid(shared: Shared, wanted: Sequence[str] = ()) -> list[Setting]:
    """Return the arms of ``skipping``: every rule's published grid, or those wanted.

    ``wanted`` holds names of rules, which stand for their grids, and specs, which stand for
    themselves. Raises ConfigError for a rule that cannot take part.
    """
    found: list[Setting] = []
    for item in wanted or shared.rules:
        name, knobs = split_spec(item)
        if name not in RULES:
            raise ConfigError(
                f"Expected rules among {', '.join(RULES)}, got {name!r}.{did_you_mean(name, RULES)}"
                f" Correct the name."
            )
        found += [_one(shared, name, knobs)] if knobs else _grid(shared, name)
    return list({(setting.policy, setting.skip): setting for setting in found}.values())


def _one(shared: Shared, rule: str, knobs: Mapping[str, str]) -> Setting:
    """Return the arm of a spec as it stands; its name leaves the predictor's place out."""
    told = {name: value for name, value in knobs.items() if name != "predictor"}
    x = ",".join(f"{name}={value}" for name, value in told.items()) or "default"
    name = join_spec(rule, told)
    if rule in SKIPPING:
        return Setting(name=name, curve=rule, x=x, skip=shared.spec(rule, knobs))
    return Setting(name=name, curve=rule, x=x, policy=join_spec(rule, knobs))


def _grid(shared: Shared, rule: str) -> list[Setting]:
    if rule in SKIPPING:
        return [
            Setting(name=f"{rule}-{'-'.join(xs)}", curve=rule, x="/".join(xs), skip=spec)
            for xs, knobs in _skip_knobs(rule)
            for spec in [shared.spec(rule, knobs)]
        ]
    knob, values = ("ratio", RATIOS) if rule == "lenience" else ("k", TOP_KS)
    return [
        Setting(name=f"{rule}-{value}", curve=rule, x=f"{value}", policy=f"{rule}:{knob}={value}")
        for value in values
    ]


def _skip_knobs(rule: str) -> Iterator[tuple[tuple[str, ...], dict[str, object]]]:
    """Yield the grid of a skip rule: how a setting is told, and its knobs."""
    if rule == "periodic":
        for period in PERIODS:
            yield (str(period),), {"period": period}
        return
    pairs: Iterable[tuple[float, float]] = RAW_GATES
    if rule == "marginal":
        pairs = [(gate, gate) for gate in MARGINAL_GATES]
    if rule == "conditional":
        pairs = [(CONDITIONAL_LOCAL, prefix) for prefix in CONDITIONAL_PREFIXES]
    for local, prefix in pairs:
        told = (str(prefix),) if rule == "marginal" else (str(local), str(prefix))
        yield told, {"local": local, "prefix": prefix}


def gate_grid(shared: Shared, wanted: Sequence[str] = ()) -> list[Setting]:
    """Return the arms of ``gate_ablation``: both gates, the local one, the prefix one.

    Of raw confidence, and of conditional survival where its predictor is given; of marginal
    survival both gates are one. ``wanted`` holds specs whose gates are left out instead of these.
    """
    own = [rule for rule in shared.rules if rule in ("raw", "conditional")]
    found = []
    for item in wanted or own:
        rule, knobs = split_spec(item)
        if rule not in ("raw", "conditional"):
            raise ConfigError(
                f"Expected the rules raw or conditional, whose gates are two, got {rule!r}. Leave "
                f"it out."
            )
        local, prefix = GATES[rule]
        gates = {"local": local, "prefix": prefix, **knobs}
        for told, dropped in ABLATED.items():
            name = f"{rule}-{told}".replace(" ", "-")
            spec = shared.spec(rule, {**gates, **dict.fromkeys(dropped, 0)})
            found.append(Setting(name=name, curve=rule, x=told, skip=spec))
    return list({setting.name: setting for setting in found}.values())


def find_predictors(folders: Iterable[Path]) -> tuple[Predictor, ...]:
    """Return the predictors in folders, one an estimand.

    A folder is a predictor, or a run of `lenity train survival`, whose fold 0 is taken of each
    estimand it has. Raises ConfigError where there is none, or two of one estimand.
    """
    found: dict[Estimand, Predictor] = {}
    for folder in folders:
        inside = [folder / name / "fold-0" for name in LEARNED]
        places = [folder] if (folder / DESCRIPTION).is_file() else [p for p in inside if p.is_dir()]
        if not places:
            raise ConfigError(
                f"Expected a survival predictor ({DESCRIPTION}), or a run that has them in "
                f"marginal/fold-0 or conditional/fold-0, got {folder}. Train one with `lenity "
                f"train survival`, or correct the path."
            )
        for place in places:
            predictor = _read(place)
            if predictor.estimand in found:
                raise ConfigError(
                    f"Expected one predictor of {predictor.estimand} survival, got "
                    f"{found[predictor.estimand].folder} and {place}. Leave one out."
                )
            found[predictor.estimand] = predictor
    return tuple(found.values())


def _read(folder: Path) -> Predictor:
    if "," in str(folder):
        raise ConfigError(
            f"Expected a folder that a spec can name, without a comma, got {folder}. Rename it."
        )
    try:
        told, weights = (folder / DESCRIPTION).read_bytes(), (folder / WEIGHTS).read_bytes()
        digest = hashlib.sha256(told + weights).hexdigest()[:16]
        named = {k: v for k, v in dict(json.loads(told)).items() if k == "estimand"}
        return Predictor.model_validate({**named, "folder": str(folder), "digest": digest})
    except (OSError, ValueError, TypeError) as error:
        reason = f"{' '.join(str(error).split())}."
        if isinstance(error, ValidationError):
            reason = explain_file(error, Predictor, folder / DESCRIPTION)
        raise ConfigError(
            f"Expected a survival predictor in {folder} ({DESCRIPTION} and {WEIGHTS}). {reason} "
            f"Train it again, or correct the path."
        ) from None
