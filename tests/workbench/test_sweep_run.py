"""A sweep at work, broken off and gone on with."""

import pytest
from safetensors.torch import save_file

from lenity.errors import ConfigError
from lenity.skipping.survival import DESCRIPTION, WEIGHTS, Description, SurvivalPredictor
from lenity.workbench.config import NaturalEos
from lenity.workbench.rundir import RunDir
from lenity.workbench.sweep import SweepSettings
from lenity.workbench.sweep_report import sweep_report
from lenity.workbench.sweep_run import checked_steps, run_sweep
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


def predictor(folder):
    """A marginal predictor that knows nothing."""
    folder.mkdir()
    made = SurvivalPredictor(Description(estimand="marginal", width=1))
    (folder / DESCRIPTION).write_text(made.description.model_dump_json())
    save_file(made.state_dict(), folder / WEIGHTS)
    return folder


def test_a_predictor_that_cannot_be_read_is_refused_before_anything_is_decoded(tmp_path):
    folder = predictor(tmp_path / "p")
    asked = settings("skipping", values=(f"marginal:predictor={folder},local=0.2",))
    assert [step.curve for step in checked_steps(asked)] == ["strict", "marginal"]
    (folder / WEIGHTS).write_bytes(b"damaged")
    with pytest.raises(ConfigError, match="Expected a survival predictor in"):
        run_sweep(study(tmp_path / "run", questions_file(tmp_path)), asked)
    assert not (tmp_path / "run").exists()
    other = settings("skipping", values=("conditional:predictor=/nowhere/x",))
    with pytest.raises(ConfigError, match="No such file"):
        checked_steps(other)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("budget", "abc", "budget: expected a number, got 'abc'"),
        ("matched_regret", "margin:ratio=0.9/x", "ratio: expected a number, got '0.9/x'"),
        ("matched_regret", "margin:ration=1", "no knob 'ration'"),
        ("skipping", "top_k:k=a/b", "k: expected an integer, got 'a/b'"),
        ("skipping", "marginal:predictor=x,family=code/x", "expected 'code' or 'maths'"),
        ("gate_ablation", "raw:local=high", "local: expected a number, got 'high'"),
    ],
)
def test_a_knob_of_a_value_is_refused_as_such(name, value, told):
    with pytest.raises(ConfigError, match=told):
        checked_steps(settings(name, values=(value,)))


@pytest.mark.parametrize("name", ["skipping", "min_prefix", "gate_ablation"])
def test_a_family_that_no_predictor_knows_is_refused(name):
    with pytest.raises(ConfigError, match="got 'poetry'"):
        checked_steps(settings(name, skip="raw", values=(), family="poetry"))
