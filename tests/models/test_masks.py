import pytest
import torch

from lenity.models.masks import MaskForm, Reach, additive, build_masks, causal_mask


@pytest.mark.parametrize("reach", [Reach(), Reach(window=3), Reach(chunk=4)])
def test_a_mask_is_its_scalar_rule(reach: Reach):
    positions = torch.tensor([[4, 5, 6], [0, 1, 2]])
    mask = causal_mask(positions, 7, reach)
    for row in range(2):
        for query, p in enumerate(positions[row].tolist()):
            for c in range(7):
                sees = c <= p
                if reach.window is not None:
                    sees = sees and p - c < reach.window
                if reach.chunk is not None:
                    sees = sees and c // reach.chunk == p // reach.chunk
                assert mask[row, 0, query, c] == sees, (row, p, c)


def test_every_query_sees_itself_padding_too():
    positions = torch.arange(90, 100)[None]
    for reach in (Reach(), Reach(window=1), Reach(chunk=8)):
        mask = causal_mask(positions, 100, reach)[0, 0]
        assert mask[torch.arange(10), positions[0]].all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_additive_masks_hide_without_infinities(dtype: torch.dtype):
    found = additive(torch.tensor([True, False]), dtype)
    assert found.dtype == dtype
    assert found.tolist() == [0, torch.finfo(dtype).min]


def test_forms():
    reaches = {"sliding_attention": Reach(window=2), "full_attention": Reach()}
    positions = torch.tensor([[3]])
    masks = build_masks(MaskForm(reaches=reaches, is_mapping=True), positions, 4, torch.float32)
    assert isinstance(masks, dict)
    assert masks["full_attention"].flatten().tolist() == [True] * 4
    assert masks["sliding_attention"].flatten().tolist() == [False, False, True, True]
    one = build_masks(MaskForm(is_additive=True), positions, 4, torch.float32)
    assert isinstance(one, torch.Tensor)
    assert one.dtype == torch.float32
    assert MaskForm(is_additive=True).name == "additive float tensor"
    assert MaskForm(is_mapping=True).name == "dict of bool"
