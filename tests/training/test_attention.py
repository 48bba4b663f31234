import pytest
import torch

from lenity.models.heads.blocks import Attention
from lenity.training.attention import attend_drafts
from lenity.training.recipe import layer_words, shape_of
from tests.training import rig


@pytest.mark.parametrize("slots", [1, 3], ids=["one query a draft", "a block"])
@pytest.mark.parametrize("num_own", [0, 2, 3])
def test_every_draft_is_what_attention_over_its_columns_alone_is(slots, num_own, generator):
    shape = shape_of(layer_words(rig.target(), 1, None))
    attention = Attention(shape)
    kv, dim, heads = shape.num_kv_heads, shape.head_dim, shape.num_heads

    def drawn(*size):
        return torch.randn(*size, generator=generator)

    queries = drawn(2, heads, 4, slots, dim)
    keys, values = drawn(2, kv, 6, dim), drawn(2, kv, 6, dim)
    own = (drawn(2, kv, 4, num_own, dim), drawn(2, kv, 4, num_own, dim)) if num_own else None
    limits = torch.tensor([[1, 2, 6, 3], [5, 1, 4, 2]])
    sees = torch.arange(6) < limits[..., None]
    found = attend_drafts(attention, queries, (keys, values), own, sees)
    for row in range(2):
        for a in range(4):
            seen = [t[row : row + 1, :, : limits[row, a]] for t in (keys, values)]
            if own is not None:
                seen = [torch.cat([s, o[row : row + 1, :, a]], 2) for s, o in zip(seen, own)]  # noqa: B905
            alone = attention.attend(queries[row : row + 1, :, a], seen[0], seen[1], None)
            torch.testing.assert_close(found[row, a], alone[0], rtol=1e-5, atol=1e-5)
