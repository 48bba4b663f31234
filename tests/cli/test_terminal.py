import json

from lenity.cli.terminal import complain, out, print_document, working


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
