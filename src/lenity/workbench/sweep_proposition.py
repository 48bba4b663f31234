"""The sweep ``proposition``: scores equal position by position, far apart as prefixes.

Proposition 1 of arXiv 2608.14787, simulated (proposition.py) for one or several rho, with the
accepted lengths of recorded blocks or of a geometric law. No model is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from lenity.errors import ConfigError
from lenity.workbench.diagnostics import read_blocks
from lenity.workbench.intervals import Interval, wilson_interval
from lenity.workbench.proposition import Half, Simulation, simulate
from lenity.workbench.records import Frozen
from lenity.workbench.report.plot_data import Sweep
from lenity.workbench.survival_report import AREA, by_position, curve, points
from lenity.workbench.tables import COUNT, NATS, PERCENT, PLAIN, Column, Table, Value

SURVIVAL = 0.9
"""Chance of every further token under the geometric law."""
RHOS = (0.5, 0.9)


class PropositionSweep(Frozen):
    """All that decides what is drawn."""

    preset: Literal["proposition"] = "proposition"
    law: tuple[float, ...] = Field(min_length=2)
    """P(L = 0), ..., P(L = gamma)"""
    law_from: str
    """Where it comes from, in words"""
    rhos: tuple[float, ...] = Field(default=RHOS, min_length=1)
    """Chances of a high score where the prefix survives"""
    low: float = 0.3
    high: float = 0.95
    num_blocks: int = Field(default=10_000, ge=1)
    """Draws for each rho"""
    seed: int = Field(default=0, ge=0)


def proposition_sweep(
    gamma: int, wanted: Sequence[str | float] = (), *, source: Path | None = None
) -> PropositionSweep:
    """Return the settings; ``source`` is a log of blocks whose accepted lengths are the law.

    ``wanted`` holds values of rho. Raises ConfigError for what is no probability.
    """
    try:
        rhos = tuple(map(float, wanted)) or RHOS
    except ValueError:
        rhos = (-1.0,)
    if not all(0 <= rho <= 1 for rho in rhos) or len({_told(rho) for rho in rhos}) < len(rhos):
        raise ConfigError(
            f"Expected values of rho from 0 to 1 that differ in their first six digits, got "
            f"{', '.join(map(str, wanted))}. Correct them, or leave them out."
        )
    law = geometric_law(gamma) if source is None else recorded_law(source)
    words = (
        f"geometric, {SURVIVAL:g} a token" if source is None else "accepted lengths of the blocks"
    )
    return PropositionSweep(law=law, law_from=words, rhos=rhos)


def geometric_law(gamma: int, survival: float = SURVIVAL) -> tuple[float, ...]:
    """Return P(L = l), l = 0..gamma, where each token survives with the same chance."""
    tail = survival ** np.arange(gamma + 1)
    return tuple((tail - np.append(tail[1:], 0.0)).tolist())


def recorded_law(log: Path) -> tuple[float, ...]:
    """Return the shares of accepted lengths among a log's blocks of full length."""
    blocks = read_blocks(log)
    gamma = int(blocks.lengths.max())
    counts = np.bincount(blocks.accepted[blocks.lengths == gamma], minlength=gamma + 1)
    return tuple((counts / counts.sum()).tolist())


def simulate_all(settings: PropositionSweep) -> tuple[Simulation, ...]:
    """Return a simulation for each rho."""
    return tuple(
        simulate(
            settings.law,
            rho,
            low=settings.low,
            high=settings.high,
            num_blocks=settings.num_blocks,
            seed=settings.seed,
        )
        for rho in settings.rhos
    )


def proposition_plots(
    settings: PropositionSweep, found: Sequence[Simulation], protocol: str
) -> tuple[Sweep, ...]:
    """Return for each rho what passes, and what position-wise metrics see of it."""
    return tuple(
        plot
        for rho, own in zip(settings.rhos, found, strict=True)
        for plot in (_passing(rho, own, protocol), *_positions(rho, own, protocol))
    )


def _key(name: str, rho: float) -> str:
    return f"{name}-rho-{_told(rho)}".replace(".", "_")


def _told(rho: float) -> str:
    """Return a rho as plots are called by it."""
    return f"{rho:g}"


def _halves(own: Simulation) -> dict[str, Half]:
    return {"one coin a block": own.shared, "one coin a position": own.independent}


def frequency(share: float, num_blocks: int) -> Interval:
    """Return a share of drawn blocks with its interval; blocks are drawn independently."""
    return wilson_interval(round(share * num_blocks), num_blocks)


def _passing(rho: float, own: Simulation, protocol: str) -> Sweep:
    xs = range(1, len(own.shared.expected) + 1)
    laws = ("P(L ≥ K) ρ", "P(L ≥ K) ρ^K")
    curves = []
    for (label, half), law in zip(_halves(own).items(), laws, strict=True):
        ys = [frequency(share, own.num_blocks) for share in half.frequencies]
        curves += curve(label, points(xs, ys))
        curves += curve(law, points(xs, half.expected), is_reference=True)
    return Sweep(
        protocol=protocol,
        key=_key("passing", rho),
        title=f"Blocks whose first K scores pass, ρ = {rho:g}",
        x_label="K, tokens",
        y_label="Blocks whose first K scores pass",
        y_unit=PERCENT,
        curves=tuple(curves),
    )


def _positions(rho: float, own: Simulation, protocol: str) -> tuple[Sweep, ...]:
    kinds = (
        ("bce", "Cross-entropy", NATS, lambda p: p.bce),
        ("auroc", "AUROC", AREA, lambda p: p.auroc),
    )
    plots = []
    for key, label, unit, measure in kinds:
        curves = [
            c
            for name, half in _halves(own).items()
            for c in by_position(name, half.positions, measure)
        ]
        if curves:
            plots.append(
                Sweep(
                    protocol=protocol,
                    key=_key(key, rho),
                    title=f"{label} by position, ρ = {rho:g}",
                    x_label="Position in the draft",
                    y_label=f"{label} of survival",
                    y_unit=unit,
                    curves=tuple(curves),
                )
            )
    return tuple(plots)


def proposition_table(settings: PropositionSweep, found: Sequence[Simulation]) -> Table:
    """Return a row a rho and K."""
    rows: list[dict[str, Value]] = [
        {
            "rho": rho,
            "k": k + 1,
            "shared": frequency(own.shared.frequencies[k], own.num_blocks),
            "shared_expected": own.shared.expected[k],
            "independent": frequency(own.independent.frequencies[k], own.num_blocks),
            "independent_expected": own.independent.expected[k],
        }
        for rho, own in zip(settings.rhos, found, strict=True)
        for k in range(len(own.shared.expected))
    ]
    columns = (
        Column(key="rho", label="ρ", unit=PLAIN),
        Column(key="k", label="K", unit=COUNT),
        Column(key="shared", label="One coin a block", unit=PERCENT),
        Column(key="shared_expected", label="P(L ≥ K) ρ", unit=PERCENT),
        Column(key="independent", label="One coin a position", unit=PERCENT),
        Column(key="independent_expected", label="P(L ≥ K) ρ^K", unit=PERCENT),
    )
    note = f"L: {settings.law_from}. {settings.num_blocks:,} blocks; Wilson intervals."
    return Table.of("proposition", "First K scores that pass", columns, rows, note=note)
