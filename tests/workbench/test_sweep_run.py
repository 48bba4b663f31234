"""A sweep at work, broken off and gone on with."""

from lenity.workbench.config import NaturalEos
from lenity.workbench.rundir import RunDir
from lenity.workbench.sweep import SweepSettings
from lenity.workbench.sweep_report import sweep_report
from lenity.workbench.sweep_run import run_sweep
from lenity.workbench.trace import read_traces
from tests.workbench.studies import questions, questions_file, study


def settings(preset="budget", **changes):
    base = {
        "preset": preset,
        "questions": questions(4),
        "drafter": "ngram",
        "policy": "asd:budget=1,gate=inf,block_cap=none",
        "gamma": 4,
        "values": (0, 1, 4),
        "natural": NaturalEos(max_new_tokens=80),
        "resamples": 200,
    }
    return SweepSettings.model_validate(base | changes)


def test_budget_zero_is_strict_and_more_budget_takes_fewer_passes(tmp_path):
    data = questions_file(tmp_path)
    run, missing = run_sweep(study(tmp_path / "run", data), settings())
    assert not missing
    rows = {}
    for record in run.records():
        rows.setdefault(record.arm, []).append(record)
    strict = [record.token_ids for record in rows["strict"]]
    assert [record.token_ids for record in rows["asd-budget-0"]] == strict
    passes = [
        sum(r.target_passes for record in rows[f"asd-budget-{b}"] for r in record.rounds)
        for b in (0, 1, 4)
    ]
    assert passes == sorted(passes, reverse=True)
    assert passes[0] > passes[2]
    assert {trace.arm for trace in read_traces(run.path / "traces.jsonl")} == set(rows)
    plots = {plot.key: plot for plot in sweep_report(run).sweeps}
    own = {curve.label: curve for curve in plots["regret_spent"].curves}["asd"]
    assert [point.x for point in own.points] == [0.0, 1.0, 4.0]
    assert own.points[0].y == 0
    run.close()


def test_skipping_is_swept_with_a_shadow(tmp_path):
    data = questions_file(tmp_path)
    asked = settings("min_prefix", skip="periodic:period=2,count=2", values=(), shadow=True)
    asked = asked.model_copy(update={"preset": "skipping", "gamma": 4})
    own = study(tmp_path / "run", data)
    run, missing = run_sweep(own, asked, traces=False)
    assert not missing
    skipped = [r for r in run.records() if r.arm.startswith("periodic")]
    rounds = [c for record in skipped for c in record.rounds if c.skipped]
    assert rounds
    assert all(c.shadow_accepted is not None for c in rounds)
    run.close()


def test_time_that_is_up_is_gone_on_with(tmp_path):
    data = questions_file(tmp_path)
    run, missing = run_sweep(study(tmp_path / "run", data, minutes=1e-9), settings())
    assert sum(missing.values()) == 4 * 4
    run.pause(missing)
    run, missing = run_sweep(study(tmp_path / "run", data), settings())
    assert not missing
    run.finish()
    assert RunDir.open(tmp_path / "run").is_finished
    again, missing = run_sweep(study(tmp_path / "run", data), settings())
    assert again.is_finished
    assert not missing
