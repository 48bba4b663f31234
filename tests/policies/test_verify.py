"""Verdicts through the coins: exact joint laws by enumeration, and by chi-squared at scale."""

import itertools

import pytest
import torch

from lenity.errors import ConfigError
from lenity.policies import policy
from lenity.policies.base import Policy
from lenity.policies.strict import Strict
from lenity.policies.verify import verify_greedy, verify_sampled
from lenity.sampling import Coins, Purpose, Sampling, draw, probabilities
from lenity.types import Draft
from tests.policies.blocks import regrets

STRICT = Strict()
NAN = float("nan")

# Every entry is 1/2 or 1/4, so that p/q is 1/2, 1 or 2 and a grid of four coins is exact.
P1 = torch.tensor([0.5, 0.25, 0.25])
P2 = torch.tensor([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]])
P3 = torch.tensor([[0.25, 0.25, 0.5], [0.25, 0.5, 0.25], [0.5, 0.25, 0.25]])
Q1 = torch.tensor([0.25, 0.5, 0.25])
Q2 = torch.tensor([[0.25, 0.25, 0.5], [0.5, 0.25, 0.25], [0.25, 0.5, 0.25]])
JOINT = P1[:, None, None] * P2[:, :, None] * P3[None]
"""The target's law of three tokens: the second depends on the first, the third on the second."""
GRID = (torch.arange(4, dtype=torch.float64) + 0.5) / 4


def joint_law(is_certain, length, told=Q1):
    """The law of three tokens: one round of strict sampling, then the target alone.

    Every draft of two tokens and every coin of the grid is a request of one batch. Tokens behind
    ``length`` are padding; their draft law is NaN. ``told`` is the first draft law verify hears of.
    """
    first, second = (Q1, Q2) if not is_certain else (torch.eye(3)[0], torch.eye(3)[[1, 0, 2]])
    cases = list(itertools.product(range(3), range(3), range(4), range(4), range(4)))
    x1, x2, c1, c2, c3 = torch.tensor(cases).T
    weight = first[x1] * second[x1, x2] / 64
    probs = torch.stack([told.expand(len(cases), 3), second[x1]], dim=1)
    probs[:, length:] = NAN
    verdict = verify_sampled(
        STRICT,
        Draft(
            token_ids=torch.stack([x1, x2], dim=1),
            lengths=torch.full((len(cases),), length),
            probs=None if is_certain else probs,
        ),
        torch.stack([P1.expand(len(cases), 3), P2[x1], P3[x2]], dim=1),
        accept_coins=torch.stack([GRID[c1], GRID[c2]], dim=1),
        next_coins=GRID[c3],
    )
    law = torch.zeros(3, 3, 3)
    for i, (t1, t2, *_) in enumerate(cases):
        accepted, token = int(verdict.accepted_length[i]), int(verdict.next_token_id[i])
        emitted = [*[t1, t2][:accepted], token]
        rest = torch.ones(3, 3, 3)
        for position, token in enumerate(emitted):
            rest = rest * torch.eye(3)[token].view([-1 if d == position else 1 for d in range(3)])
        if len(emitted) < 2:
            rest = rest * P2[:, :, None]
        if len(emitted) < 3:
            rest = rest * P3[None]
        law += weight[i] * rest
    return law


@pytest.mark.parametrize("is_certain", [False, True], ids=["drawn", "certain"])
@pytest.mark.parametrize("length", [0, 1, 2])
def test_three_tokens_follow_the_target_exactly(is_certain, length):
    """Leviathan et al. 2023, appendix A.1, enumerated: every draft, every coin, ragged rows."""
    assert torch.equal(joint_law(is_certain, length), JOINT)


def test_the_enumeration_sees_a_wrong_draft_law():
    assert not torch.allclose(joint_law(False, 2, told=Q1.roll(1)), JOINT, atol=1e-3)


def test_each_row_has_its_own_bonus_row():
    """Row i of every request is a point mass on token i: the next token tells the row."""
    draft = Draft(token_ids=torch.arange(3).expand(4, 3), lengths=torch.tensor([0, 1, 2, 3]))
    verdict = verify_sampled(
        STRICT,
        draft,
        torch.eye(4).expand(4, 4, 4),
        accept_coins=torch.full((4, 3), 1 - 2**-53, dtype=torch.float64),
        next_coins=torch.full((4,), 1 - 2**-53, dtype=torch.float64),
    )
    assert verdict.accepted_length.tolist() == [0, 1, 2, 3]
    assert verdict.next_token_id.tolist() == [0, 1, 2, 3]
    assert verdict.is_bonus.all()
    assert not verdict.is_relaxed.any()


def test_a_rejected_token_is_replaced_from_its_own_row():
    """Rejection at i = 0, 1, 2: the residual of row i, never the draft token."""
    laws = torch.tensor([[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0.5, 0, 0, 0.5], [0, 1, 0, 0]])
    coins = torch.tensor([[0.9, 0, 0], [0, 0.9, 0], [0, 0, 0.9]], dtype=torch.float64)
    draft = Draft(token_ids=torch.tensor([[0, 1, 3]]).expand(3, 3), lengths=torch.full((3,), 3))
    verdict = verify_sampled(
        STRICT,
        draft,
        laws.expand(3, 4, 4),
        accept_coins=coins,
        next_coins=torch.zeros(3, dtype=torch.float64),
    )
    assert verdict.accepted_length.tolist() == [0, 1, 2]
    assert verdict.next_token_id.tolist() == [1, 2, 0]
    assert not verdict.is_bonus.any()
    assert verdict.accept_prob.tolist() == [[0.5] * 3] * 3


def test_no_draft_draws_from_the_target():
    """G = 0: there is no residual to speak of."""
    verdict = verify_sampled(
        STRICT,
        Draft(token_ids=torch.zeros(4, 0, dtype=torch.int64), lengths=torch.zeros(4).long()),
        P1.expand(4, 1, 3),
        accept_coins=torch.zeros(4, 0, dtype=torch.float64),
        next_coins=GRID,
    )
    assert verdict.accepted_length.tolist() == [0] * 4
    assert verdict.next_token_id.tolist() == [0, 0, 1, 2]
    assert verdict.is_bonus.all()


def test_a_coin_equal_to_the_probability_rejects():
    """Coins are in [0, 1): P(coin < a) = a, so an impossible token is not saved by coin 0."""
    laws = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    draft = Draft(token_ids=torch.zeros(1, 1, dtype=torch.int64), lengths=torch.tensor([1]))
    zero = torch.zeros(1, 1, dtype=torch.float64)
    verdict = verify_sampled(STRICT, draft, laws[None], accept_coins=zero, next_coins=zero[0])
    assert verdict.accepted_length.tolist() == [0]
    assert verdict.next_token_id.tolist() == [1]


def test_a_rule_without_a_greedy_side_is_refused():
    class Coinflip(Policy):
        type: str = "coinflip"

    block = regrets(None)
    with pytest.raises(ConfigError, match="a policy for greedy decoding, got coinflip"):
        block.verify(Coinflip())


def test_budgets_are_rows_own():
    """One batch, three ledgers: nothing left, a little, all of it."""
    block = regrets(0.5, None, 0.5, None)
    batch = block.take([0, 0, 0])
    spent = [1 << 20, 1 << 19, 0]
    verdict = batch.verify(policy("asd:budget=1,gate=inf"), spent=spent)
    assert verdict.accepted_length.tolist() == [0, 2, 4]
    strict = batch.verify(STRICT)
    assert verdict.next_token_id[0] == strict.next_token_id[0]


def test_without_flags_all_but_masked_tokens_may_relax():
    block = regrets(0.5, float("inf"), None)
    scores, spent = block.scores, torch.zeros(1, dtype=torch.int64)
    rule = policy("top_k:k=8")
    given = verify_greedy(rule, block.draft, scores, spent_units=spent)
    all_true = torch.ones(1, 3, dtype=torch.bool)
    flagged = verify_greedy(rule, block.draft, scores, spent_units=spent, may_relax=all_true)
    assert given.accepted_length.tolist() == flagged.accepted_length.tolist() == [1]


# At scale: vocabulary 16, T = 0.7, top-k 5, K = 3, as an engine would run it

SAMPLING = Sampling(temperature=0.7, top_k=5)
VOCAB, GAMMA = 16, 3


def tables(seed):
    """Logits of a Markov target and of a drafter that half agrees with it."""
    rng = torch.Generator().manual_seed(seed)
    target = 2 * torch.randn(VOCAB, VOCAB, generator=rng)
    return target, target + torch.randn(VOCAB, VOCAB, generator=rng)


def decode(target, drafter, told, num_requests):
    """Three tokens of every request; rounds until all have them. ``told`` is the q verify sees."""
    p, q = probabilities(target, SAMPLING), probabilities(drafter, SAMPLING)
    emitted = [[0] for _ in range(num_requests)]
    while waiting := [b for b, row in enumerate(emitted) if len(row) < 4]:
        coins = Coins(waiting, [len(emitted[b]) for b in waiting])
        anchors = [torch.tensor([emitted[b][-1] for b in waiting])]
        for coin in coins.uniform(Purpose.DRAFT, GAMMA).T:
            anchors.append(draw(q[anchors[-1]], coin))
        rows = torch.stack(anchors, dim=1)
        verdict = verify_sampled(
            STRICT,
            Draft(
                token_ids=rows[:, 1:],
                lengths=torch.full((len(waiting),), GAMMA),
                probs=told[rows[:, :-1]],
            ),
            p[rows],
            accept_coins=coins.uniform(Purpose.ACCEPT, GAMMA),
            next_coins=coins.uniform(Purpose.NEXT, 1)[:, 0],
        )
        accepted = verdict.accepted_length.tolist()
        following = verdict.next_token_id.tolist()
        for b, ids, count, token in zip(
            waiting, rows[:, 1:].tolist(), accepted, following, strict=True
        ):
            emitted[b] += [*ids[:count], token]
    return torch.tensor([row[1:4] for row in emitted])


def chi_squared_p(tokens, law):
    """P(a larger statistic) for these draws under the law; cells below 5 expected are pooled."""
    expected = law.double() * len(tokens)
    seen = torch.bincount(tokens, minlength=len(law)).double()
    assert (seen[expected == 0] == 0).all(), "a token of no probability"
    is_small = expected < 5
    expected = torch.cat([expected[~is_small], expected[is_small].sum()[None]])
    seen = torch.cat([seen[~is_small], seen[is_small].sum()[None]])
    kept = expected > 0
    statistic = ((seen[kept] - expected[kept]) ** 2 / expected[kept]).sum()
    freedom = torch.tensor((int(kept.sum()) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, statistic / 2))


def exact_laws(target):
    """The law of the first, second and third token after token 0."""
    step = probabilities(target, SAMPLING).double()
    laws = [step[0]]
    for _ in range(2):
        laws.append(laws[-1] @ step)
    return laws


def test_filtered_sampling_follows_the_filtered_target():
    target, drafter = tables(seed=3)
    tokens = decode(target, drafter, told=probabilities(drafter, SAMPLING), num_requests=20_000)
    for position, law in enumerate(exact_laws(target)):
        assert chi_squared_p(tokens[:, position], law) > 1e-3


def test_an_unfiltered_draft_law_is_seen():
    """Negative control: the tokens come from the filtered q, verification hears the raw one."""
    target, drafter = tables(seed=3)
    tokens = decode(target, drafter, told=drafter.softmax(-1), num_requests=5_000)
    for position, law in enumerate(exact_laws(target)):
        assert chi_squared_p(tokens[:, position], law) < 1e-6
