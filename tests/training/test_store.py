import logging

import pytest
import torch

from lenity.errors import RunDirError
from lenity.training.store import (
    HELD_OUT_SHARE,
    MANIFEST,
    Manifest,
    is_held_out,
    key_of,
    open_store,
    write_atomically,
)
from tests.training import rig

SPEC = "eagle3"


def test_rows_come_back_as_the_target_computed_them(tmp_path):
    model = rig.target()
    made = rig.store(model, tmp_path, SPEC, count=5)
    again = open_store(tmp_path)
    recorded = rig.replies(5)
    assert again.sequences == made.sequences
    for i, reply in enumerate(recorded):
        ids, features = again.read(i)
        assert ids.tolist() == reply["prompt_ids"] + reply["token_ids"]
        taps = (*again.manifest.taps, model.num_layers)
        found = model.hidden_states(ids[None], model.new_cache(1), taps=taps).features
        torch.testing.assert_close(features.float(), found[0], rtol=0.01, atol=0.01)


def test_training_and_validation_share_no_prompt(tmp_path):
    found = rig.store(rig.target(), tmp_path, SPEC)
    train, held = found.split()
    assert sorted(train + held) == list(range(24))
    assert len(held) == 1
    assert is_held_out(found.sequences[held[0]].key)
    share = sum(is_held_out(key_of([i, 1])) for i in range(4000)) / 4000
    assert abs(share - 1 / HELD_OUT_SHARE) < 0.02


def test_a_torn_shard_is_left_out_and_its_replies_are_captured_again(tmp_path, caplog):
    model = rig.target()
    whole = rig.store(model, tmp_path, SPEC)
    file = sorted(tmp_path.glob("shard-*"))[0]
    file.write_bytes(file.read_bytes()[:-50])
    with caplog.at_level(logging.WARNING):
        torn = open_store(tmp_path)
    assert "cut off" in caplog.text
    assert len(torn.sequences) == 8
    again = rig.store(model, tmp_path, SPEC)
    assert again.keys() == whole.keys()
    assert len(again.sequences) == 24


def test_features_of_another_target_do_not_mix(tmp_path):
    model = rig.target()
    rig.store(model, tmp_path, SPEC, count=2)
    other = Manifest.of(model, (0,), 320, torch.bfloat16)
    with pytest.raises(RunDirError, match=r"taps \(0,\) \(there: \(-1, 1, 1\)\)|taps"):
        open_store(tmp_path, other)


def test_a_folder_without_features_is_refused(tmp_path):
    with pytest.raises(RunDirError, match=r"has no features\.json"):
        open_store(tmp_path)
    (tmp_path / MANIFEST).write_text('{"version": 1}')
    with pytest.raises(RunDirError, match=r"features\.json needs the field target\. Choose"):
        open_store(tmp_path)
    (tmp_path / MANIFEST).write_bytes(b"\xff")
    with pytest.raises(RunDirError, match=r"features\.json: expected JSON"):
        open_store(tmp_path)


def test_a_file_is_replaced_whole(tmp_path):
    write_atomically(tmp_path / "a", b"1")
    write_atomically(tmp_path / "a", b"2")
    assert [f.name for f in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"2"
