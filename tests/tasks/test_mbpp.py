import pytest

from lenity.errors import ConfigError
from lenity.tasks import task
from tests.tasks.rows import MBPP, write

ALLOWED = "mbpp:allow_code_execution=true"


def load(tmp_path, spec=ALLOWED, **changes):
    chosen = task(spec)
    return chosen, chosen.load(write(tmp_path, "x.jsonl", [MBPP[0] | changes]))[0]


def test_items_have_their_inputs_in_the_shape_of_the_assertion(tmp_path):
    _, item = load(tmp_path)
    assert item.reference["inputs"] == [[(1, 2)], [("a", "b")]]
    assert item.about == "Write a function to swap a pair.\nassert swap((1, 2)) == (2, 1)"
    assert "function swap in one Python code block" in item.messages[0]["content"]
    assert load(tmp_path, "mbpp:plus=false")[1].reference["inputs"] == [[(1, 2)]]


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        (MBPP[0]["canonical_solution"], 1.0, "passed"),
        ("```python\ndef swap(p):\n    return p[::-1]\n```", 1.0, "passed"),
        ("def swap(p):\n    return (2, 1)", 0.0, "failed in tests: AssertionError: swap"),
        ("def swap(p):\n    return list(p[::-1])", 0.0, "failed"),
        ("def swop(p):\n    return p", 0.0, "error in tests: KeyError: 'swap'"),
        ("def swap(p):\n    exit()", 0.0, "exited in tests"),
        ("import time\ntime.sleep(30)", 0.0, "timeout in solution"),
    ],
)
def test_scores(tmp_path, text, value, said):
    chosen, item = load(tmp_path, f"{ALLOWED},timeout_seconds=2")
    score = chosen.score(item, text)
    assert score.value == value
    assert score.detail.startswith(said)


def test_a_solution_that_changes_its_input_is_compared_on_fresh_ones(tmp_path):
    changes = {
        "entry_point": "swap",
        "canonical_solution": "def swap(xs):\n    xs.reverse()\n    return xs\n",
        "assertion": "assert swap([1, 2]) == [2, 1]",
    }
    chosen, item = load(tmp_path, **changes)
    assert chosen.score(item, "def swap(xs):\n    xs.reverse()\n    return xs").value == 1.0
    wrong = chosen.score(item, "def swap(xs):\n    xs.clear()\n    return xs")
    assert wrong.value == 0.0
    assert "swap([1, 2],): [] instead of [2, 1]" in wrong.detail  # what it was called with


def test_order_does_not_count_where_the_set_says_so(tmp_path):
    changes = {
        "entry_point": "find_dissimilar",
        "canonical_solution": "def find_dissimilar(p):\n    return tuple(p)\n",
        "assertion": "assert find_dissimilar((1, 2)) == (1, 2)",
    }
    chosen, item = load(tmp_path, **changes)
    assert chosen.score(item, "def find_dissimilar(p):\n    return p[::-1]").value == 1.0


def test_infinities_of_the_file_reach_the_function(tmp_path):
    changes = {"base_input": [[[float("inf"), 1]]], "plus_input": []}
    chosen, item = load(tmp_path, **changes)
    assert chosen.score(item, "def swap(p):\n    return (1, float('inf'))").value == 1.0


def test_a_reference_that_fails_is_no_score(tmp_path):
    chosen, item = load(tmp_path, canonical_solution="def swap(p):\n    return 1 / 0\n")
    with pytest.raises(ConfigError, match="reference solution of the data to run"):
        chosen.score(item, "def swap(p):\n    return p")


def test_no_hub_has_the_release(tmp_path):
    with pytest.raises(ConfigError, match="no dataset of a hub has it"):
        task("mbpp").load(tmp_path)
