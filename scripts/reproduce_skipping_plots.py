"""The plots of docs/reproduce/skipping.md: same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

LOOKS = {
    "raw": ("#0b6e99", "o"),
    "marginal": ("#b4530a", "s"),
    "conditional": ("#6b3fa0", "D"),
    "product": ("#20a39e", "P"),
    "lenience": ("#3b7d23", "^"),
    "top_k": ("#8a8a00", "v"),
    "periodic": ("#b3123f", "X"),
}
RC = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lenity",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
}


def plot_frontier(online: Mapping[str, Any], file: Path) -> None:
    """Draw what every rule's grid saves in calls, against what the text is worth."""
    measures = {
        "logprob": "Mean log-probability, arm − strict, nats a token",
        "strict_token": "Committed draft tokens strict would accept",
    }
    with mpl.rc_context(RC):
        figure = Figure(figsize=(9, 4), layout="constrained")
        for axes, (key, label) in zip(figure.subplots(1, 2), measures.items(), strict=True):
            for rule, (colour, mark) in LOOKS.items():
                _draw_rule(axes, online["arms"], rule, key, colour=colour, mark=mark)
            axes.axvline(1, color="#444444", linewidth=0.8)
            axes.axhline(0 if key == "logprob" else 1, color="#444444", linewidth=0.8)
            axes.set_xlabel("Target calls per token / strict's")
            axes.set_ylabel(label)
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside upper center", ncols=7, frameon=False
        )
        _save(figure, file)


def _draw_rule(
    axes: Axes, arms: Mapping[str, Any], rule: str, key: str, *, colour: str, mark: str
) -> None:
    rows = [row for name, row in arms.items() if name.split()[0] == rule and row[key] is not None]
    rows.sort(key=lambda row: row["calls"][0])
    x = [row["calls"][0] for row in rows]
    y = [row[key][0] if key == "logprob" else row[key] for row in rows]
    axes.plot(x, y, color=colour, marker=mark, markersize=4.5, linewidth=0.8, label=rule)


def plot_min_prefix(online: Mapping[str, Any], file: Path) -> None:
    """Draw calls, blocks and predicted time over K_min, for raw and conditional."""
    lines = {
        "calls": ("#0b6e99", "target calls", "-"),
        "blocks": ("#b4530a", "draft blocks", "-"),
        "ours": ("#222222", "time, our costs", "--"),
        "paper": ("#b3123f", "time, paper's costs", ":"),
    }
    wholes = {"raw": "raw 0.9 0.93", "conditional": "conditional 0.9 0.9"}
    with mpl.rc_context(RC):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        for axes, (rule, whole) in zip(figure.subplots(1, 2), wholes.items(), strict=True):
            names = [n for n in online["arms"] if n.startswith(f"min_prefix {rule}")]
            named = {int(n.split()[-1]): n for n in names} | {2: whole}
            steps = sorted(named)
            for key, (colour, label, dash) in lines.items():
                rows = [online["arms"][named[step]] for step in steps]
                y = [row[key][0] if key in row else row["seconds"][key] for row in rows]
                axes.plot(steps, y, dash, color=colour, marker="o", markersize=4, label=label)
            axes.axhline(1, color="#444444", linewidth=0.8)
            axes.set_xlabel("K_min, draft tokens a skip commits at least")
            axes.set_ylabel("relative to strict")
            axes.set_title(rule, fontsize=9)
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False
        )
        _save(figure, file)


def _save(figure: Figure, file: Path) -> None:
    nothing = {"Date": None, "Creator": None}
    figure.savefig(file, format="svg", metadata=nothing, facecolor="white")
