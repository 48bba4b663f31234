import pytest
import torch

from lenity.errors import CacheError, OutOfMemoryError, UnsupportedModelError
from lenity.models.base import KVCache
from lenity.models.cache import SlotCache, Slots
from tests.toys import CountingCache


def _write(cache: SlotCache, values: list[list[float]], offset: int = 0) -> torch.Tensor:
    """Write one number per token into layer 0; return what attention sees, (B, width)."""
    states = torch.tensor(values, dtype=torch.float32)[:, None, :, None]
    cache.place(states.shape[2], offset)
    keys, seen = cache.update(states, -states, 0)
    assert torch.equal(keys, -seen)
    return keys[:, 0, :, 0]


def test_each_row_writes_behind_its_own_length():
    cache = SlotCache(1, 2)
    _write(cache, [[1, 2, 3], [4, 5, 6]])
    cache.commit([3, 1])
    seen = _write(cache, [[7, 8], [9, 10]])
    assert seen.tolist() == [[1, 2, 3, 7, 8], [4, 9, 10, 0, 0]]
    cache.commit([1, 2])
    assert cache.lengths == [4, 3]
    assert _write(cache, [[11], [12]]).tolist() == [[1, 2, 3, 7, 11], [4, 9, 10, 12, 0]]


def test_what_was_never_written_is_finite():
    cache = SlotCache(1, 2)
    _write(cache, [[1.0] * 300, [1.0] * 300])
    cache.commit([300, 0])
    assert torch.isfinite(_write(cache, [[1.0], [1.0]])).all()


def test_no_memory_is_taken_before_the_first_forward():
    cache = SlotCache(3, 2)
    assert all(layer.keys is None for layer in cache.layers)
    _write(cache, [[1], [2]])
    assert [layer.is_initialized for layer in cache.layers] == [True, False, False]


def test_capacity_comes_in_steps_and_doubles():
    slots = Slots()
    capacities = []
    for length in (0, 255, 256, 600, 1100):
        slots.place([length], 1)
        capacities.append(slots.capacity)
    assert capacities == [256, 256, 512, 1024, 2048]


def test_growth_keeps_what_is_there():
    cache = SlotCache(1, 1)
    _write(cache, [[float(i) for i in range(256)]])
    cache.commit([256])
    assert _write(cache, [[256.0]])[0].tolist() == [float(i) for i in range(257)]


def test_keeping_all_rows_in_order_copies_nothing():
    cache = SlotCache(1, 2)
    _write(cache, [[1], [2]])
    before = cache.layers[0].keys
    cache.keep([0, 1])
    assert cache.layers[0].keys is before


def test_keep_and_append_carry_lengths_and_values():
    cache, other = SlotCache(2, 3), SlotCache(2, 1)
    _write(cache, [[1, 2], [3, 4], [5, 6]])
    cache.commit([2, 1, 0])
    cache.keep([1, 0])
    _write(other, [[float(i) for i in range(300)]])
    other.commit([300])
    cache.append(other)
    assert cache.lengths == [1, 2, 300]
    seen = _write(cache, [[7], [8], [9]])
    assert seen[0, :2].tolist() == [3, 7]
    assert seen[1, :3].tolist() == [1, 2, 8]
    assert seen[2].tolist() == [*range(300), 9]


def test_an_empty_cache_takes_over_the_first_rows():
    cache, other = SlotCache(1, 0), SlotCache(1, 1)
    _write(other, [[1, 2]])
    other.commit([2])
    cache.append(other)
    assert _write(cache, [[3]]).tolist() == [[1, 2, 3]]
    cache.keep([])
    assert cache.lengths == []
    third = SlotCache(1, 1)
    _write(third, [[4]])
    third.commit([1])
    cache.append(third)
    assert _write(cache, [[5]]).tolist() == [[4, 5]]


def test_a_layer_only_one_side_used_counts_as_zeros():
    cache, other = SlotCache(1, 1), SlotCache(1, 1)
    cache.place(2)
    cache.commit([2])  # written by other layers
    _write(other, [[1, 2]])
    other.commit([2])
    cache.append(other)
    assert _write(cache, [[3], [4]]).tolist() == [[0, 0, 3], [1, 2, 4]]


@pytest.mark.parametrize("counts", [[3, 0], [-1, 0], [1], [1, 1, 1]])
def test_only_written_tokens_can_be_committed(counts: list[int]):
    cache = SlotCache(1, 2, label="target KV cache")
    _write(cache, [[1, 2], [3, 4]])
    with pytest.raises(CacheError, match="target KV cache expects one count per row"):
        cache.commit(counts)
    assert cache.lengths == [0, 0]


def test_tokens_of_one_forward_may_be_committed_bit_by_bit():
    cache = SlotCache(1, 1)
    _write(cache, [[1, 2, 3]])
    cache.commit([2])
    with pytest.raises(CacheError):
        cache.commit([2])
    cache.commit([1])
    assert _write(cache, [[4]]).tolist() == [[1, 2, 3, 4]]


def test_rows_can_change_places():
    cache = SlotCache(1, 2)
    _write(cache, [[1], [2]])
    cache.commit([1, 0])
    cache.keep([1, 0])
    assert cache.lengths == [0, 1]
    assert _write(cache, [[3], [4]]).tolist() == [[3, 0], [1, 4]]


def test_a_rejected_token_cannot_be_committed_later():
    cache = SlotCache(1, 1)
    _write(cache, [[1, 2, 3]])
    cache.commit([1])
    _write(cache, [[4]])
    with pytest.raises(CacheError):
        cache.commit([2])


def test_an_offset_cannot_skip_tokens():
    cache = SlotCache(1, 1)
    with pytest.raises(CacheError, match="offset between 0 and the 0 tokens"):
        cache.place(1, offset=1)


def test_a_forward_that_was_not_placed_is_refused():
    cache = SlotCache(1, 2)
    cache.place(1)
    with pytest.raises(CacheError, match="2 rows of 1 tokens, got 1 rows of 3"):
        cache.update(torch.zeros(1, 1, 3, 1), torch.zeros(1, 1, 3, 1), 0)


def test_another_kind_of_cache_cannot_be_appended():
    with pytest.raises(CacheError, match="SlotCache with 1 layers"):
        SlotCache(1).append(CountingCache(1))
    with pytest.raises(CacheError, match="SlotCache with 1 layers"):
        SlotCache(1).append(SlotCache(2))


def test_what_cannot_be_allocated_is_named_with_its_size():
    cache = SlotCache(2, 1, label="target KV cache")
    cache.place(1)
    cache.slots.capacity = 1 << 48  # more than any address space
    with pytest.raises(
        OutOfMemoryError, match=r"target KV cache, layer 1 keys needs 2\.1e\+06 GiB"
    ):
        cache.update(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2), 1)


def test_transformers_is_told_where_the_forward_stands():
    cache = SlotCache(2, 2)
    _write(cache, [[1, 2, 3], [4, 5, 6]])
    cache.commit([3, 1])
    cache.place(2)
    assert (cache.get_seq_length(), cache.get_mask_sizes(2, 0)) == (3, (5, 0))
    assert cache.get_query_offset(1) == 3
    assert isinstance(cache, KVCache)


def test_states_of_recurrent_layers_are_refused():
    with pytest.raises(UnsupportedModelError, match="recurrent state"):
        SlotCache(1, 1).update_recurrent_state(torch.zeros(1), 0)
    with pytest.raises(UnsupportedModelError, match="convolution state"):
        SlotCache(1, 1).get_conv_state(0)


def test_kept_rows_that_cannot_be_allocated_are_named():
    cache = SlotCache(1, 2, label="target KV cache")
    cache.place(1)
    # two rows that share one number take no memory; a copy of one of them would take 8 TiB
    cache.slot_layers[0].keys = torch.zeros(1).expand(2, 1, 1 << 41, 1)
    cache.slot_layers[0].values, cache.slot_layers[0].is_initialized = torch.zeros(2, 1, 1, 1), True
    with pytest.raises(OutOfMemoryError, match=r"layer 0 keys needs 8\.19e\+03 GiB on cpu for 1 r"):
        cache.keep([1])
    assert cache.lengths == [0, 0]


def test_a_cache_filled_in_inference_mode_can_be_used_outside():
    def use(cache: SlotCache) -> torch.Tensor:
        cache.commit([2, 1])
        cache.keep([1, 0])
        cache.append(SlotCache(1, 0))
        return _write(cache, [[5], [6]])

    outside, inside = SlotCache(1, 2), SlotCache(1, 2)
    _write(outside, [[1, 2], [3, 4]])
    with torch.inference_mode():
        _write(inside, [[1, 2], [3, 4]])
    assert torch.equal(use(inside), use(outside))
    with torch.inference_mode():  # reordered inside, then used again
        inside.commit([1, 1])
        inside.keep([1, 0])
    assert _write(inside, [[7], [8]]).tolist() == [[1, 2, 6, 7], [3, 5, 8, 0]]
    with torch.inference_mode():  # grown inside, then used again
        inside.commit([0, 0])
        _write(inside, [[0.0] * 300] * 2)
        inside.commit([0, 0])
    seen = _write(inside, [[7], [8]])
    assert seen.tolist() == [[1, 2, 6, 7], [3, 5, 8, 0]]
    assert not seen.is_inference()
