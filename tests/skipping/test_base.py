"""Gates: the published vectors, the scalar loop, and the limits that never skip."""

import math
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lenity.skipping import skip_rule
from lenity.skipping.base import GatedRule, SkipContext, local_scores, longest_passing
from lenity.types import Draft

VECTOR = [0.99, 0.91, 0.99, 0.99, 0.92, 0.99, 0.85, 0.99]
LATE = [0.92] + [0.99] * 7


def context(*rows, lengths=None):
    width = max(map(len, rows), default=0)
    padded = [[*row, *[0.5] * (width - len(row))] for row in rows]
    sizes = torch.tensor(lengths or [len(row) for row in rows])
    confidence = torch.tensor(padded, dtype=torch.float64).reshape(len(rows), width)
    ids = torch.zeros(len(rows), width, dtype=torch.int64)
    draft = Draft(token_ids=ids, lengths=sizes, confidence=confidence)
    return SkipContext(draft=draft, num_emitted=[0] * len(rows), rounds=[0] * len(rows))


class Conditional(GatedRule):
    type: Literal["conditional"] = "conditional"

    def signal(self, context):
        return context.draft.confidence

    def prefix_scores(self, scores):
        return scores.log().cumsum(-1).exp()


@pytest.mark.parametrize(
    ("scores", "local", "prefix", "wanted"),
    [
        (VECTOR, 0.90, 0.93, 6),
        (VECTOR, 0.90, 0.96, 6),  # C fails at k = 2 and recovers
        (VECTOR, 0.80, 0.93, 8),
        (LATE, 0.90, 0.96, 8),  # C = .920, .954, .966, ...
    ],
)
def test_raw_vectors(scores, local, prefix, wanted):
    rule = skip_rule("raw", local=local, prefix=prefix, min_prefix=0)
    assert rule.prefix_length(context(scores)).tolist() == [wanted]


@pytest.mark.parametrize(("prefix", "wanted"), [(0.90, 2), (0.80, 6)])
def test_conditional_vectors(prefix, wanted):
    rule = Conditional(local=0.90, prefix=prefix, min_prefix=0)
    assert rule.prefix_length(context(VECTOR)).tolist() == [wanted]


def scalar(scores, local, prefix, min_prefix):
    """K^ by the definition, one prefix after the other."""
    best = 0
    for k in range(1, len(scores) + 1):
        head = scores[:k]
        mean = math.exp(sum(map(math.log, head)) / k) if all(head) else 0.0
        if min(head) >= local and mean >= prefix:
            best = k
    return best if best >= max(1, min_prefix) else 0


@given(
    st.lists(st.lists(st.integers(0, 20), max_size=9), min_size=1, max_size=4),
    st.integers(0, 21),
    st.integers(0, 21),
    st.integers(0, 10),
)
def test_equals_the_scalar_loop(rows, local, prefix, min_prefix):
    rows = [[value / 20 for value in row] for row in rows]
    local, prefix = local / 20 - 1e-6, prefix / 20 - 1e-6  # off the grid: rounding decides nothing
    rule = skip_rule("raw", local=max(local, 0), prefix=max(prefix, 0), min_prefix=min_prefix)
    wanted = [scalar(row, max(local, 0), max(prefix, 0), min_prefix) for row in rows]
    assert rule.prefix_length(context(*rows)).tolist() == wanted


@pytest.mark.parametrize("knobs", [{"local": 1.1}, {"prefix": 1.1}, {"min_prefix": 9}])
def test_limits_never_skip(knobs):
    rule = skip_rule("raw", **{"local": 0, "prefix": 0, "min_prefix": 0} | knobs)
    assert rule.prefix_length(context([1.0] * 8)).tolist() == [0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1, 1.1])
def test_a_score_that_is_none_sends_the_row_to_the_target(bad):
    rule = skip_rule("raw", local=0.5, prefix=0.5, min_prefix=0)
    rows = context([0.9, 0.9, bad], [0.9, 0.9, 0.9], [0.9, bad, bad], lengths=[3, 3, 1])
    assert rule.prefix_length(rows).tolist() == [0, 3, 1], "padding is nobody's score"


def test_an_empty_draft_skips_nothing():
    assert skip_rule("raw").prefix_length(context([], [])).tolist() == [0, 0]


def test_local_scores_are_running_minima_and_longest_passing_looks_at_every_prefix():
    assert local_scores(torch.tensor([[3.0, 1.0, 2.0]])).tolist() == [[3.0, 1.0, 1.0]]
    passes = torch.tensor([[True, False, True], [False, False, False]])
    assert longest_passing(passes).tolist() == [3, 0]


def test_spec_leaves_defaults_out():
    rule = skip_rule("raw:local=0.8,max_unverified=none")
    assert rule.spec == "raw:local=0.8,max_unverified=none" or set(rule.spec[4:].split(",")) == {
        "local=0.8",
        "max_unverified=none",
    }
    assert str(rule) == rule.spec
    assert skip_rule(rule) is rule
