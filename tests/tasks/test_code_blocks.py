import textwrap

import pytest

from lenity.tasks.code_blocks import defines, is_python, solution

STUB = 'import math\n\n\ndef half(x):\n    return x / 2\n\n\ndef area(r):\n    """Of a circle."""\n'
BODY = "    return math.pi * r ** 2\n"
WHOLE = "def area(r):\n    return math.pi * r * r\n"


def value(code: str) -> float:
    scope: dict = {}
    exec(code, scope)
    return scope["area"](1)


@pytest.mark.parametrize(
    "reply",
    [
        BODY,
        BODY.strip(),  # the decoder ate the indentation
        "\n" + BODY + "\n\nprint(area(2))\n",
        BODY + "\n\ndef other():\n    pass\n",
        BODY + "```\nThat is it.",
        "r = r * 1\n    return math.pi * r ** 2",  # of the first line only
        "r = r * 1\nreturn math.pi * r ** 2",  # of all lines
        f"```python\n{WHOLE}```",
        f"Sure!\n\n```python\n{WHOLE}```\nIt uses:\n```python\nprint(area(3))\n```\n",
        f"```\n{WHOLE}```",
        f"```python\n{WHOLE}",  # cut off before the fence closed
        f"~~~py\n{WHOLE}~~~",
        f"```python\n{BODY}```",
        f"```python\n{BODY.strip()}\n```",
        "1. Write it:\n" + textwrap.indent(f"```python\n{WHOLE}```", "   "),
        WHOLE + "```\nThat is it.",
        f"Here is the function:\n{WHOLE}\nI hope it helps.",
        f"import math\n{WHOLE}",
        f"```text\nnotes\n```\n```python\n{WHOLE}```",
        f"```python\n{WHOLE}\nthis is no Python\n```",
    ],
)
def test_the_function_comes_out_of_the_reply(reply):
    code = solution(reply, entry_point="area", stub=STUB)
    assert value(code) == pytest.approx(3.14159, abs=1e-3)


def test_what_the_stub_has_before_the_function_stays():
    whole = "def area(r):\n    return half(2) * math.pi\n"
    code = solution(f"```python\n{whole}```", entry_point="area", stub=STUB)
    assert value(code) == pytest.approx(3.14159, abs=1e-3)


def test_without_a_stub_the_reply_is_the_program():
    assert value(solution(f"import math\n{WHOLE}", entry_point="area")) > 3
    assert value(solution(f"Well:\n```\nimport math\n{WHOLE}```", entry_point="area")) > 3
    assert solution("no code at all", entry_point="area") == "no code at all"


def test_the_first_definition_counts():
    second = WHOLE.replace("math.pi", "0")
    reply = f"```python\n{WHOLE}```\nOr worse:\n```python\n{second}```"
    assert value(solution(reply, entry_point="area", stub=STUB)) > 3


def test_a_reply_of_prose_defines_nothing():
    code = solution("I cannot do that.", entry_point="area", stub=STUB)
    assert not is_python(code)
    assert solution("", entry_point="area", stub=STUB).startswith(STUB)


def test_definitions_are_at_the_left_margin():
    assert defines("def area (r):", "area")
    assert defines("x = 1\nasync def area(r):", "area")
    assert not defines("    def area(r):", "area")
    assert not defines("def areas(r):", "area")


def test_reading_a_program_runs_nothing_and_warns_of_nothing():
    assert is_python("x = '\\d'")
    assert is_python("raise SystemExit")
    assert not is_python("def f(:")
    assert not is_python("x = '\0'")
    assert not is_python("(" * 10_000)
