"""What the commands of the workbench share."""

import pytest
import typer

from lenity.cli.studies import UNFINISHED, print_tables, progress_bar, say_missing
from lenity.workbench.tables import COUNT, Column, Table


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


def test_progress_is_quiet_where_no_terminal_is(capsys):
    with progress_bar("Audit") as tell:
        tell(1, 2, 0.5)
    assert capsys.readouterr().err == ""
