"""Sweeps: one knob at a time on the same prompts, for the tables and figures of the papers.

Every arm of a sweep stops by itself on the same prompts, beside strict on the same drafts; what is
plotted are counts (tokens per target pass, relative calls and blocks, regret) and what the text is
worth (score or log-probability, repetition). Times are a matter of ``audit``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Literal

from pydantic import Field, ValidationError

from lenity.errors import ConfigError, RegistryError
from lenity.registry import did_you_mean, explain, join_spec, split_spec
from lenity.workbench.config import MAX_GAMMA, STRICT, Arm, NaturalEos, arm_name
from lenity.workbench.records import Frozen
from lenity.workbench.select import Questions
from lenity.workbench.sweep_skipping import Predictor, Shared, gate_grid, skipping_grid

Value = float | int | str


class SweepSettings(Frozen):
    """All that decides what a sweep records."""

    preset: str
    """Which knob, see PRESETS"""
    questions: Questions
    """Which prompts, of the discovery side: nothing here is an audit"""
    drafter: str
    """Spec of the drafter"""
    policy: str = "asd:budget=8,gate=0.25,block_cap=2"
    """Spec of the rule whose knobs are moved"""
    skip: str | None = None
    """Spec of the skip rule whose knobs are moved, or hold for all rules"""
    predictors: tuple[Predictor, ...] = ()
    """Survival predictors that learned skip rules take"""
    family: str | None = None
    """What predictors are told of the prompts: code or maths"""
    gamma: int = Field(default=5, ge=1)
    """Draft tokens per round"""
    values: tuple[Value, ...] = ()
    """Values of the knob, or specs of rules; none for the preset's own"""
    batch_size: int = Field(default=4, ge=1)
    """Requests decoded together"""
    divergence: bool = False
    """Whether traces hold how far the laws of target and drafter are apart, to replay fuzzy"""
    shadow: bool = False
    """Whether a pass that changes nothing says what strict would have accepted of skipped drafts"""
    natural: NaturalEos = NaturalEos()
    """How requests end"""
    seed: int = Field(default=0, ge=0)
    """Of the resampling"""
    resamples: int = Field(default=2000, ge=100)
    """Of every bootstrap"""


class Step(Frozen):
    """One arm of a sweep: where it stands, and on which line."""

    arm: Arm
    curve: str
    """Line it belongs to, such as asd or raw"""
    x: Value
    """Where on the axis"""


class Preset(Frozen):
    """What a sweep moves."""

    name: str
    x_label: str
    kind: Literal["policy", "gamma", "rules", "skip", "gates", "mixed"]
    is_logarithmic: bool = False
    values: tuple[Value, ...] = ()
    words: str
    """What it reproduces"""

    @property
    def is_timed(self) -> bool:
        """Whether throughput is among what it shows; nothing then watches the rounds."""
        return self.kind in ("skip", "gates", "mixed")


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="budget",
            x_label="Budget B, nats per request",
            kind="policy",
            values=(0, 1, 2, 4, 8, 16, 32, 64),
            words="ASD, table 3 and figure 6a: gain rises in B, then saturates",
        ),
        Preset(
            name="gate",
            x_label="Gate g, nats per remaining position",
            kind="policy",
            values=(0, 0.05, 0.1, 0.25, 0.5, 1, "inf"),
            words="ASD, table 3 and figure 5: coverage rises in g",
        ),
        Preset(
            name="block_cap",
            x_label="Cap M, relaxed tokens per round",
            kind="policy",
            values=(1, 2, 4, "none"),
            words="ASD, table 3",
        ),
        Preset(
            name="gamma",
            x_label="Draft tokens per round K",
            kind="gamma",
            values=(2, 3, 5, 7),
            words="ASD, figure 6b: gain grows with K",
        ),
        Preset(
            name="matched_regret",
            x_label="Rule",
            kind="rules",
            values=(
                *(f"asd:budget={b},gate=0.25,block_cap=2" for b in (2, 4, 8)),
                *(f"margin:ratio={r}" for r in (0.98, 0.95, 0.9, 0.8)),
                *(f"margin:ratio={r},budget=8" for r in (0.95, 0.9, 0.8)),
                *(f"fuzzy:threshold={t}" for t in (0.05, 0.1, 0.2, 0.3)),
                *(f"fuzzy:threshold={t},budget=8" for t in (0.1, 0.2, 0.3)),
                *(f"priced:budget=8,price={p}" for p in (0.5, 1, 2)),
            ),
            words="ASD, figure 6c: rules side by side, to be compared at equal regret",
        ),
        Preset(
            name="min_prefix",
            x_label="K_min, draft tokens a skip commits at least",
            kind="skip",
            values=(0, 2, 3, 4, 6, 8, 12, 16),
            words="verifier skipping: calls fall, blocks rise; an optimum between",
        ),
        Preset(
            name="gate_ablation",
            x_label="Gates at work",
            kind="gates",
            words="verifier skipping: the gates of raw and conditional left out in turn",
        ),
        Preset(
            name="skipping",
            x_label="Skip rules and baselines",
            kind="mixed",
            words="verifier skipping: raw and learned gates, periodic, lenience and top-k, all on "
            "the same drafts",
        ),
    )
}
"""Sweeps by name."""
OFFLINE = ("survival", "proposition")
"""Names of those that load no model, see sweep_offline."""

_LOCAL_RULES = ("margin", "fuzzy")
"""Rules that a budget turns into others: the two readings of figure 6c."""


def preset(name: str) -> Preset:
    """Return a sweep by name. Raises RegistryError with the nearest names."""
    if name not in PRESETS:
        known = (*PRESETS, *OFFLINE)
        raise RegistryError(
            f"Unknown sweep {name!r}.{did_you_mean(name, known)} Available: {', '.join(known)}."
        )
    return PRESETS[name]


def steps(settings: SweepSettings) -> list[Step]:
    """Return the arms of a sweep in order, strict first. Raises ConfigError."""
    chosen = preset(settings.preset)
    makers: dict[str, Callable[[SweepSettings, Preset], list[Step]]] = {
        "policy": _policy_steps,
        "gamma": _gamma_steps,
        "rules": _rules_steps,
        "skip": _skip_steps,
        "gates": _grid_steps,
        "mixed": _grid_steps,
    }
    return _told_apart(makers[chosen.kind](settings, chosen))


def _told_apart(found: Sequence[Step]) -> list[Step]:
    """Return the arms, each under a name of its own: two paths may leave one name."""
    seen: dict[str, int] = {}
    out = []
    for step in found:
        name = step.arm.name
        seen[name] = seen.get(name, 0) + 1
        arm = step.arm if seen[name] == 1 else step.arm.renamed(f"{name} +{seen[name]}")
        out.append(step.model_copy(update={"arm": arm}))
    return out


def _arm(settings: SweepSettings, name: str, **changes: object) -> Arm:
    told = {
        "drafter": settings.drafter,
        "gamma": settings.gamma,
        "batch_size": settings.batch_size,
        **changes,
    }
    try:
        return Arm.model_validate({**told, "name": arm_name(name)})
    except ValidationError as error:
        raise ConfigError(explain(error, Arm, f"arm {name!r}")) from None


def _with_knob(spec: str, knob: str, value: Value) -> str:
    name, knobs = split_spec(spec)
    return join_spec(name, {**knobs, knob: value})


def _values(settings: SweepSettings, chosen: Preset) -> Sequence[Value]:
    return tuple(dict.fromkeys(settings.values or chosen.values))


def _policy_steps(settings: SweepSettings, chosen: Preset) -> list[Step]:
    rule = split_spec(settings.policy)[0]
    out = [Step(arm=_arm(settings, STRICT), curve=STRICT, x="strict")]
    for value in _values(settings, chosen):
        spec = _with_knob(settings.policy, chosen.name, value)
        name = f"{rule}-{chosen.name}-{value}"
        out.append(Step(arm=_arm(settings, name, policy=spec), curve=rule, x=_number(value)))
    return out


def _gamma_steps(settings: SweepSettings, chosen: Preset) -> list[Step]:
    rule = split_spec(settings.policy)[0]
    out = []
    for gamma in dict.fromkeys(map(_draft_tokens, _values(settings, chosen))):
        out.append(
            Step(arm=_arm(settings, f"{STRICT}-{gamma}", gamma=gamma), curve=STRICT, x=gamma)
        )
        relaxed = _arm(settings, f"{rule}-{gamma}", gamma=gamma, policy=settings.policy)
        out.append(Step(arm=relaxed, curve=rule, x=gamma))
    return out


def _draft_tokens(value: Value) -> int:
    """Return a value of gamma. Raises ConfigError for what drafts nothing, or is no number."""
    text = str(value).strip()
    is_count = text.isascii() and text.isdecimal() and len(text) <= 4
    if not is_count or not 1 <= int(text) <= MAX_GAMMA:
        raise ConfigError(
            f"Expected draft tokens per round from 1 to {MAX_GAMMA}, got {text[:40]!r}. Give for "
            f"example --value 2 --value 5."
        )
    return int(text)


def _rules_steps(settings: SweepSettings, chosen: Preset) -> list[Step]:
    """Return an arm a rule; a value is a rule's spec, and ``strict`` stands there anyway."""
    out = [Step(arm=_arm(settings, STRICT), curve=STRICT, x=STRICT)]
    for value in dict.fromkeys(map(str, _values(settings, chosen))):
        name, knobs = split_spec(value)
        if name != STRICT:
            has_ledger = name in _LOCAL_RULES and "budget" in knobs
            curve = f"{name} with a ledger" if has_ledger else name
            knob_text = value.partition(":")[2] or "defaults"
            out.append(Step(arm=_arm(settings, value, policy=value), curve=curve, x=knob_text))
    return out


def _skip_steps(settings: SweepSettings, chosen: Preset) -> list[Step]:
    if settings.skip is None:
        raise ConfigError(
            f"Expected a skip rule whose {chosen.name} is moved, got none. Give --skip "
            f"raw:local=0.9,prefix=0.93."
        )
    shared = Shared(gamma=settings.gamma, predictors=settings.predictors, family=settings.family)
    rule, knobs = split_spec(settings.skip)
    own = [v for v in chosen.values if float(v) <= settings.gamma]  # above it nothing is skipped
    out = [Step(arm=_arm(settings, STRICT), curve=STRICT, x="strict")]
    for value in dict.fromkeys(settings.values or own):
        spec = shared.spec(rule, {**knobs, chosen.name: value})
        arm = _arm(settings, f"{rule}-{chosen.name}-{value}", skip=spec, shadow=settings.shadow)
        out.append(Step(arm=arm, curve=rule, x=_number(value)))
    return out


def _grid_steps(settings: SweepSettings, chosen: Preset) -> list[Step]:
    """Return the arms of a grid over rules, on the same drafts."""
    shared = Shared(
        gamma=settings.gamma,
        predictors=settings.predictors,
        family=settings.family,
        skip=settings.skip,
    )
    grid = gate_grid if chosen.kind == "gates" else skipping_grid
    out = [Step(arm=_arm(settings, STRICT), curve=STRICT, x=STRICT)]
    for own in grid(shared, tuple(map(str, settings.values))):
        shadow = settings.shadow and own.skip is not None
        arm = _arm(settings, own.name, policy=own.policy, skip=own.skip, shadow=shadow)
        out.append(Step(arm=arm, curve=own.curve, x=own.x))
    return out


def _number(value: Value) -> Value:
    """Return the value as an axis has it: infinity and none as words."""
    try:
        number = float(value)
    except ValueError:
        return value
    return number if isfinite(number) else str(value)


def reference_of(step: Step, all_steps: Sequence[Step]) -> Step:
    """Return the strict arm that a step is compared with: the one at its gamma."""
    stricts = [other for other in all_steps if other.curve == STRICT]
    return next((s for s in stricts if s.arm.gamma == step.arm.gamma), stricts[0])
