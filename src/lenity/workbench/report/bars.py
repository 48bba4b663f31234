"""Plots of blocks: time by stage, regret spent, the opportunity map."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from lenity.workbench.report.axes import SMALL, brief, draw_mark, name_axes
from lenity.workbench.report.data import Setting
from lenity.workbench.report.figure import Figure, Key, caption
from lenity.workbench.report.plot_data import (
    Latency,
    LatencyOfArm,
    Opportunity,
    OpportunityOfTask,
    RegretSpent,
)
from lenity.workbench.report.plot_tables import latency_table, opportunity_table, regret_table
from lenity.workbench.report.svg import drawn
from lenity.workbench.report.theme import COLOURS, STAGES, Look
from lenity.workbench.tables import MILLISECONDS, PERCENT

STRONGEST = 0.85
"""Opacity of the largest share in an opportunity map; the smallest, 0, is the page itself."""


# ---- latency


def latency(plot: Latency, setting: Setting) -> Figure:
    """Return milliseconds per emitted token, one stacked bar an arm."""
    return Figure(
        slug="latency",
        title="Time per token by stage",
        svg=drawn(
            lambda axes: _draw_latency(axes, plot),
            slug="latency",
            title="Time per token by stage",
            description="; ".join(map(_latency_told, plot.arms)) + ".",
            height=0.85 + 0.62 * len(plot.arms),
        ),
        caption=caption(plot, setting),
        legend=tuple(
            Key(text=stage, look=Look(name, "s", "-"), kind="block")
            for stage, name in STAGES.items()
        ),
        table=latency_table(plot),
    )


def _stages(arm: LatencyOfArm) -> dict[str, float]:
    """Return the milliseconds of each stage."""
    return {stage: getattr(arm, f"{stage}_seconds") * MILLISECONDS.scale for stage in STAGES}


def _latency_told(arm: LatencyOfArm) -> str:
    stages = ", ".join(f"{stage} {ms:.2f}" for stage, ms in _stages(arm).items())
    return f"{arm.arm}: {stages} ms"


def _draw_latency(axes: Axes, plot: Latency) -> None:
    widest = max(sum(_stages(arm).values()) for arm in plot.arms) or 1.0
    for row, arm in enumerate(plot.arms):
        left = 0.0
        for stage, ms in _stages(arm).items():
            axes.barh(
                row,
                ms,
                left=left,
                height=0.42,
                color=COLOURS[STAGES[stage]][0],
                edgecolor=COLOURS["card"][0],
                linewidth=0.8,
            )
            left += ms
        axes.text(0, row - 0.28, brief(arm.arm), va="bottom", fontsize=10.5)
        total = f"{left:.2f} ms"
        axes.text(left + widest * 0.015, row, total, va="center", fontsize=SMALL)
    axes.set_xlim(0, widest * 1.2)
    axes.set_ylim(len(plot.arms) - 0.6, -0.8)  # the first arm on top
    axes.set_yticks([])
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel("Milliseconds per emitted token")
    axes.grid(axis="x")


# ---- regret


def regret(plot: RegretSpent, setting: Setting, looks: Mapping[str, Look]) -> Figure:
    """Return requests by the nats each gave away, and the budget."""
    beyond = [
        f"{arm.histogram.num_over} requests of {arm.arm} lie beyond the bins"
        for arm in plot.arms
        if arm.histogram.num_over
    ]
    counted = [f"{arm.arm}: {sum(arm.histogram.counts)} requests" for arm in plot.arms]
    return Figure(
        slug="regret",
        title="Regret spent by request",
        svg=drawn(
            lambda axes: _draw_regret(axes, plot, looks),
            slug="regret",
            title="Regret spent by request",
            description="; ".join(counted) + ".",
        ),
        caption=caption(plot, setting, *beyond),
        legend=tuple(Key(text=arm.arm, look=looks[arm.arm], kind="block") for arm in plot.arms),
        table=regret_table(plot),
    )


def _draw_regret(axes: Axes, plot: RegretSpent, looks: Mapping[str, Look]) -> None:
    opacity = 0.8 if len(plot.arms) == 1 else 0.25
    for arm in plot.arms:
        colour = looks[arm.arm].colour
        counts, edges = arm.histogram.counts, arm.histogram.edges
        axes.stairs(counts, edges, fill=True, color=colour, alpha=opacity)
        axes.stairs(counts, edges, color=colour, linestyle=looks[arm.arm].dash, linewidth=1.4)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    if plot.budget is not None and isfinite(plot.budget):
        draw_mark(axes, plot.budget, f"budget {plot.budget:g}")
    name_axes(axes, "Regret spent, nats", "Requests")


# ---- opportunity


def opportunity(plot: Opportunity, setting: Setting) -> list[Figure]:
    """Return one map a task; equal shares have equal colours in all of them."""
    known = [s for task in plot.tasks for row in task.shares for s in row if s is not None]
    top = max(known, default=0.0) or 1.0
    return [
        _opportunity(plot, setting, task, top, number) for number, task in enumerate(plot.tasks, 1)
    ]


def _opportunity(
    plot: Opportunity, setting: Setting, task: OpportunityOfTask, top: float, number: int
) -> Figure:
    slug = f"opportunity-{number}"
    return Figure(
        slug=slug,
        title=task.task,
        svg=drawn(
            lambda axes: _draw_map(axes, task, top),
            slug=slug,
            title=f"Opportunity map of {task.task}",
            description=f"Share of {task.num_mismatches} mismatches with regret up to tau that p "
            f"agreeing draft tokens follow.",
            height=1.0 + 0.34 * len(task.taus),
        ),
        caption=caption(
            plot, setting, f"{task.num_mismatches:,} mismatches, all positions of all blocks"
        ),
        table=opportunity_table(plot) if number == 1 else None,
    )


def _draw_map(axes: Axes, task: OpportunityOfTask, top: float) -> None:
    blue, ink, strong = (COLOURS[name][0] for name in ("s1", "ink", "strong"))
    for i, row in enumerate(task.shares):
        for j, share in enumerate(row):
            if share is None:
                continue
            opacity = STRONGEST * share / top
            axes.add_patch(Rectangle((j, i), 0.96, 0.94, facecolor=blue, alpha=opacity, lw=0))
            axes.text(
                j + 0.48,
                i + 0.47,
                f"{share * PERCENT.scale:.0f}",
                ha="center",
                va="center",
                fontsize=SMALL,
                color=strong if opacity > 0.65 else ink,
            )
    axes.set_xlim(0, len(task.horizons))
    axes.set_ylim(0, len(task.taus))
    axes.set_xticks([j + 0.48 for j in range(len(task.horizons))], map(str, task.horizons))
    axes.set_yticks([i + 0.47 for i in range(len(task.taus))], [f"{t:g}" for t in task.taus])
    axes.tick_params(length=0)
    axes.spines["bottom"].set_visible(False)
    axes.set_xlabel("p, agreeing draft tokens behind the mismatch")
    axes.set_title("Regret up to tau, nats. In cells: % of mismatches")
