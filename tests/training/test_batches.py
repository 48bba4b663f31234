import itertools

import torch

from lenity.training.batches import batch_order, endless, load_batch, take
from tests.training import rig

LENGTHS = [5 + i % 7 for i in range(43)]


def test_an_epoch_holds_every_item_once_and_sorts_them_into_like_lengths():
    batches = batch_order(LENGTHS, 4, seed=1, epoch=0)
    assert sorted(i for b in batches for i in b) == list(range(43))
    assert max(map(len, batches)) == 4
    spread = max(max(LENGTHS[i] for i in b) - min(LENGTHS[i] for i in b) for b in batches)
    assert spread <= 1
    assert batches == batch_order(LENGTHS, 4, seed=1, epoch=0)
    assert batches != batch_order(LENGTHS, 4, seed=1, epoch=1)
    assert batches != batch_order(LENGTHS, 4, seed=2, epoch=0)


def test_going_on_means_leaving_out_what_was_seen():
    whole = list(itertools.islice(endless(LENGTHS, 4, 1), 40))
    for skip in (0, 3, 11, 25):
        assert list(itertools.islice(endless(LENGTHS, 4, 1, skip), 40 - skip)) == whole[skip:]


def test_bases_begin_at_the_prompts_end_and_draft_the_reply():
    some = rig.batch(rig.target(), "eagle3")
    bases, is_real = some.bases()
    assert bases[0].tolist() == list(range(3, 12))
    assert bases[1][:6].tolist() == list(range(2, 8))
    assert is_real.sum(1).tolist() == [9, 6]
    tokens, is_there = some.drafted(bases, is_real, 3)
    for row, number, place in rig.real_bases(some):
        ids = some.token_ids[row, : some.lengths[row]].tolist()
        expected = ids[place + 2 : place + 5]
        assert is_there[row, number].tolist() == [k < len(expected) for k in range(3)]
        assert tokens[row, number][: len(expected)].tolist() == expected
    assert not is_there[1, 6:].any()


def test_take_reads_rows_of_their_own():
    values = torch.arange(12).view(2, 6)
    assert take(values, torch.tensor([[0, 9], [2, 1]])).tolist() == [[0, 5], [8, 7]]


def test_a_batch_is_padded_on_the_right(tmp_path):
    model = rig.target()
    found = rig.store(model, tmp_path, "eagle3", count=6)
    some = load_batch(found, [0, 3], torch.device("cpu"))
    assert some.taps.shape[-1] == 3 * model.hidden_size
    assert some.last.shape[-1] == model.hidden_size
    for row, index in enumerate([0, 3]):
        ids, features = found.read(index)
        length = int(some.lengths[row])
        assert some.token_ids[row, :length].tolist() == ids.tolist()
        assert not some.token_ids[row, length:].any()
        joined = torch.cat([some.taps, some.last], -1)[row]
        assert torch.equal(joined[:length], features.float())
        assert not joined[length:].any()
    fewer = load_batch(found, [0, 3], torch.device("cpu"), taps=(1, -1))
    assert found.manifest.taps == (-1, 1, 1)
    size = model.hidden_size
    assert torch.equal(
        fewer.taps, torch.cat([some.taps[..., size : 2 * size], some.taps[..., :size]], -1)
    )
    assert load_batch(found, [0], torch.device("cpu"), taps=()).taps.shape[-1] == 0
