import pytest

from lenity.errors import ConfigError
from lenity.tasks import task
from lenity.tasks.sandbox import ENVIRONMENT
from tests.tasks.rows import HUMANEVAL

ALLOWED = "humaneval:allow_code_execution=true"


def test_items(data):
    (item,) = task("humaneval").load(data)
    assert item.id == "Tiny/0"
    assert item.prompt == HUMANEVAL[0]["prompt"]
    assert "```python\nfrom typing import List" in item.messages[0]["content"]


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        ("    return sum(xs)\n", 1.0, "passed"),
        ("```python\ndef total(xs: List[int]) -> int:\n    return sum(xs)\n```", 1.0, "passed"),
        ("    return 0\n", 0.0, "failed in tests: AssertionError"),
        ("    import sys; sys.exit(0)\n", 0.0, "exited in tests"),
        ("I refuse.", 0.0, "error in solution: SyntaxError"),
    ],
)
def test_scores(data, text, value, said):
    chosen = task(ALLOWED)
    score = chosen.score(chosen.load(data)[0], text)
    assert score.value == value
    assert score.detail.startswith(said)
    assert "guard]" in score.detail  # the isolation that was in force


def test_code_is_not_run_unless_that_is_allowed(data, monkeypatch):
    chosen = task("humaneval")
    (item,) = chosen.load(data)
    for refused in (chosen.check_scorer, lambda: chosen.score(item, "    return sum(xs)\n")):
        with pytest.raises(ConfigError, match="permission to run code that a model wrote"):
            refused()
    monkeypatch.setenv(ENVIRONMENT, "1")
    assert chosen.score(item, "    return sum(xs)\n").value == 1.0


def test_the_time_limit_is_a_knob(data):
    hasty = task(f"{ALLOWED},timeout_seconds=0.5")
    score = hasty.score(hasty.load(data)[0], "    while True: pass\n")
    assert (score.value, score.detail[:16]) == (0.0, "timeout in tests")
