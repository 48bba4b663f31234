"""The budgeted longest prefix against the paper's definitions and a scalar twin."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lenity.ledger import to_units
from lenity.policies.asd import Asd, longest_prefix
from lenity.types import UNITS_PER_NAT
from tests.policies.blocks import INF, Block, blocks, caps, flags, nats, regrets, stack
from tests.reference.asd import asd

HALF = 0.5 / UNITS_PER_NAT


def charge(block, verdict):
    """What the ledger of each request is charged: the regret of its relaxed tokens, in units."""
    return (to_units(block.scores.regret) * verdict.is_relaxed).sum(-1).tolist()


def judge(policy, block, spent=0):
    """Accepted length, nats charged and relaxed tokens of the only request."""
    verdict = block.verify(policy, spent=[spent])
    charged = charge(block, verdict)[0] / UNITS_PER_NAT
    return (
        int(verdict.accepted_length),
        pytest.approx(charged, abs=2e-6),
        int(verdict.is_relaxed.sum()),
    )


PAPER = Asd(budget=8, gate=0.25, block_cap=2)
"""The published operating point (arXiv 2608.03447, section 4): K = 7, (B, g, M) = (8, 0.25, 2)."""
TWO = (None, 0.9, None, None, 0.5, None, None)


def test_the_defaults_are_the_published_point_and_the_papers_equation():
    assert Asd() == PAPER
    assert not Asd().g0_is_strict
    assert not Asd().require_remaining
    assert Asd().position_value == "remaining"


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        pytest.param(TWO, (7, 1.4, 2), id="0.9/6 and 0.5/3 pass the gate"),
        pytest.param((None, 0.9, None, None, 0.8, None, None), (4, 0.9, 1), id="0.8/3 does not"),
        pytest.param((None, 0.9, None, 0.1, 0.1, None, None), (4, 1.0, 2), id="a third is one too"),
        pytest.param((0.75, None, None), (3, 0.75, 1), id="exactly g passes"),
        pytest.param((0.7500001, None, None), (0, 0.0, 0), id="just above g does not"),
        pytest.param((2.0, None, None), (0, 0.0, 0), id="no gaps: exact tokens behind are lost"),
        pytest.param((None, None, 0.25), (3, 0.25, 1), id="the last position is worth 1"),
        pytest.param((None, None, 0.26), (2, 0.0, 0), id="and no more"),
        pytest.param((0.0, None), (2, 0.0, 1), id="a tie costs nothing and counts as one"),
        pytest.param((0.0, 0.0, 0.0), (2, 0.0, 2), id="so ties fill the cap"),
        pytest.param((), (0, 0.0, 0), id="no draft"),
    ],
)
def test_published_point(block, expected):
    """Sections 3.1 and 3.2 of arXiv 2608.03447, worked out by hand."""
    assert judge(PAPER, regrets(*block)) == expected


def test_spent_regret_carries_over():
    """s = 7: one nat is left, so the second mismatch (0.9 + 0.5) ends the prefix; s becomes 7.9."""
    spent = 7 * UNITS_PER_NAT
    assert judge(PAPER, regrets(*TWO), spent) == (4, 0.9, 1)
    spent += charge(regrets(*TWO), regrets(*TWO).verify(PAPER, spent=[spent]))[0]
    assert 8 - spent / UNITS_PER_NAT == pytest.approx(0.1, abs=1e-6)
    assert judge(PAPER, regrets(0.1, None), spent)[0] == 2
    assert judge(PAPER, regrets(0.125, None), spent)[0] == 0


def test_budget_zero_rejects_a_tie_and_a_budget_accepts_it():
    tie = regrets(0.0, None)
    assert judge(Asd(budget=0, gate=INF, block_cap=None), tie) == (0, 0.0, 0)
    assert judge(Asd(budget=1e-9, gate=INF, block_cap=None), tie) == (2, 0.0, 1)


def test_the_budget_is_spent_to_the_last_unit():
    three = regrets(0.5, 0.5, 0.5, None)
    free = {"gate": INF, "block_cap": None}
    assert judge(Asd(budget=1.5, **free), three) == (4, 1.5, 3)
    assert judge(Asd(budget=1.5 - 2 * HALF, **free), three) == (2, 1.0, 2)
    assert judge(Asd(budget=2.0, **free), three, UNITS_PER_NAT // 2) == (4, 1.5, 3)
    assert judge(Asd(budget=2.0, **free), three, UNITS_PER_NAT // 2 + 1) == (2, 1.0, 2)


def test_a_spent_request_accepts_ties_only():
    spent = 8 * UNITS_PER_NAT
    assert judge(PAPER, regrets(None, 0.0, None), spent) == (3, 0.0, 1)
    assert judge(PAPER, regrets(None, HALF * 2, None), spent) == (1, 0.0, 0)
    before = Asd(budget=8, gate=0.25, block_cap=2, require_remaining=True)
    assert judge(before, regrets(None, 0.0, None), spent) == (1, 0.0, 0)
    assert judge(before, regrets(None, 0.0, None), spent - 1) == (3, 0.0, 1)


def test_require_remaining_looks_before_the_mismatch():
    """A mismatch may spend what is left; the next finds nothing, be it free."""
    rule = Asd(budget=1, gate=INF, block_cap=None, require_remaining=True)
    assert judge(rule, regrets(1.0, None, 0.0, None)) == (2, 1.0, 1)
    paper = Asd(budget=1, gate=INF, block_cap=None)
    assert judge(paper, regrets(1.0, None, 0.0, None)) == (4, 1.0, 2)


@pytest.mark.parametrize(("is_strict", "accepted"), [(False, 2), (True, 0)])
def test_gate_zero_passes_ties_in_the_paper_and_not_in_the_authors_code(is_strict, accepted):
    rule = Asd(budget=8, gate=0, g0_is_strict=is_strict)
    assert judge(rule, regrets(0.0, None))[0] == accepted
    assert judge(rule, regrets(HALF * 2, None))[0] == 0


def test_g0_is_strict_needs_gate_zero():
    assert judge(Asd(gate=0.25, g0_is_strict=True), regrets(0.25, None))[0] == 2


def test_share_is_the_same_gate_on_another_scale():
    """r / ((K - i + 1) / K) <= K g is r / (K - i + 1) <= g."""
    remaining = Asd(budget=INF, gate=0.5, block_cap=None)
    share = Asd(budget=INF, gate=2.0, block_cap=None, position_value="share")
    for block in [(2.0, None, 1.0, 0.5), (2.125,), (None, 1.5, 1.125, None)]:
        padded = (*block, *[None] * (4 - len(block)))
        assert judge(share, regrets(*padded)) == judge(remaining, regrets(*padded))


def test_a_share_that_is_no_binary_number_does_not_move_the_gate():
    """5.625 * 7/10 = 3.9375 exactly, and rounds to less when 7/10 is rounded first."""
    rule = Asd(budget=INF, gate=5.625, position_value="share")
    assert judge(rule, regrets(None, None, None, 3.9375, *[None] * 6))[0] == 10


def test_the_gate_compares_in_float64():
    """float32 would take 0.1 for its neighbour above, and round 3 (1 + 2^-23) up."""
    assert judge(Asd(gate=0.1), regrets(0.1))[0] == 0
    assert judge(Asd(gate=0.11), regrets(0.1))[0] == 1
    hair = 1 + 2**-23
    assert judge(Asd(gate=hair, position_value="share"), regrets(hair, None, None))[0] == 3


def test_the_gate_counts_real_draft_tokens_not_the_padded_width():
    """K is the number of draft tokens of the row: 1.0 / 4 passes, 1.0 / 2 does not."""
    batch = stack(regrets(1.0, None, None, None), regrets(1.0, None))
    for value, gate in (("remaining", 0.25), ("share", 1.0)):
        rule = Asd(budget=8, gate=gate, position_value=value)
        assert batch.verify(rule).accepted_length.tolist() == [4, 2 if value == "share" else 0]


def test_regret_is_rounded_to_the_nearest_unit_once():
    """Three tokens of 0.6 units cost 3, not 2; of 0.4 units, nothing."""
    free = {"gate": INF, "block_cap": None}
    dear, cheap = regrets(*[1.2 * HALF] * 3), regrets(*[0.8 * HALF] * 3)
    assert int(dear.verify(Asd(budget=4 * HALF, **free)).accepted_length) == 2
    assert int(dear.verify(Asd(budget=6 * HALF, **free)).accepted_length) == 3
    assert int(cheap.verify(Asd(budget=2 * HALF, **free)).accepted_length) == 3


@pytest.mark.parametrize("budget", [INF, 1e300])
def test_an_unlimited_budget_outlives_every_spending(budget):
    free = Asd(budget=budget, gate=INF, block_cap=None)
    block = regrets(1e6, 3.0, None, 1e30)
    assert int(block.verify(free, spent=[1 << 60]).accepted_length) == 4


knobs = st.fixed_dictionaries(
    {
        "budget": nats | st.just(INF),
        "gate": nats | st.just(INF),
        "block_cap": caps,
        "position_value": st.sampled_from(["remaining", "share"]),
        "g0_is_strict": st.booleans(),
        "require_remaining": st.booleans(),
    }
)
spendings = st.integers(0, 2 * UNITS_PER_NAT) | st.integers(0, 16).map(lambda n: n << 17)


@settings(max_examples=250)
@given(st.data(), blocks(), knobs)
def test_equals_the_scalar_loop(data, block, knobs):
    may_relax = flags(data.draw, block)
    spent = [data.draw(spendings) for _ in block.batch]
    verdict = block.verify(Asd(**knobs), spent=spent, may_relax=may_relax)
    for b in block.batch:
        accepted, units, relaxed = asd(
            block.rows(b),
            block.tokens(b),
            spent_units=spent[b],
            may_relax=may_relax and may_relax[b],
            **knobs,
        )
        assert int(verdict.accepted_length[b]) == accepted
        assert verdict.is_relaxed[b].nonzero().flatten().tolist() == relaxed
        assert charge(block, verdict)[b] == units


@given(blocks(), knobs, st.integers(0, 16).map(lambda steps: steps / 8))
def test_grows_with_budget_gate_and_cap(block, knobs, more):
    """More of one knob never shortens a prefix. Only for one block: later rounds may differ."""
    rule = Asd(**knobs)
    accepted = block.verify(rule).accepted_length
    for wider in (
        {"budget": rule.budget + more},
        {"gate": rule.gate + more},
        {"block_cap": None if rule.block_cap is None else rule.block_cap + int(8 * more)},
    ):
        assert (block.verify(rule.model_copy(update=wider)).accepted_length >= accepted).all()
    spent = [int(more * UNITS_PER_NAT)] * len(block.batch)
    assert (block.verify(rule, spent=spent).accepted_length <= accepted).all()


@given(blocks(), knobs, spendings)
def test_never_overspends(block, knobs, spent):
    rule = Asd(**knobs)
    verdict = block.verify(rule, spent=[spent] * len(block.batch))
    for units in charge(block, verdict):
        assert units == 0 or spent + units <= rule.budget * UNITS_PER_NAT


@given(blocks())
def test_everything_infinite_accepts_every_unmasked_token(block):
    verdict = block.verify(Asd(budget=INF, gate=INF, block_cap=None))
    is_open = torch.isfinite(block.scores.draft_logit)
    wanted = longest_prefix(is_open, block.draft.lengths)
    assert verdict.accepted_length.tolist() == wanted.tolist()


def test_longest_prefix_stops_at_the_first_failure_and_at_the_length():
    passes = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]).bool()
    lengths = torch.tensor([4, 4, 4, 3])
    assert longest_prefix(passes, lengths).tolist() == [2, 0, 4, 3]
    assert longest_prefix(passes[:, :0], 0 * lengths).tolist() == [0, 0, 0, 0]


def test_a_row_is_its_own_whatever_the_padding_costs():
    """A masked token, NaN rows and an enormous regret behind the draft change nothing."""
    block = stack(regrets(0.5, None, None, None, None), regrets(0.25))
    poisoned = block.logits.clone()
    poisoned[1, 2:] = float("nan")
    poisoned[1, 2, 0] = -INF
    rule = Asd(budget=1, gate=0.25)
    verdict = Block(poisoned, block.draft).verify(rule)
    assert verdict.accepted_length.tolist() == [5, 1]
    assert verdict.next_token_id.tolist() == [6, 6]
