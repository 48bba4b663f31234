"""What the commands of the workbench share."""

import sys

import pytest
import typer

from lenity.cli.studies import (
    UNFINISHED,
    judge_settings,
    make_study,
    print_tables,
    progress_bar,
    say_missing,
)
from lenity.errors import ConfigError, MissingExtraError
from lenity.workbench.tables import COUNT, PERCENT, PLAIN, Column, Table


def test_nothing_missing_says_nothing(tmp_path, capsys):
    say_missing({}, tmp_path)
    assert capsys.readouterr().err == ""


def test_what_is_missing_is_said_and_the_status_is_that_of_an_unfinished_run(tmp_path, capsys):
    with pytest.raises(typer.Exit) as ended:
        say_missing({"strict": 3}, tmp_path)
    assert ended.value.exit_code == UNFINISHED
    assert "3 requests of strict" in capsys.readouterr().err


def test_tables_have_headings_and_numbers(capsys):
    columns = (Column(key="a", label="Arm"), Column(key="n", label="Requests", unit=COUNT))
    print_tables((Table.of("t", "Title", columns, [{"a": "strict", "n": 3}]),))
    text = capsys.readouterr().out
    assert "Title" in text
    assert "strict" in text
    assert "3" in text


COLUMNS = (
    Column(key="a", label="Arm"),
    Column(key="s", label="Score", unit=PERCENT),
    Column(key="n", label="Requests in this arm", unit=COUNT),
    Column(key="t", label="Tokens per target pass", unit=PLAIN),
)


def test_columns_without_a_value_are_not_printed(capsys):
    rows = [{"a": "strict", "n": 3}, {"a": "relaxed", "n": 0}]
    print_tables((Table.of("t", "Title", COLUMNS, rows),))
    text = capsys.readouterr().out
    assert "Requests" in text
    assert "Score" not in text
    print_tables((Table.of("t", "Title", COLUMNS, []),))
    assert "Score" in capsys.readouterr().out


def test_a_few_rows_too_wide_for_the_terminal_become_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    rows = [{"a": "eos-strict", "s": 1.0, "n": 3000, "t": 1.5}, {"a": "eos-relaxed", "t": 12345.0}]
    print_tables((Table.of("t", "Title", COLUMNS, rows),))
    lines = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "│" in line]
    cells = [[cell.strip() for cell in line] for line in lines]
    assert ["Score, %", "100.0", "–"] in cells
    assert any(cell[1:] == ["1.50", "12,345.00"] for cell in cells)
    print_tables((Table.of("t", "Title", COLUMNS, rows * 3),))  # too many to be columns
    assert "Score, %" not in capsys.readouterr().out


def test_progress_is_quiet_where_no_terminal_is(capsys):
    with progress_bar("Audit") as tell:
        tell(1, 2, 0.5)
    assert capsys.readouterr().err == ""


def test_a_study_asks_first_for_what_its_report_needs(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"lenity\[report\]"):
        make_study(None, {"folder": tmp_path}, None)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"judge_all": True}, "with --judge-all, got neither"),
        ({"judge_key": "KEY"}, "with --judge-api-key-env, got neither"),
        ({"judge_all": True, "judge_key": "KEY"}, "--judge-all and --judge-api-key-env"),
    ],
)
def test_what_a_judge_is_told_needs_a_judge(given, told):
    blank = {"judge_url": None, "judge_model": None, "judge_key": None, "judge_all": False}
    assert judge_settings(blank) is None
    with pytest.raises(ConfigError, match=told):
        judge_settings(blank | given)
