import pytest
from hypothesis import given
from hypothesis import strategies as st

from lenity.errors import ProtocolError
from lenity.workbench.divergence import (
    Evidence,
    Label,
    classify,
    first_difference,
    label_divergence,
    policy_positions,
    summarise_divergences,
)
from lenity.workbench.pairing import Pairs
from lenity.workbench.records import RelaxedToken
from tests.workbench.handmade import failed, request, text


@given(st.lists(st.integers(0, 2), max_size=6), st.lists(st.integers(0, 2), max_size=6))
def test_the_first_difference_is_where_the_common_beginning_ends(left, right):
    position = first_difference(left, right)
    if position is None:
        assert left == right
    else:
        assert left[:position] == right[:position]
        assert left[position : position + 1] != right[position : position + 1]


def test_relaxed_and_skipped_tokens_are_the_policys():
    assert policy_positions(request(("axr", 3), ("ss", 2), ("xb", 1))) == {1, 3, 4, 5}


CLOSE = Evidence(top_ids=(7, 8), gap=1e-4)
FAR = Evidence(top_ids=(7, 8), gap=4.0)
BATCH = Evidence(control_ids=(1, 2, 8))


@pytest.mark.parametrize(
    ("policy", "evidence", "label"),
    [
        ({2}, None, Label.POLICY),
        ({2}, CLOSE, Label.POLICY),  # a ledger entry is a record, a tie an explanation
        ({1, 3}, CLOSE, Label.TIE),
        (set(), CLOSE, Label.TIE),
        (set(), CLOSE.model_copy(update={"top_ids": (8, 7)}), Label.TIE),
        (set(), CLOSE.model_copy(update={"control_ids": (1, 2, 8)}), Label.TIE),
        (set(), CLOSE.model_copy(update={"top_ids": (7, 9)}), Label.DEFECT),
        (set(), CLOSE.model_copy(update={"gap": 1e-3}), Label.DEFECT),
        (set(), Evidence(gap=1e-4), Label.DEFECT),
        (set(), Evidence(top_ids=(7, 8)), Label.DEFECT),
        (set(), BATCH, Label.SHAPE),
        (set(), Evidence(control_ids=(1, 2, 7)), Label.DEFECT),
        (set(), Evidence(control_ids=(1, 2)), Label.DEFECT),
        (set(), FAR, Label.DEFECT),
        (set(), None, Label.DEFECT),
    ],
)
def test_a_difference_has_the_first_label_that_applies(policy, evidence, label):
    assert classify(2, (7, 8), policy, evidence) is label


def test_a_text_that_ends_early_is_no_tie():
    everything = Evidence(top_ids=(7, 8), gap=0.0, control_ids=(1, 2, 8))
    assert classify(2, (7, None), (), everything) is Label.DEFECT
    assert classify(2, (None, 8), (), everything) is Label.DEFECT


def test_epsilon_is_stated_by_the_caller():
    assert classify(2, (7, 8), (), FAR, epsilon=5.0) is Label.TIE


def test_a_divergence_says_where_and_what():
    arm = request(("axr", 3), token_ids=(5, 6, 7))
    found = label_divergence(text(5, 9, 9), arm, Evidence(gap=0.5))
    assert (found.position, found.reference_id, found.arm_id) == (1, 9, 6)
    assert (found.label, found.gap) == (Label.POLICY, 0.5)
    assert label_divergence(text(5, 6, 7), arm) is None
    assert label_divergence(text(5, 6), text(5, 6, 7)).reference_id is None


def _pairs() -> Pairs:
    items = [str(i) for i in range(5)]
    reference = [text(1, 2, 3, item_id=i) for i in items]
    entry = (RelaxedToken(position=1, regret=0.5),)
    arm = [
        text(1, 2, 3, item_id="0"),
        request(("axr", 3), token_ids=(1, 9, 3), item_id="1", relaxed=entry),
        text(1, 2, 8, item_id="2"),
        text(1, 8, 3, item_id="3"),
        failed(item_id="4"),
    ]
    return Pairs.of(reference, arm)


def test_divergences_are_summed_up_and_a_defect_fails_the_run():
    evidence = {
        ("toy@1", "2", 0): Evidence(top_ids=(3, 8), gap=0.0),
        ("toy@1", "3", 0): Evidence(top_ids=(2, 8), gap=2.0, control_ids=(1, 8)),
    }
    summary = summarise_divergences(_pairs(), evidence)
    assert (summary.num_pairs, summary.share, len(summary.excluded)) == (4, 3 / 4, 1)
    assert summary.counts == {Label.POLICY: 1, Label.TIE: 1, Label.SHAPE: 1, Label.DEFECT: 0}
    summary.check()
    blind = summarise_divergences(_pairs())
    assert [d.item_id for d in blind.defects] == ["2", "3"]
    with pytest.raises(
        ProtocolError, match="got 2 that are none, first toy@1 2, repeat 0, token 2"
    ):
        blind.check()


def test_no_pairs_have_no_share():
    assert summarise_divergences(Pairs.of([], [])).share is None
