"""Sampling is exact when q is the very law the draft was drawn from, and visibly wrong when not.

Seen in HF#47932, DeepSpec#31, lattice#974 and
mistral.rs#2424: the drafter drew from filtered probabilities and handed in the raw
ones, so acceptance rose and the target's law was lost.
"""

import pytest
import torch

from lenity.drafters.autoregressive import Autoregressive
from lenity.drafters.base import Drafter
from lenity.engine.decode import Decoder
from lenity.types import Draft
from tests.toys import TableModel

VOCAB, GAMMA, START = 16, 3, 3
ROWS = 5_000
"""Times four positions, three drafted and one bonus: 20,000 draws."""
SAMPLING = {"temperature": 0.7, "top_k": 5}


def table(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(VOCAB, VOCAB, generator=generator) * 1.5


TARGET, OTHER = TableModel(table(0)), TableModel(table(0) + 0.5 * table(1), name="toy:drafter")


def exact_law(logits):
    """softmax(top 5 of z / 0.7), row by row, in float64 and in as many words."""
    law = torch.zeros(VOCAB, VOCAB, dtype=torch.float64)
    for row, own in enumerate(logits.double()):
        best = own.sort(descending=True).indices[:5]
        law[row, best] = (own[best] / 0.7).exp()
    return law / law.sum(-1, keepdim=True)


def chi_squared_p(counts, expected):
    """Pearson's test. Cells expected less than 5 times are one cell; a count where none can be
    gives 0."""
    if counts[expected == 0].sum():
        return 0.0
    is_small = expected < 5
    counts = torch.cat([counts[~is_small], counts[is_small].sum()[None]])
    expected = torch.cat([expected[~is_small], expected[is_small].sum()[None]])
    counts, expected = counts[expected > 0], expected[expected > 0]
    statistic = ((counts - expected) ** 2 / expected).sum()
    half = torch.tensor((len(counts) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, statistic / 2))


def p_values(tokens):
    """p at each of the four positions: of the token together with the one before it.

    A token's own law soon forgets where the text began; with its predecessor it cannot hide.
    """
    law, marginal = exact_law(TARGET.table), torch.zeros(VOCAB, dtype=torch.float64)
    marginal[START] = 1.0
    before, out = torch.full_like(tokens[:, 0], START), []
    for now in tokens.T:
        expected = marginal[:, None] * law * len(tokens)
        counts = torch.bincount(before * VOCAB + now, minlength=VOCAB**2)
        out.append(chi_squared_p(counts.double(), expected.reshape(-1)))
        before, marginal = now, marginal @ law
    return out


class RawQ(Drafter):
    """Draws like the drafter inside and hands in the probabilities before the filters."""

    type: str = "raw_q"
    inner: Drafter

    def open(self, target, cache):
        session = self.inner.open(target, cache)
        propose = session.propose

        def with_raw_probs(context):
            draft = propose(context)
            anchors = torch.tensor([[ids[-1]] for ids in context.token_ids])
            before = torch.cat([anchors, draft.token_ids], dim=1)[:, :-1]
            raw = OTHER.table[before].softmax(-1)
            return Draft(token_ids=draft.token_ids, lengths=draft.lengths, probs=raw)

        session.propose = with_raw_probs
        return session


def sample(drafter, seed, rows=ROWS):
    """Requests with seeds of their own in one batch: tokens (rows, 4) and the mean acceptance."""
    decoder = Decoder(target=TARGET, drafter=drafter, max_batch_size=rows)
    results = decoder.generate(
        [[START]] * rows, max_new_tokens=GAMMA + 1, gamma=GAMMA, seed=seed, **SAMPLING
    )
    rates = [r.accepted / r.evaluated for result in results for r in result.rounds[:1]]
    return torch.tensor([result.token_ids for result in results]), sum(rates) / rows


def test_speculative_sampling_has_the_targets_law():
    """The drafter's law is another one: near enough to be accepted, far enough to matter."""
    tokens, rate = sample(Autoregressive(model=OTHER), seed=11)
    assert 0.2 < rate < 0.9
    assert min(p_values(tokens)) > 1e-3


def test_control_raw_q_is_caught():
    tokens, _ = sample(RawQ(inner=Autoregressive(model=OTHER)), seed=11, rows=1_500)
    assert max(p_values(tokens)) < 1e-6


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_a_request_draws_the_same_whoever_shares_its_batch(batch_size):
    """Coins belong to a request's seed and position, not to a stream that all share."""
    prompts, changes = [[i] for i in range(8)], {"max_new_tokens": 12, "gamma": GAMMA}

    def run(size):
        decoder = Decoder(target=TARGET, drafter=Autoregressive(model=OTHER), max_batch_size=size)
        return [r.token_ids for r in decoder.generate(prompts, seed=5, **changes, **SAMPLING)]

    alone = [
        Decoder(target=TARGET, drafter=Autoregressive(model=OTHER))
        .generate(prompt, seed=5 + i, **changes, **SAMPLING)
        .token_ids
        for i, prompt in enumerate(prompts)
    ]
    assert run(batch_size) == alone
    assert len(set(alone)) == len(alone)
