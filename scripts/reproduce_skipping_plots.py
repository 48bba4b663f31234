"""The plots of docs/reproduce/skipping.md: same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.plot_style import RC
from scripts.reproduce_skipping_grids import MIN_PREFIX, PAPER_DRAFT_SHARE, WHOLE

LOOKS = {
    "raw": ("#0b6e99", "o"),
    "marginal": ("#b4530a", "s"),
    "conditional": ("#6b3fa0", "D"),
    "product": ("#20a39e", "P"),
    "lenience": ("#3b7d23", "^"),
    "top_k": ("#8a8a00", "v"),
    "periodic": ("#b3123f", "X"),
}


def plot_frontier(found: Mapping[str, Any], file: Path) -> None:
    """Draw what every rule's grid saves in calls, against agreement and what the text is worth."""
    predicted = {n: r for n, r in found["offline"]["predicted"].items() if "min_prefix" not in n}
    measured = found["online"]["arms"]
    panels = (
        ("predicted, strict blocks", predicted, "full_prefix", "FullPrefix"),
        ("measured", measured, "full_prefix", "FullPrefix"),
        ("measured", measured, "logprob", "Log-probability − strict's, nats a token"),
    )
    with mpl.rc_context(RC):
        figure = Figure(figsize=(11, 3.8), layout="constrained")
        for axes, (title, arms, key, label) in zip(figure.subplots(1, 3), panels, strict=True):
            for rule, (colour, mark) in LOOKS.items():
                _draw_rule(axes, arms, rule, key, colour=colour, mark=mark)
            axes.axvline(1, color="#444444", linewidth=0.8)
            axes.axhline(0 if key == "logprob" else 1, color="#444444", linewidth=0.8)
            axes.set(xlabel="Target calls per token / strict's", ylabel=label)
            axes.set_title(title, fontsize=9)
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside upper center", ncols=7, frameon=False
        )
        _save(figure, file)


def _draw_rule(
    axes: Axes, arms: Mapping[str, Any], rule: str, key: str, *, colour: str, mark: str
) -> None:
    rows = [row for name, row in arms.items() if name.split()[0] == rule and row[key] is not None]
    rows.sort(key=lambda row: float(row["calls"][0]))
    x = [row["calls"][0] for row in rows]
    y = [row[key][0] if key == "logprob" else row[key] for row in rows]
    width = 0 if rule == "periodic" else 0.8  # two knobs move, so that no line joins them
    axes.plot(x, y, color=colour, marker=mark, markersize=4, linewidth=width, label=rule)


def plot_min_prefix(found: Mapping[str, Any], file: Path) -> None:
    """Draw calls, blocks and time at the paper's costs over K_min, measured and predicted."""
    predicted, arms = found["offline"]["predicted"], found["online"]["arms"]
    with mpl.rc_context(RC):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        for axes, (rule, whole) in zip(figure.subplots(1, 2), WHOLE.items(), strict=True):
            names = [n for n in predicted if n.startswith(f"min_prefix {rule}")]
            steps = {int(n.split()[-1]): n for n in names}
            live = {k: whole if k == MIN_PREFIX else n for k, n in steps.items()}
            _draw_costs(axes, {k: arms[n] for k, n in live.items() if n in arms}, measured=True)
            _draw_costs(axes, {k: predicted[n] for k, n in steps.items()}, measured=False)
            axes.axhline(1, color="#444444", linewidth=0.8)
            axes.set(xlabel="K_min, draft tokens a skip commits at least", ylabel="over strict")
            axes.set_title(f"{rule}: measured, and predicted (thin)", fontsize=9)
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False
        )
        _save(figure, file)


def _draw_costs(axes: Axes, rows: Mapping[int, Mapping[str, Any]], *, measured: bool) -> None:
    steps = sorted(rows)
    calls = [rows[step]["calls"][0] for step in steps]
    found = [rows[step]["blocks"] for step in steps]
    blocks = [own[0] if isinstance(own, list) else own for own in found]
    share = PAPER_DRAFT_SHARE
    time = [share * b + (1 - share) * c for b, c in zip(blocks, calls, strict=True)]
    lines = (
        (calls, "#0b6e99", "o", "target calls"),
        (blocks, "#b4530a", "s", "draft blocks"),
        (time, "#222222", "D", "time at the paper's costs"),
    )
    for values, colour, mark, label in lines:
        if measured:
            axes.plot(steps, values, marker=mark, color=colour, markersize=4, label=label)
        else:
            axes.plot(steps, values, color=colour, linewidth=0.7, alpha=0.5)


def _save(figure: Figure, file: Path) -> None:
    nothing = {"Date": None, "Creator": None}
    figure.savefig(file, format="svg", metadata=nothing, facecolor="white")
