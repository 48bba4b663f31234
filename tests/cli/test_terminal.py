import json
import os
import sys

from lenity.cli.terminal import (
    complain,
    open_closed,
    out,
    print_document,
    say,
    stage,
    working,
)


def test_a_document_is_json_even_where_numbers_are_not_finite(capsys):
    print_document({"budget": float("inf"), "rows": [(1.5, None), {"é": float("nan")}]})
    written = capsys.readouterr().out
    assert json.loads(written) == {"budget": "inf", "rows": [[1.5, None], {"é": "nan"}]}
    assert "é" in written


def test_complaints_go_to_standard_error_as_they_are(capsys):
    complain("expected [bold]knob[/bold]=value")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "expected [bold]knob[/bold]=value\n"


def test_nobody_sees_a_spinner_where_there_is_no_terminal(capsys):
    with working("Loading"):
        out().print("result")
    assert capsys.readouterr() == ("result\n", "")


def test_a_stage_says_a_line_where_there_is_no_terminal(capsys):
    with stage("Loading [all] of it"):
        out().print("result")
    assert capsys.readouterr() == ("result\n", "Loading [all] of it\n")
    say("x " * 100)
    assert capsys.readouterr().err == "x " * 100 + "\n"


def test_a_stream_that_was_closed_is_written_to_in_vain(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    open_closed()
    with sys.stdout as opened:
        out().print("result")
        print_document({"a": 1})
        assert opened.name == os.devnull
    kept = sys.stderr
    open_closed()
    assert sys.stderr is kept
