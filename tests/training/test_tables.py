import torch

from lenity.models.causal import CausalLM
from lenity.training.tables import TargetTables, choose_kept_ids
from tests.training import rig


def test_kept_rows_are_the_targets_own():
    model = rig.target()
    tables = rig.tables(model)
    last = torch.randn(3, 5, model.hidden_size, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(tables.logits(last), model.logits(last)[..., rig.KEPT])
    assert torch.equal(tables.embedding, model.embed(torch.arange(rig.VOCABULARY)))
    assert tables.row_of(torch.tensor([0, 1, 4, 46])).tolist() == [0, -1, 2, 23]


def test_logits_that_are_more_than_a_product_are_the_targets():
    model = rig.target()
    model.logits = lambda hidden: 30 * torch.tanh(CausalLM.logits(model, hidden) / 30)
    tables = TargetTables(model, rig.KEPT)
    last = 40 * torch.randn(2, model.hidden_size, generator=torch.Generator().manual_seed(0))
    assert tables.rows is None
    assert torch.equal(tables.logits(last), model.logits(last)[..., rig.KEPT])


def test_the_most_frequent_ids_are_kept_and_those_that_must_be():
    replies = [torch.tensor([3, 3, 3, 9, 9, 1]), torch.tensor([1, 1, 7])]
    assert choose_kept_ids(replies, 12, 3, always=[]).tolist() == [1, 3, 9]
    assert choose_kept_ids(replies, 12, 3, always=[11]).tolist() == [1, 3, 11]
    assert choose_kept_ids(replies, 12, 5, always=[]).tolist() == [0, 1, 3, 7, 9]
    assert choose_kept_ids(replies, 12, None, always=[]).tolist() == list(range(12))
