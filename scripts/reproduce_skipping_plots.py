"""The plots of docs/reproduce/skipping.md: same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.reproduce_skipping_grids import PAPER_DRAFT_SHARE

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
    axes.plot(x, y, color=colour, marker=mark, markersize=4, linewidth=0.8, label=rule)


def plot_min_prefix(found: Mapping[str, Any], file: Path) -> None:
    """Draw predicted calls, blocks and time over K_min, for raw and conditional."""
    predicted, share = found["offline"]["predicted"], found["online"]["draft_share"]
    with mpl.rc_context(RC):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        for axes, rule in zip(figure.subplots(1, 2), ("raw", "conditional"), strict=True):
            names = [n for n in predicted if n.startswith(f"min_prefix {rule}")]
            rows = {int(n.split()[-1]): predicted[n] for n in names}
            steps = sorted(rows)
            calls = [rows[step]["calls"][0] for step in steps]
            blocks = [rows[step]["blocks"] for step in steps]
            axes.plot(steps, calls, "-o", color="#0b6e99", markersize=4, label="target calls")
            axes.plot(steps, blocks, "-s", color="#b4530a", markersize=4, label="draft blocks")
            for part, dash, whose in ((PAPER_DRAFT_SHARE, ":", "paper's"), (share, "--", "our")):
                time = [part * b + (1 - part) * c for b, c in zip(blocks, calls, strict=True)]
                axes.plot(steps, time, dash, color="#222222", label=f"time, {whose} costs")
            axes.axhline(1, color="#444444", linewidth=0.8)
            axes.set(xlabel="K_min, draft tokens a skip commits at least", ylabel="over strict")
            axes.set_title(rule, fontsize=9)
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False
        )
        _save(figure, file)


def _save(figure: Figure, file: Path) -> None:
    nothing = {"Date": None, "Creator": None}
    figure.savefig(file, format="svg", metadata=nothing, facecolor="white")
