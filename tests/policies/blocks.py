"""Blocks to judge: written out by hand, or drawn by hypothesis with ties, masks and ragged rows."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lenity.policies.divergence import divergences
from lenity.policies.verify import verify_greedy
from lenity.scoring import reduce_logits
from lenity.types import Draft, Scores

INF = float("inf")
EVERY_NEED = frozenset({"draft_rank", "second_logit", "log_normalizer"})
STEP = 0.125
"""Drawn logits are multiples of this, so that ties are common and every sum is exact."""


@dataclass
class Block:
    """Logits (B, R, V) and a draft, for the tensors and for the scalar twins.

    ``draft.logprobs`` is the drafter's law; without it every draft token was certain.
    """

    logits: torch.Tensor
    draft: Draft

    @property
    def scores(self) -> Scores:
        flat = self.logits.flatten(0, 1)
        scores = reduce_logits(
            lambda start, stop: flat[start:stop], self.draft, needs=EVERY_NEED, keep_logits=True
        )
        laws = self.logits[:, :-1].log_softmax(-1)
        found = divergences(laws, self.draft.logprobs, self.draft.token_ids)
        return replace(scores, divergence=found)

    @property
    def batch(self) -> range:
        return range(self.draft.token_ids.shape[0])

    def rows(self, b):
        """The rows of one request as lists, its bonus row last."""
        return self.logits[b, : int(self.draft.lengths[b]) + 1].tolist()

    def tokens(self, b):
        """The real draft tokens of one request."""
        return self.draft.token_ids[b, : int(self.draft.lengths[b])].tolist()

    def take(self, rows):
        """The block of some requests, in this order."""
        law = self.draft.logprobs
        draft = Draft(
            token_ids=self.draft.token_ids[rows],
            lengths=self.draft.lengths[rows],
            logprobs=None if law is None else law[rows],
        )
        return Block(self.logits[rows], draft)

    def verify(self, policy, *, spent=None, may_relax=None):
        """The greedy verdict; spent in units per request, may_relax as lists."""
        batch = len(self.batch)
        return verify_greedy(
            policy,
            self.draft,
            self.scores,
            spent_units=torch.tensor(spent or [0] * batch, dtype=torch.int64),
            may_relax=None if may_relax is None else torch.tensor(may_relax, dtype=torch.bool),
        )


def regrets(*nats, vocab=8, top=0.0):
    """A block of one request whose i-th draft token costs ``nats[i]``; None is the argmax.

    The target's argmax is token 3 in every row, so that a tie with the draft token 5 goes to 3.
    The bonus row's is token 6. Each regret is exactly representable beside a top logit of 0; few
    are beside another ``top``. The drafter's law is the target's own.
    """
    size = len(nats)
    logits = torch.full((1, size + 1, vocab), -40.0)
    logits[0, :, 3] = top
    logits[0, size, 6] = top + 1.0
    for i, nat in enumerate(nats):
        if nat is not None:
            logits[0, i, 5] = top - nat
    ids = torch.tensor([[3 if nat is None else 5 for nat in nats]], dtype=torch.int64)
    law = logits[:, :-1].log_softmax(-1)
    return Block(logits, Draft(token_ids=ids, lengths=torch.tensor([size]), logprobs=law))


def stack(*blocks):
    """Blocks of one request each as one ragged batch; padding repeats the row's argmax."""
    width = max(block.draft.gamma for block in blocks)
    vocab = blocks[0].logits.shape[-1]
    logits = torch.zeros(len(blocks), width + 1, vocab)
    logits[:, :, 3] = 50.0
    ids = torch.full((len(blocks), width), 3)
    lengths = torch.zeros(len(blocks), dtype=torch.int64)
    for b, block in enumerate(blocks):
        size = block.draft.gamma
        logits[b, : size + 1], ids[b, :size], lengths[b] = (
            block.logits[0],
            block.draft.token_ids,
            size,
        )
    return Block(logits, Draft(token_ids=ids, lengths=lengths))


@st.composite
def blocks(draw, max_batch=3, max_gamma=6):
    """Ragged blocks over a small vocabulary: ties, masked draft tokens, poisoned padding.

    A draft token is drawn by its rank, so that matches and cheap mismatches are common. Padding
    repeats the argmax of its row, so that whoever forgets the lengths accepts it.
    """
    batch = draw(st.integers(1, max_batch))
    gamma = draw(st.integers(0, max_gamma))
    vocab = draw(st.integers(2, 6))
    steps = draw(arrays(np.int64, (batch, gamma + 1, vocab), elements=st.integers(-3, 9)))
    logits = torch.from_numpy(np.where(steps < -1, -np.inf, steps * STEP)).float()
    logits[..., -1] = logits[..., -1].clamp_min(-1.0)  # a row that masks everything is no row
    ranks = draw(arrays(np.int64, (batch, gamma), elements=st.integers(0, 2 * vocab)))
    ranks = torch.from_numpy(np.where(ranks < vocab, ranks, 0))
    order = logits[:, :-1].argsort(dim=-1, descending=True, stable=True)
    ids = order.gather(-1, ranks[..., None]).squeeze(-1)
    lengths = torch.from_numpy(draw(arrays(np.int64, (batch,), elements=st.integers(0, gamma))))
    is_padding = torch.arange(gamma) >= lengths[:, None]
    ids = torch.where(is_padding, logits[:, :-1].argmax(-1), ids)
    return Block(logits, Draft(token_ids=ids, lengths=lengths))


def flags(draw, block):
    """Which positions may be relaxed, per request; or None."""
    shape = tuple(block.draft.token_ids.shape)
    if draw(st.booleans()):
        return None
    return draw(arrays(np.bool_, shape, elements=st.booleans())).tolist()


nats = st.integers(0, 16).map(lambda steps: steps * STEP)
"""Knobs on the same grid as the logits, so that a budget or a gate is often hit exactly."""
caps = st.none() | st.integers(0, 4)
