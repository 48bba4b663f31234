"""Wrong shapes and dtypes fail: in lenity, and in what the checker is handed."""

from typing import Self

import pytest
import torch
from jaxtyping import Float, Int, TypeCheckError, jaxtyped
from torch import Tensor

from lenity.types import Draft
from tests.shapecheck import checked


def _ids(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.int64)


def test_a_right_draft_is_built():
    assert Draft(token_ids=_ids(2, 3), lengths=_ids(2)).gamma == 3


@pytest.mark.parametrize(
    ("token_ids", "lengths"),
    [
        pytest.param(_ids(2, 3), _ids(3), id="another number of requests"),
        pytest.param(_ids(2), _ids(2), id="an axis missing"),
        pytest.param(torch.zeros(2, 3), _ids(2), id="another dtype"),
    ],
)
def test_lenity_is_checked(token_ids: Tensor, lengths: Tensor):
    with pytest.raises(TypeCheckError):
        Draft(token_ids=token_ids, lengths=lengths)


@jaxtyped(typechecker=checked)
def _row_sums(table: Float[Tensor, "B V"], is_wrong: bool) -> Float[Tensor, " B"]:
    return table if is_wrong else table.sum(-1)


def test_results_are_checked():
    assert _row_sums(torch.zeros(2, 3), False).shape == (2,)
    with pytest.raises(TypeCheckError, match="return value"):
        _row_sums(torch.zeros(2, 3), True)


def test_self_is_tolerated_and_the_rest_still_checked():
    class Counter:
        @jaxtyped(typechecker=checked)
        def add(self, counts: Int[Tensor, " B"], other: Self | None = None) -> Self:
            return other or self

    counter = Counter()
    assert counter.add(_ids(2), counter) is counter
    with pytest.raises(TypeCheckError):
        counter.add(_ids(2, 2))
