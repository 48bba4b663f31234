"""Raw confidence: geometric means, and a drafter without confidence."""

import pytest
import torch

from lenity.errors import ConfigError
from lenity.skipping import skip_rule
from lenity.skipping.base import SkipContext
from lenity.skipping.signals import geometric_mean
from lenity.types import Draft


def test_geometric_mean():
    scores = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.25, 0.25]], dtype=torch.float64)
    wanted = [[0.5, 0.5, 0.0], [1.0, 0.5, (1 / 16) ** (1 / 3)]]
    assert geometric_mean(scores).tolist() == [pytest.approx(row) for row in wanted]


def test_a_drafter_without_confidence_is_refused():
    draft = Draft(token_ids=torch.zeros(1, 2, dtype=torch.int64), lengths=torch.tensor([2]))
    context = SkipContext(draft=draft, num_emitted=[0], rounds=[0])
    with pytest.raises(ConfigError, match="expects a drafter that gives a confidence"):
        skip_rule("raw").prefix_length(context)
