"""Sweeps: one knob at a time on the same prompts, for the tables and figures of the papers.

Every arm of a sweep stops by itself on the same prompts, beside strict on the same drafts; what is
plotted are counts (tokens per target pass, relative calls and blocks, regret) and what the text is
worth (score or log-probability, repetition). Times are a matter of ``audit``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from pydantic import Field

from lenity.errors import ConfigError, RegistryError
from lenity.registry import did_you_mean, join_spec, split_spec
from lenity.workbench.config import STRICT, Arm, NaturalEos
from lenity.workbench.records import Frozen
from lenity.workbench.select import Questions

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
    """Spec of the skip rule whose knobs are moved"""
    gamma: int = Field(default=5, ge=1)
    """Draft tokens per round"""
    values: tuple[Value, ...] = ()
    """Values of the knob; none for the preset's own"""
    batch_size: int = Field(default=4, ge=1)
    """Requests decoded together"""
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
    kind: Literal["policy", "gamma", "skip", "mixed"]
    is_logarithmic: bool = False
    values: tuple[Value, ...] = ()
    words: str
    """What it reproduces"""


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
            name="min_prefix",
            x_label="K_min, draft tokens a skip commits at least",
            kind="skip",
            values=(0, 2, 3, 4, 6, 8, 12, 16),
            words="verifier skipping: calls fall, blocks rise; an optimum between",
        ),
        Preset(
            name="skipping",
            x_label="Setting",
            kind="mixed",
            words="verifier skipping: raw gates, lenience, top-k and periodic on the same drafts",
        ),
    )
}
"""Sweeps by name."""

RAW_GATES = tuple(
    [(local, prefix) for local in (0.90, 0.95) for prefix in (0.995, 0.98, 0.95, 0.90)]
    + [(0.80, 0.93), (0.80, 0.85), (0.70, 0.70), (0.60, 0.50)]
)
"""Pairs (local, prefix) of the published grid, every other prefix gate."""
RATIOS = (0.99, 0.95, 0.9, 0.8, 0.5, 0.3)
TOP_KS = (2, 3, 5)
PERIODS = (3, 4, 8)


def preset(name: str) -> Preset:
    """Return a sweep by name. Raises RegistryError with the nearest names."""
    if name not in PRESETS:
        raise RegistryError(
            f"Unknown sweep {name!r}.{did_you_mean(name, PRESETS)} Available: {', '.join(PRESETS)}."
        )
    return PRESETS[name]


def steps(settings: SweepSettings) -> list[Step]:
    """Return the arms of a sweep in order, strict first. Raises ConfigError."""
    chosen = preset(settings.preset)
    makers: dict[str, Callable[[SweepSettings, Preset], list[Step]]] = {
        "policy": _policy_steps,
        "gamma": _gamma_steps,
        "skip": _skip_steps,
        "mixed": _skipping_steps,
    }
    return makers[chosen.kind](settings, chosen)


def _arm(settings: SweepSettings, name: str, **changes: object) -> Arm:
    base = Arm(
        name=name,
        drafter=settings.drafter,
        gamma=settings.gamma,
        batch_size=settings.batch_size,
    )
    return base.renamed(name, **changes)


def _with_knob(spec: str, knob: str, value: Value) -> str:
    name, knobs = split_spec(spec)
    return join_spec(name, {**knobs, knob: value})


def _values(settings: SweepSettings, chosen: Preset) -> Sequence[Value]:
    return settings.values or chosen.values


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
    for value in _values(settings, chosen):
        gamma = int(value)
        out.append(
            Step(arm=_arm(settings, f"{STRICT}-{gamma}", gamma=gamma), curve=STRICT, x=gamma)
        )
        relaxed = _arm(settings, f"{rule}-{gamma}", gamma=gamma, policy=settings.policy)
        out.append(Step(arm=relaxed, curve=rule, x=gamma))
    return out


def _skip_steps(settings: SweepSettings, chosen: Preset) -> list[Step]:
    if settings.skip is None:
        raise ConfigError(
            f"Expected a skip rule whose {chosen.name} is moved, got none. Give --skip "
            f"raw:local=0.9,prefix=0.93."
        )
    rule = split_spec(settings.skip)[0]
    out = [Step(arm=_arm(settings, STRICT), curve=STRICT, x="strict")]
    for value in _values(settings, chosen):
        spec = _with_knob(settings.skip, chosen.name, value)
        arm = _arm(settings, f"{rule}-{chosen.name}-{value}", skip=spec, shadow=settings.shadow)
        out.append(Step(arm=arm, curve=rule, x=_number(value)))
    return out


def _skipping_steps(settings: SweepSettings, chosen: Preset) -> list[Step]:
    """Return the published grids of raw gates, lenience, top-k and periodic, on the same drafts."""
    out = [Step(arm=_arm(settings, STRICT), curve=STRICT, x="strict")]
    minimum = min(6, settings.gamma)
    for local, prefix in RAW_GATES:
        spec = f"raw:local={local},prefix={prefix},min_prefix={minimum}"
        arm = _arm(settings, f"raw-{local}-{prefix}", skip=spec, shadow=settings.shadow)
        out.append(Step(arm=arm, curve="raw", x=f"{local}/{prefix}"))
    for ratio in RATIOS:
        arm = _arm(settings, f"lenience-{ratio}", policy=f"lenience:ratio={ratio}")
        out.append(Step(arm=arm, curve="lenience", x=f"{ratio}"))
    for k in TOP_KS:
        arm = _arm(settings, f"top_k-{k}", policy=f"top_k:k={k}")
        out.append(Step(arm=arm, curve="top_k", x=f"{k}"))
    for period in PERIODS:
        spec = f"periodic:period={period},count={minimum}"
        arm = _arm(settings, f"periodic-{period}", skip=spec, shadow=settings.shadow)
        out.append(Step(arm=arm, curve="periodic", x=f"{period}"))
    return out


def _number(value: Value) -> Value:
    """Return the value as an axis has it: infinity and none as words."""
    return value if isinstance(value, str) else float(value)


def reference_of(step: Step, all_steps: Sequence[Step]) -> Step:
    """Return the strict arm that a step is compared with: the one at its gamma."""
    stricts = [other for other in all_steps if other.curve == STRICT]
    return next((s for s in stricts if s.arm.gamma == step.arm.gamma), stricts[0])
