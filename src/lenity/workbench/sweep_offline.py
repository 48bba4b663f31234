"""Sweeps without a model: computed from recorded blocks or drawn, kept in a run directory.

The run holds what was computed (diagnostics.json), so that its report is made again from there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lenity.workbench.diagnosis import Diagnosis
from lenity.workbench.manifest import begin, parse
from lenity.workbench.proposition import Simulation
from lenity.workbench.provenance import Provenance, collect
from lenity.workbench.records import Frozen
from lenity.workbench.report.data import Disclosure, ReportData, Setting
from lenity.workbench.rundir import RunDir
from lenity.workbench.survival_report import (
    survival_plots,
    survival_reliability,
    survival_tables,
)
from lenity.workbench.sweep_proposition import (
    PropositionSweep,
    proposition_plots,
    proposition_table,
    simulate_all,
)
from lenity.workbench.sweep_survival import SurvivalSweep, diagnose_all

RESULT = "diagnostics.json"
KEY = "offline"
"""Under which a run's settings hold those of such a sweep."""


class Result(Frozen):
    """What an offline sweep computed."""

    diagnoses: tuple[Diagnosis, ...] = ()
    """Of survival, signal by signal"""
    simulations: tuple[Simulation, ...] = ()
    """Of the proposition, rho by rho"""


def is_offline(run: RunDir) -> bool:
    """Return whether a run of kind sweep is one of these."""
    return KEY in run.manifest.settings


def run_offline(
    folder: Path, settings: SurvivalSweep | PropositionSweep, source: Path | None = None
) -> RunDir:
    """Compute a sweep into a run directory, or return the finished one of equal settings.

    ``source`` is the folder of the blocks. The run is left open for its report.
    """
    stored: dict[str, Any] = {KEY: settings.model_dump(mode="json")}
    run = RunDir.create(folder, begin("sweep", stored, collect()))
    if run.is_finished:
        return run
    with run.held():
        run.write_artefact(RESULT, _compute(settings, source).model_dump_json(indent=1) + "\n")
    return run


def _compute(settings: SurvivalSweep | PropositionSweep, source: Path | None) -> Result:
    if isinstance(settings, PropositionSweep):
        return Result(simulations=simulate_all(settings))
    assert source is not None, "whoever made the settings read it"
    return Result(diagnoses=diagnose_all(source, settings))


def offline_report(run: RunDir) -> ReportData:
    """Return the report of such a run, from its directory alone."""
    file = run.artefact(RESULT)
    result = parse(Result, file.read_text(encoding="utf-8"), str(file), 0)
    if result.simulations:
        return _proposition_report(run, run.settings(KEY, PropositionSweep), result)
    return _survival_report(run, run.settings(KEY, SurvivalSweep), result)


def _survival_report(run: RunDir, settings: SurvivalSweep, result: Result) -> ReportData:
    found, source = result.diagnoses, settings.source
    protocol = (
        f"{found[0].blocks:,} blocks of strict rounds at gamma {source.gamma or 'unknown'}, each "
        f"scored by the predictor that saw nothing of its prompt; {settings.repetitions} "
        f"permutations"
    )
    models = f"{source.target or 'unknown target'}, {source.drafter or 'unknown drafter'}"
    return ReportData(
        kind="sweep",
        title="Sweep: survival by position",
        summary="how well each signal tells what strict accepts, position by position and prefix "
        "by prefix; the paper has learned signals ahead here, and none ahead online",
        created_at=run.manifest.started_at,
        setting=Setting(models=models, hardware="recorded blocks, no model loaded"),
        sweeps=survival_plots(found, protocol),
        reliability=survival_reliability(found, protocol),
        tables=survival_tables(found),
        disclosure=_disclosure(run.manifest.provenance, run, protocol),
    )


def _proposition_report(run: RunDir, settings: PropositionSweep, result: Result) -> ReportData:
    protocol = f"{settings.num_blocks:,} drawn blocks for each rho; L: {settings.law_from}"
    return ReportData(
        kind="sweep",
        title="Sweep: equal positions, unequal prefixes",
        summary="verifier skipping, proposition 1: two scores with the same law at every "
        "position, one coin a block or one a position",
        created_at=run.manifest.started_at,
        setting=Setting(models="simulation", hardware="no model loaded"),
        sweeps=proposition_plots(settings, result.simulations, protocol),
        tables=(proposition_table(settings, result.simulations),),
        disclosure=_disclosure(run.manifest.provenance, run, protocol),
    )


def _disclosure(provenance: Provenance, run: RunDir, protocol: str) -> Disclosure:
    return Disclosure(provenance=provenance, run_ids=(run.manifest.run_id,), protocols=(protocol,))
