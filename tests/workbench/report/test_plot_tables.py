"""The numbers beneath plots, as tables."""

from lenity.workbench.report.plot_data import SweepPoint
from lenity.workbench.report.plot_tables import (
    acceptance_table,
    frontier_table,
    has_names,
    latency_table,
    opportunity_table,
    predicted_table,
    regret_table,
    reliability_table,
    sweep_table,
    tables_of,
)
from lenity.workbench.tables import csv_text
from tests.workbench.report import sample


def rows_of(table):
    keys = [column.key for column in table.columns]
    return [dict(zip(keys, row, strict=True)) for row in table.rows]


def test_frontier_points_are_numbered():
    rows = rows_of(frontier_table(sample.frontier()))
    assert [row["number"] for row in rows] == list(range(1, 9))
    assert rows[3]["point"] == sample.CHOSEN
    assert rows[3]["role"] == "chosen"
    assert rows[0]["relative_calls"] is None


def test_acceptance_goes_position_by_position():
    plot = sample.acceptance()
    short = plot.arms[0].model_copy(update={"conditional": plot.arms[0].conditional[:2]})
    rows = rows_of(acceptance_table(plot.model_copy(update={"arms": (short,)})))
    assert [row["position"] for row in rows] == list(range(1, 8))
    assert rows[1]["conditional"] == short.conditional[1]
    assert rows[2]["conditional"] is None
    assert rows[6]["rate"] == short.rate[6]


def test_latency_is_in_seconds():
    rows = rows_of(latency_table(sample.latency()))
    assert rows[1]["target_seconds"] == 0.0262
    assert rows[0]["total_seconds"] is None
    assert latency_table(sample.latency()).texts()[1][2] == "26.20"


def test_regret_beyond_the_bins_has_its_row():
    rows = rows_of(regret_table(sample.regret()))
    assert len(rows) == 10 + 10 + 1
    assert rows[-1] == {"arm": "priced", "low": 8.0, "high": None, "requests": 3}
    assert sum(row["requests"] for row in rows if row["arm"] == "relaxed") == 256


def test_opportunity_is_one_row_a_cell():
    plot = sample.opportunity()
    rows = rows_of(opportunity_table(plot))
    assert len(rows) == 3 * 6 * 7
    assert rows[8] == {
        "task": "gsm8k@1",
        "tau": 0.25,
        "p": 1,
        "share": plot.tasks[0].shares[1][1],
        "num_mismatches": 18_231,
    }


def test_sweeps_keep_published_settings_beside_published_numbers():
    numbers, names = sample.sweeps()
    rows = rows_of(sweep_table(numbers))
    assert rows[-1]["setting"] == "Qwen3-14B, DSpark, 1 x L20"
    assert rows[0]["setting"] is None
    assert [row["x"] for row in rows_of(sweep_table(names))] == [1, 2, 3, "∞"]
    assert "setting" not in rows_of(sweep_table(names))[0]


def test_words_and_logarithms_of_zero_make_an_axis_of_names():
    numbers, names = sample.sweeps()
    assert has_names(names)
    assert not has_names(numbers)
    curve = numbers.curves[0].model_copy(update={"points": (SweepPoint(x=0, y=1.0),)})
    assert has_names(numbers.model_copy(update={"curves": (curve,)}))


def test_forecasts_keep_their_counts():
    rows = rows_of(reliability_table(sample.reliability()))
    assert len(rows) == 16
    assert rows[0]["count"] == 900


def test_predictions_say_how_far_off_they_were():
    table = predicted_table(sample.predicted())
    rows = rows_of(table)
    assert rows[1]["error"] == 4.58 - 4.39
    assert table.texts()[3][-1] == "-0.02"
    assert table.texts()[1][-1] == "+0.19"


def test_a_report_has_a_table_for_every_part():
    names = [table.name for table in tables_of(sample.report())]
    assert names == [
        "tasks",
        "frontier",
        "acceptance",
        "latency",
        "regret",
        "opportunity",
        "asd-budget",
        "asd-block-cap",
        "survival",
        "predicted-tokens",
    ]
    assert tables_of(sample.bare()) == ()


def test_every_table_can_be_a_file():
    for table in tables_of(sample.report()):
        assert csv_text(table).count("\n") == len(table.rows) + 1
