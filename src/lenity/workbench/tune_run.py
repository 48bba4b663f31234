"""A tune at work: traces, shortlist, rungs, and the operating point it writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from lenity.engine.curves import CostCurves
from lenity.engine.timing import measure_curves
from lenity.policies import policy
from lenity.workbench.arms import Arms
from lenity.workbench.audit_run import Study, missing_of
from lenity.workbench.config import PLAIN, STRICT, Arm, plain_of
from lenity.workbench.facts import drafter_facts, target_facts
from lenity.workbench.manifest import begin
from lenity.workbench.operating_point import (
    Choice,
    OperatingPoint,
    freeze,
    save_operating_point,
)
from lenity.workbench.pareto import Point
from lenity.workbench.protocols import Outcome, fixed_work, natural_eos
from lenity.workbench.provenance import Provenance, collect
from lenity.workbench.records import SampleRecord
from lenity.workbench.replay import Replayer
from lenity.workbench.rundir import RunDir
from lenity.workbench.seed_point import seed_point
from lenity.workbench.select import Selection
from lenity.workbench.trace import read_traces
from lenity.workbench.trace_log import TraceLog
from lenity.workbench.tune import (
    EOS,
    WORK,
    Candidate,
    Chosen,
    TuneSettings,
    decide,
    grid,
    measure,
    predict,
    rung_sizes,
    shortlist,
    survivors,
)

TRACE = "trace"
"""Name of the arm that is traced: strict at the largest gamma."""
CURVES, CANDIDATES, CHOSEN = "curves.json", "candidates.json", "chosen.json"
POINT_FILE = "operating-point.yaml"


def run_tune(
    study: Study, settings: TuneSettings
) -> tuple[RunDir, OperatingPoint | None, dict[str, int]]:
    """Run or go on with a tune; return its directory, the point, and what is missing, by arm.

    The point is None while time was too short to choose. A complete run is left open for its
    report; ``finish`` it then.
    """
    chosen = study.selection(settings.questions, "discovery")
    traced = Arms(study.target, [_arm(settings, TRACE)], drafters=study.drafters)
    drafts = drafter_facts(traced.drafters[settings.drafter], study.target)
    provenance = collect(
        target=target_facts(study.target),
        drafters=[drafts],
        template_hash=chosen.template_hash,
        data=chosen.revisions,
    )
    stored: dict[str, Any] = {
        "tune": settings.model_dump(mode="json"),
        "prompts": chosen.digest,
    }
    run = RunDir.create(study.folder, begin("tune", stored, provenance))
    if run.is_finished:
        return run, None, {}
    search = _Search(study, settings, chosen, run, traced)
    with run.held():
        found = search.search()
    if found is None:
        return run, None, missing_of(search.outcomes)
    candidate, verdict = found
    point = _freeze(provenance, settings, candidate, verdict, chosen, run)
    save_operating_point(point, run.path / POINT_FILE)
    return run, point, {}


def _arm(settings: TuneSettings, name: str, rule: str = "strict", gamma: int | None = None) -> Arm:
    return Arm(
        name=name,
        drafter=settings.drafter,
        policy=rule,
        gamma=gamma or max(settings.gammas),
        batch_size=settings.batch_size,
    )


class _Search:
    """One tune on its way; whatever is recorded already is not done again."""

    def __init__(
        self,
        study: Study,
        settings: TuneSettings,
        chosen: Selection,
        run: RunDir,
        traced: Arms,
    ) -> None:
        self._study, self._settings, self._run = study, settings, run
        self._selection, self._jobs, self._traced = chosen, chosen.jobs, traced
        self.outcomes: list[Outcome] = []

    def search(self) -> tuple[Candidate | None, Chosen] | None:
        """Return the chosen candidate (None for plain) and why; None where time was up."""
        candidates = self._candidates()
        if candidates is None:
            return None
        strict, finalists = candidates
        names = [candidate.name for candidate in finalists]
        points: list[Point] = []
        measured: Literal["score", "logprob"] = "logprob"
        last = names
        for size in rung_sizes(len(self._jobs), self._settings.rungs):
            alive = [c for c in finalists if c.name in names]
            if not self._measure(strict, alive, size):
                return None
            records = self._records()
            points, measured = measure(records, names, self._settings)
            last = names
            names = survivors(points, names)
        final = [point for point in points if point.name in last]
        verdict = decide(self._records(), final, measured, self._settings)
        self._run.write_artefact(CHOSEN, verdict.model_dump_json(indent=1))
        by_name = {c.name: c for c in finalists} | {STRICT: strict, PLAIN: None}
        return by_name[verdict.name], verdict

    def _records(self) -> dict[str, list[SampleRecord]]:
        out: dict[str, list[SampleRecord]] = {}
        for record in self._run.records():
            out.setdefault(record.arm, []).append(record)
        return out

    def _candidates(self) -> tuple[Candidate, list[Candidate]] | None:
        """Return strict at its best gamma and the shortlist, traced and predicted once."""
        path = self._run.path / CANDIDATES
        if not path.is_file():
            if not self._trace():
                return None
            self._predict()
        stored = json.loads(path.read_text())
        return (
            Candidate.model_validate(stored["strict"]),
            [Candidate.model_validate(one) for one in stored["finalists"]],
        )

    def _trace(self) -> bool:
        with TraceLog(self._run) as log:
            self._traced.traces = log
            outcome = natural_eos(
                self._traced,
                self._jobs[: self._settings.trace_prompts],
                self._settings.natural,
                self._run,
                progress=self._study.progress,
                deadline=self._study.deadline,
            )
        self.outcomes.append(outcome)
        return outcome.is_complete

    def _predict(self) -> None:
        """Measure costs, replay the grid, and store what is worth measuring."""
        settings = self._settings
        traces = [t for t in read_traces(self._run.path / "traces.jsonl") if t.rounds]
        replayer, curves = Replayer(traces), self._costs()
        rules = [policy(spec).spec for spec in settings.policies or grid()]
        try:
            rules.append(seed_point(traces).policy)
        except Exception as error:  # a drafter that is never wrong seeds nothing
            self._run.write_artefact("seed-point.txt", f"{error}\n")
        batch = min(settings.batch_size, max(curves.batches))
        found = predict(replayer, curves, dict.fromkeys(rules), settings.gammas, batch_size=batch)
        strict = predict(replayer, curves, ["strict"], settings.gammas, batch_size=batch)[0]
        stored = {
            "strict": strict.model_copy(update={"name": STRICT}).model_dump(mode="json"),
            "finalists": [c.model_dump(mode="json") for c in shortlist(found, settings.finalists)],
            "candidates": [c.model_dump(mode="json") for c in found],
        }
        self._run.write_artefact(CANDIDATES, json.dumps(stored, indent=1))

    def _costs(self) -> CostCurves:
        settings = self._settings
        longest = max(settings.gammas)
        curves = measure_curves(
            self._study.target,
            self._traced.drafters[settings.drafter],
            max_draft_length=longest,
            widths=tuple(sorted({1, 2, *(gamma + 1 for gamma in settings.gammas)})),
            batches=tuple(sorted({1, settings.batch_size})),
            repeats=5,
        )
        self._run.write_artefact(CURVES, curves.model_dump_json(indent=1))
        return curves

    def _measure(self, strict: Candidate, alive: Sequence[Candidate], size: int) -> bool:
        """Run both protocols of some candidates on the first ``size`` prompts."""
        settings, study = self._settings, self._study
        own = [
            _arm(settings, c.name, c.policy, c.gamma)
            for c in (strict.model_copy(update={"policy": "strict"}), *alive)
        ]
        base = own[0]
        work = [plain_of(base, f"{PLAIN}-{WORK}"), *(a.renamed(f"{a.name}-{WORK}") for a in own)]
        rest = [a.renamed(f"{a.name}-{EOS}") for a in own]
        drafters = self._traced.drafters
        outcome = fixed_work(
            Arms(study.target, work, drafters=drafters),
            self._jobs[:size],
            settings.fixed,
            self._run,
            progress=study.progress,
            deadline=study.deadline,
        )
        self.outcomes.append(outcome)
        if not outcome.is_complete:
            return False
        outcome = natural_eos(
            Arms(study.target, rest, drafters=drafters),
            self._jobs[:size],
            settings.natural,
            self._run,
            scorer=self._selection.scorer,
            progress=study.progress,
            deadline=study.deadline,
        )
        self.outcomes.append(outcome)
        return outcome.is_complete


def _freeze(
    provenance: Provenance,
    settings: TuneSettings,
    candidate: Candidate | None,
    verdict: Chosen,
    chosen: Selection,
    run: RunDir,
) -> OperatingPoint:
    """Return the operating point of what was chosen; plain decoding is off."""
    numbers: dict[str, Any] = {"gain_over_plain": verdict.gain_over_plain}
    if verdict.choice.point is not None and verdict.name == verdict.choice.point.name:
        numbers |= {
            "gain_over_strict": verdict.choice.point.gain,
            "quality": verdict.choice.point.quality,
        }
    return freeze(
        provenance,
        policy("strict" if candidate is None else candidate.policy),
        drafter=None if candidate is None else settings.drafter,
        gamma=0 if candidate is None else candidate.gamma,
        batch_size=settings.batch_size,
        data=chosen.data_split,
        chosen_by=Choice(rule=verdict.rule, numbers=numbers, run_id=run.manifest.run_id),
    )
