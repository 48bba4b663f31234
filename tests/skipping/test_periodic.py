"""The schedule: whose turn it is, and drafts too short for it."""

import torch

from lenity.skipping import skip_rule
from lenity.skipping.base import SkipContext
from lenity.types import Draft


def test_every_third_round_skips_exactly_the_count():
    rule = skip_rule("periodic:period=3,count=4")
    draft = Draft(
        token_ids=torch.zeros(6, 5, dtype=torch.int64), lengths=torch.tensor([5, 5, 5, 5, 4, 3])
    )
    context = SkipContext(draft=draft, num_emitted=[0] * 6, rounds=[0, 1, 2, 3, 5, 5])
    assert rule.prefix_length(context).tolist() == [0, 0, 4, 0, 4, 0]
    assert rule.max_unverified is None
