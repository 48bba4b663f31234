import torch

from lenity.training.capture import capture
from lenity.training.store import open_store
from tests.training import rig

TAPS = (-1, 1)


def test_a_stopped_capture_goes_on_and_gives_the_same_rows(tmp_path):
    model = rig.target()
    recorded = rig.replies(12)
    whole = capture(model, recorded, tmp_path / "whole", taps=TAPS, batch_size=4, shard_size=4)
    capture(model, recorded[:5], tmp_path / "parts", taps=TAPS, batch_size=4, shard_size=4)
    told = []
    parts = capture(
        model, recorded, tmp_path / "parts", taps=TAPS, batch_size=4, shard_size=4,
        progress=told.append,
    )  # fmt: skip
    assert sum(told) == sum(item.length for item in parts.sequences[5:])
    assert [s.key for s in parts.sequences] == [s.key for s in whole.sequences]
    for i in range(12):
        assert torch.equal(parts.read(i)[0], whole.read(i)[0])
        torch.testing.assert_close(parts.read(i)[1], whole.read(i)[1], rtol=0.02, atol=0.02)


def test_sequences_are_cut_and_what_is_left_too_short_is_skipped(tmp_path):
    model = rig.target()
    recorded = [
        {"prompt_ids": [1, 2, 3], "token_ids": [4] * 30},
        {"prompt_ids": [5] * 9, "token_ids": [4] * 30},
        {"prompt_ids": [6, 7], "token_ids": [8, 9]},
    ]
    found = capture(model, recorded, tmp_path, taps=TAPS, max_length=10)
    [only] = found.sequences
    assert (only.length, only.start, only.family) == (10, 3, "")


def test_bytes_are_bounded_before_they_are_written(tmp_path):
    model = rig.target()
    recorded = rig.replies(12)
    size = 3 * 64 * 2 + 4
    limit = size * 2 * 36
    found = capture(model, recorded, tmp_path, taps=TAPS, shard_size=2, max_bytes=limit)
    assert len(found.sequences) == 2
    assert sum(f.stat().st_size for f in tmp_path.glob("shard-*")) <= limit + 2000
    assert open_store(tmp_path).keys() == found.keys()
