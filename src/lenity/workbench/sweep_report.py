"""The report of a sweep, from its directory alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lenity.workbench.config import STRICT
from lenity.workbench.metrics import Counts
from lenity.workbench.parts import acceptance, arms_table, left_out, setting_of
from lenity.workbench.records import SampleRecord
from lenity.workbench.report.data import Disclosure, ReportData
from lenity.workbench.report.plot_data import Sweep
from lenity.workbench.rundir import RunDir
from lenity.workbench.sweep import Preset, SweepSettings, preset, steps
from lenity.workbench.sweep_costs import StageCosts, costs_table, runtime_model
from lenity.workbench.sweep_measures import CALLS, Quantity, measured, quantities
from lenity.workbench.sweep_offline import is_offline, offline_report
from lenity.workbench.sweep_plots import Drawn, over_calls, over_knob, settings_table
from lenity.workbench.tables import Table

TIMES = (
    "arms take turns prompt by prompt; throughput is new tokens by the seconds of drafting, "
    "target, verifying and committing, without the prompts' passes and the shadow verifier"
)

COSTLY = (CALLS, "relative_blocks", "throughput", "gain")
"""Quantities that a break-even says something about."""


def sweep_report(run: RunDir, missing: Mapping[str, int] | None = None) -> ReportData:
    """Return the report of a recorded sweep: one plot a measure."""
    if is_offline(run):
        return offline_report(run)
    settings = run.settings("sweep", SweepSettings)
    records: dict[str, list[SampleRecord]] = {}
    for record in run.records():
        records.setdefault(record.arm, []).append(record)
    known = [step for step in steps(settings) if step.arm.name in records]
    chosen = preset(settings.preset)
    protocol = _protocol(settings, chosen)
    asked = quantities(
        np.random.default_rng(settings.seed), settings.resamples, with_times=chosen.is_timed
    )
    drawn = Drawn(
        steps=known,
        values=measured(asked, known, records),
        protocol=protocol,
        run_id=run.manifest.run_id,
        x_label=chosen.x_label,
    )
    costs = StageCosts.of(Counts.of(records.get(STRICT, ()))) if chosen.is_timed else None
    model = None
    if costs is not None and chosen.kind != "mixed":
        model = runtime_model(costs, records, drawn.values["throughput"], protocol)
    return ReportData(
        kind="sweep",
        title=f"Sweep: {chosen.x_label}",
        summary=chosen.words,
        created_at=run.manifest.started_at,
        setting=setting_of(run.manifest.provenance, settings.drafter),
        missing=left_out(missing or run.manifest.missing),
        acceptance=acceptance({s.arm.name: records[s.arm.name] for s in known[:4]}, protocol),
        sweeps=_plots(asked, drawn, chosen, costs),
        predicted=(model,) if model else (),
        tables=_tables(asked, drawn, costs, records),
        disclosure=Disclosure(
            provenance=run.manifest.provenance,
            run_ids=(run.manifest.run_id,),
            protocols=(protocol,),
        ),
    )


def _protocol(settings: SweepSettings, chosen: Preset) -> str:
    gamma = "as shown" if chosen.kind == "gamma" else str(settings.gamma)
    text = f"natural EOS, {settings.questions.num_prompts} discovery prompts, gamma {gamma}"
    return f"{text}; {TIMES}" if chosen.is_timed else text


def _plots(
    asked: Sequence[Quantity], drawn: Drawn, chosen: Preset, costs: StageCosts | None
) -> tuple[Sweep, ...]:
    """Return a plot a quantity: over the knob, or over target calls where the knobs differ."""
    if chosen.kind == "mixed":
        plots = [over_calls(quantity, drawn) for quantity in asked if quantity.key != CALLS]
    else:
        is_level = chosen.kind == "skip"
        mark = costs.mark if costs is not None and is_level else None
        plots = [
            over_knob(q, drawn, mark=mark if q.key in COSTLY else None, is_level=is_level)
            for q in asked
        ]
    return tuple(plot for plot in plots if plot is not None)


def _tables(
    asked: Sequence[Quantity],
    drawn: Drawn,
    costs: StageCosts | None,
    records: Mapping[str, Sequence[SampleRecord]],
) -> tuple[Table, ...]:
    arms = arms_table({step.arm.name: records[step.arm.name] for step in drawn.steps})
    own = (settings_table(asked, drawn),) if drawn.steps else ()
    return (arms, *own, *((costs_table(costs),) if costs else ()))
