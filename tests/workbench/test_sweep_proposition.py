"""The sweep of the proposition: laws, values of rho, what is drawn."""

import pytest

from lenity.errors import ConfigError
from lenity.workbench.diagnostics import write_blocks
from lenity.workbench.sweep_proposition import (
    geometric_law,
    proposition_plots,
    proposition_sweep,
    proposition_table,
    recorded_law,
    simulate_all,
)


def test_a_geometric_law_by_hand():
    assert geometric_law(2, 0.5) == (0.5, 0.25, 0.25)
    assert sum(geometric_law(16)) == pytest.approx(1)


def test_a_recorded_law_counts_full_blocks(tmp_path):
    rows = [(2, 3), (3, 3), (3, 3), (0, 3), (1, 1)]
    write_blocks(
        tmp_path / "raw.jsonl",
        (
            {"signal": "raw", "scores": [0.5] * length, "accepted": accepted, "fold": 0}
            for accepted, length in rows
        ),
    )
    assert recorded_law(tmp_path / "raw.jsonl") == (0.25, 0.0, 0.25, 0.5)
    found = proposition_sweep(9, source=tmp_path / "raw.jsonl")
    assert len(found.law) == 4
    assert found.law_from == "accepted lengths of the blocks"


def test_prefixes_part_where_positions_do_not():
    settings = proposition_sweep(8, ["0.5", "0.9"])
    found = simulate_all(settings)
    plots = {plot.key: plot for plot in proposition_plots(settings, found, "drawn")}
    assert list(plots) == [
        f"{name}-rho-{rho}" for rho in ("0_5", "0_9") for name in ("passing", "bce", "auroc")
    ]
    curves = {curve.label: curve for curve in plots["passing-rho-0_5"].curves}
    block, position = curves["one coin a block"], curves["one coin a position"]
    assert block.points[7].y.low > 10 * position.points[7].y.high
    for label, law in (("one coin a block", "P(L ≥ K) ρ"), ("one coin a position", "P(L ≥ K) ρ^K")):
        for drawn, expected in zip(curves[label].points, curves[law].points, strict=True):
            assert abs(drawn.y.estimate - expected.y) < 0.03
    entropies = {curve.label: curve for curve in plots["bce-rho-0_5"].curves}
    for one, other in zip(*(curve.points for curve in entropies.values()), strict=True):
        assert one.y == pytest.approx(other.y, abs=0.03)
    assert len(proposition_table(settings, found).rows) == 16


@pytest.mark.parametrize("wanted", [["1.5"], ["much"], ["0.5", "0.5"], ["0.5", "0.5000000001"]])
def test_what_is_no_probability_is_refused(wanted):
    with pytest.raises(ConfigError, match="values of rho from 0 to 1"):
        proposition_sweep(4, wanted)
