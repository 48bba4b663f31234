import pytest
import torch

from lenity.errors import ModelMismatchError, UnsupportedModelError
from lenity.models.heads.checkpoint import open_checkpoint
from lenity.models.heads.vocab_map import (
    borrow_embedding,
    check_vocabulary,
    input_embeddings,
    read_kept_ids,
)
from tests.drafters.rig import tiny_llama
from tests.models.heads.tiny import write
from tests.toys import cycle_model

KEPT = torch.tensor([1, 4, 5])
D2T = KEPT - torch.arange(3)
T2D = torch.tensor([0, 1, 0, 0, 1, 1], dtype=torch.bool)


def kept(folder, num_rows=3, vocab_size=6, **tensors):
    given = tensors or {"norm.weight": torch.ones(1)}
    return read_kept_ids(open_checkpoint(write(folder, {}, given)), num_rows, vocab_size)


@pytest.mark.parametrize("names", [("d2t",), ("t2d",), ("d2t", "t2d"), ("model.d2t",)])
def test_either_table_names_the_kept_ids(tmp_path, names):
    tables = {name: D2T if "d2t" in name else T2D for name in names}
    assert torch.equal(kept(tmp_path, **tables), KEPT)


def test_no_map_and_an_identity_map_are_the_same(tmp_path):
    assert kept(tmp_path) is None
    assert kept(tmp_path, d2t=torch.zeros(3, dtype=torch.int64)) is None
    everything = torch.ones(6, dtype=torch.bool)
    zeros = torch.zeros(6, dtype=torch.int64)
    assert kept(tmp_path, num_rows=6, d2t=zeros, t2d=everything) is None


@pytest.mark.parametrize(
    ("tables", "found"),
    [
        ({"d2t": D2T, "t2d": ~T2D}, "other ids than 'd2t'"),
        ({"d2t": D2T + 3}, "ids from 4 to 8 in a vocabulary of 6"),
        ({"d2t": D2T - 5}, "ids from -4"),
        ({"d2t": torch.tensor([1, 0, 3])}, "two rows"),
        ({"t2d": ~T2D, "norm": torch.ones(1)}, None),
        ({"t2d": torch.ones(6, dtype=torch.bool)}, "6 ids for 3 rows"),
        ({"d2t": torch.zeros(4, dtype=torch.int64)}, r"\(3,\).*got \(4,\)"),
    ],
)
def test_tables_that_disagree_are_refused(tmp_path, tables, found):
    if found is None:
        assert kept(tmp_path, **tables).tolist() == [0, 2, 3]
        return
    with pytest.raises(ModelMismatchError, match=found):
        kept(tmp_path, **tables)


def test_only_padding_may_be_missing_from_a_drafters_vocabulary():
    padded = tiny_llama(0, layers=1, words=120)
    for size in (None, 128, 124, 120):
        check_vocabulary("a drafter", size, padded)
    for size in (119, 129):
        with pytest.raises(ModelMismatchError, match=f"vocabulary of {size}"):
            check_vocabulary("a drafter", size, padded)


def test_an_embedding_is_borrowed_from_targets_that_have_one():
    target = tiny_llama(0, layers=1)
    weight = borrow_embedding("a drafter", 64, target)
    assert weight.data_ptr() == input_embeddings(target).weight.data_ptr()
    with pytest.raises(ModelMismatchError, match="hidden size 32"):
        borrow_embedding("a drafter", 32, target)
    with pytest.raises(UnsupportedModelError, match="toy:table"):
        input_embeddings(cycle_model())
