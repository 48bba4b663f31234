"""The plots of docs/reproduce/asd.md and priced.md: same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.plot_style import RC

FAMILIES = {"maths": "#6b3fa0", "code": "#3b7d23", "chat": "#b4530a", "data": "#8a8a00"}
OURS, PAPERS = "#0b6e99", "#222222"
RULES = {"ASD": "#b4530a", "priced": "#0b6e99"}
LABELS = {
    "budget": "budget B, nats per request",
    "gate": "gate g, nats per remaining position",
    "block_cap": "cap M, relaxed tokens per block",
    "gamma": "block length K",
}


def plot_knobs(
    knobs: Mapping[str, Any], paper: Mapping[str, Mapping[str, str]], file: Path
) -> None:
    """Draw the predicted gain over every knob, by family, and the paper's gain beside it."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(11, 3.2), layout="constrained")
        for axes, (knob, label) in zip(figure.subplots(1, 4), LABELS.items(), strict=True):
            _draw_knob(axes, knobs[knob], paper[knob])
            axes.set(xlabel=label, ylim=(0, None))
            axes.tick_params(axis="x", labelsize=7)
        figure.axes[0].set_ylabel("gain over strict, %")
        figure.legend(
            *figure.axes[0].get_legend_handles_labels(),
            loc="outside upper center",
            ncols=6,
            frameon=False,
        )
        _save(figure, file)


def _draw_knob(axes: Axes, values: Mapping[str, Any], paper: Mapping[str, str]) -> None:
    """Draw one knob; its values stand at equal distances."""
    names = list(values)
    for family, colour in FAMILIES.items():
        gains = [100 * groups[family]["gain"][0] for groups in values.values()]
        axes.plot(names, gains, color=colour, linewidth=0.8, label=family)
    found = [[100 * part for part in groups["all"]["gain"]] for groups in values.values()]
    middle, low, high = zip(*found, strict=True)
    axes.fill_between(names, low, high, color=OURS, alpha=0.2, linewidth=0)
    axes.plot(names, middle, "-o", color=OURS, markersize=4, label="all, predicted")
    known = [name for name in names if name in paper]
    axes.plot(
        known,
        [float(paper[name]) for name in known],
        "--s",
        color=PAPERS,
        markersize=4,
        label="paper, GSM8K, tokens per second",
    )


def plot_priced(summary: Mapping[str, Any], file: Path) -> None:
    """Draw both rules' curves by replay and what was measured, and their difference."""
    replay = summary["replay"]
    live = summary["live"]["levels"]
    with mpl.rc_context(RC):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        curves, differences = figure.subplots(1, 2)
        levels = [row["level"] for row in replay["priced_asd"]]
        for rule, key in (("priced", "own"), ("ASD", "other")):
            gains = [row[key] for row in replay["priced_asd"]]
            curves.plot(levels, gains, "-o", color=RULES[rule], markersize=3, label=rule)
        curves.axhline(replay["strict"], color=PAPERS, linewidth=0.8, linestyle=":")
        curves.set(ylabel="tokens per target pass, predicted")
        _draw_differences(differences, replay["priced_asd"], "predicted, 96 tokens", OURS)
        _draw_differences(differences, live, "measured, 48 tokens", PAPERS)
        differences.axhline(0, color=PAPERS, linewidth=0.8)
        differences.set(ylabel="priced / ASD − 1, %")
        for axes in (curves, differences):
            axes.set(xlabel="mean regret, nats per request", xscale="log")
            axes.legend(frameon=False, loc="upper left")
        _save(figure, file)


def _draw_differences(axes: Axes, rows: Any, label: str, colour: str) -> None:
    x = [row["level"] for row in rows]
    middle, low, high = zip(
        *([100 * part for part in row["difference"]] for row in rows), strict=True
    )
    below = [m - b for m, b in zip(middle, low, strict=True)]
    above = [a - m for m, a in zip(middle, high, strict=True)]
    axes.errorbar(
        x, middle, (below, above), fmt="o", color=colour, markersize=4, capsize=2, label=label
    )


def _save(figure: Figure, file: Path) -> None:
    nothing = {"Date": None, "Creator": None}
    figure.savefig(file, format="svg", metadata=nothing, facecolor="white")
