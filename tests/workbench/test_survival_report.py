"""What is drawn of recorded blocks."""

import pytest

from lenity.workbench.survival_report import (
    permuted_mean,
    survival_plots,
    survival_reliability,
    survival_tables,
)
from lenity.workbench.sweep_survival import diagnose_all, survival_sweep
from tests.workbench.logs import survival_run


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = survival_run(tmp_path_factory.mktemp("survival") / "run")
    wanted = [f"{s}:local=0.9,prefix=0.8" for s in ("raw", "marginal", "conditional")]
    return diagnose_all(folder, survival_sweep(folder, wanted, repetitions=5))


def curves(plot):
    return {curve.label: curve for curve in plot.curves}


def test_positions_stand_beside_the_mere_position(found):
    plots = {plot.key: plot for plot in survival_plots(found, "made")}
    assert list(curves(plots["bce-all"])) == ["raw", "marginal", "position only"]
    assert list(curves(plots["bce-at-risk"])) == ["conditional", "position only"]
    own = curves(plots["bce-all"])["marginal"].points
    assert [(p.x, p.y) for p in own] == [(q.position, q.bce) for q in found[1].positions]
    baseline = curves(plots["bce-at-risk"])["position only"]
    assert [p.y for p in baseline.points] == [q.baseline_bce for q in found[2].positions]
    assert baseline.is_reference
    areas = curves(plots["auroc"])
    assert [p.y for p in areas["raw"].points] == [q.auroc for q in found[0].positions]
    assert {p.y for p in areas["chance, and position only"].points} == {0.5}


def test_permuting_shortens_what_passes(found):
    plots = {plot.key: plot for plot in survival_plots(found, "made")}
    before, after = plots["permutation"].curves
    assert [point.x for point in before.points] == ["raw", "marginal", "conditional"]
    for drafted, permuted in zip(before.points, after.points, strict=True):
        assert permuted.y.low <= permuted.y.estimate <= permuted.y.high < drafted.y
    passing = curves(plots["passing"])
    assert list(passing)[:2] == ["raw", "raw, permuted"]
    assert [p.x for p in passing["raw"].points] == [1, 2, 3, 4, 5, 6]
    assert permuted_mean(found[0]).estimate == found[0].permutation.after


def test_gates_left_out_are_drawn_and_told(found):
    plots = {plot.key: plot for plot in survival_plots(found, "made")}
    lengths = curves(plots["gates-length"])["conditional"]
    assert [p.x for p in lengths.points] == ["both gates", "local only", "prefix only"]
    own = found[2].ablation
    assert [p.y for p in lengths.points] == [o.skipped / o.blocks for o in own]
    agreed = curves(plots["gates-agreement"])["conditional"]
    assert [p.y for p in agreed.points] == [o.strict_token for o in own]
    signals, gates, positions = survival_tables(found)
    assert [len(table.rows) for table in (signals, gates, positions)] == [3, 9, 18]


def test_reliability_is_of_positions_and_of_prefixes(found):
    plots = survival_reliability(found, "made")
    assert [plot.key for plot in plots] == ["reliability-positions", "reliability-prefixes"]
    assert [c.label for c in plots[0].curves] == ["raw", "marginal", "conditional"]
    first = plots[1].curves[2].bins[0]
    own = found[2].prefix_reliability[0]
    assert (first.forecast, first.observed, first.count) == (own.mean_score, own.rate, own.count)


def test_what_nothing_passes_and_nobody_can_tell_is_left_out(tmp_path):
    folder = survival_run(tmp_path / "run", num=10)
    found = diagnose_all(folder, survival_sweep(folder, ["conditional:local=1.1"], repetitions=1))
    keys = [plot.key for plot in survival_plots(found, "made")]
    assert keys == ["bce-at-risk", "passing", "permutation", "gates-agreement", "gates-length"]
    (agreed,) = survival_plots(found, "made")[3].curves
    assert [p.x for p in agreed.points] == ["prefix only"]
