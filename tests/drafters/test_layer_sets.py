import json
import os
from importlib import resources

import pytest

from lenity.drafters.layer_sets import SHIPPED_SUFFIX, LayerSet, find_layer_set, saved_path
from lenity.errors import ConfigError
from tests.drafters.rig import tiny_llama
from tests.drafters.test_self_speculative import saved

MODEL = tiny_llama(0, layers=2)


def shipped():
    files = resources.files("lenity.demo").iterdir()
    return [file for file in files if file.name.endswith(SHIPPED_SUFFIX)]


def test_a_set_survives_its_file(tmp_path):
    path = tmp_path / "deep" / "set.json"
    saved(MODEL, 1).save(path)
    assert LayerSet.load(path) == saved(MODEL, 1)
    first = path.read_bytes()
    saved(MODEL, 1).save(path)
    assert path.read_bytes() == first
    assert [file.name for file in path.parent.iterdir()] == ["set.json"]


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "set.json"
    saved(MODEL, 1).save(path)

    def fail(*paths):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        saved(MODEL, 0).save(path)
    assert LayerSet.load(path).skipped == (1,)
    assert [file.name for file in tmp_path.iterdir()] == ["set.json"]


def test_a_missing_file_is_an_error_that_teaches(tmp_path):
    with pytest.raises(ConfigError, match=r"could not read .*nowhere.json.*search_layers"):
        LayerSet.load(tmp_path / "nowhere.json")


@pytest.mark.parametrize("content", ["{}", "not json", b"\xff\xfe"], ids=["empty", "text", "bytes"])
def test_another_file_is_refused(content, tmp_path):
    path = tmp_path / "set.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=r"something else in .*set.json"):
        LayerSet.load(path)


def test_a_newer_schema_is_refused(tmp_path):
    path = tmp_path / "set.json"
    newer = json.loads(saved(MODEL, 1).model_dump_json()) | {"schema_version": 2}
    path.write_text(json.dumps(newer))
    with pytest.raises(ConfigError, match="schema_version"):
        LayerSet.load(path)


def test_each_model_has_a_path_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("LENITY_CACHE", str(tmp_path))
    others = [tiny_llama(0, layers=3), tiny_llama(0, layers=2, name="tiny:other")]
    paths = {saved_path(model) for model in [MODEL, *others]}
    assert len(paths) == 3
    assert all(path.parent == tmp_path / "layers" for path in paths)


def test_the_users_own_set_comes_before_the_shipped_one(tmp_path, monkeypatch):
    monkeypatch.setenv("LENITY_CACHE", str(tmp_path))
    theirs = LayerSet.model_validate_json(shipped()[0].read_text())
    model = tiny_llama(0, layers=2, name=theirs.model)
    model.num_layers, model.hidden_size = theirs.num_layers, theirs.hidden_size
    model.vocab_size = theirs.vocab_size
    assert find_layer_set(model) == theirs
    saved(model, 0).save(saved_path(model))
    assert find_layer_set(model).skipped == (0,)


@pytest.mark.parametrize("file", shipped(), ids=lambda file: file.name)
def test_what_is_shipped_is_what_its_curve_says(file):
    found = LayerSet.model_validate_json(file.read_text())
    count = len(found.skipped)
    assert found.skipped == tuple(sorted(point.removed for point in found.curve[:count]))
    assert found.agreement == found.curve[count - 1].agreement >= found.settings.min_agreement
    assert all(p.agreement < found.settings.min_agreement for p in found.curve[count:])
    assert [point.num_skipped for point in found.curve] == list(range(1, len(found.curve) + 1))


def test_what_a_killed_save_left_is_removed_and_a_save_at_work_is_not(tmp_path):
    path = tmp_path / "set[1].json"  # a name may hold what a glob reads otherwise
    killed, working, other = (
        tmp_path / name for name in ("set[1].json.11.part", "set[1].json.12.part", "x.json.11.part")
    )
    for file in (killed, working, other):
        file.write_text("half")
    for file in (killed, other):
        os.utime(file, (0, 0))
    saved(MODEL, 1).save(path)
    assert LayerSet.load(path).skipped == (1,)
    assert {file.name for file in tmp_path.iterdir()} == {path.name, working.name, other.name}


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_others_may_read_a_set_as_the_umask_says(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        saved(MODEL, 1).save(tmp_path / "set.json")
    finally:
        os.umask(before)
    assert (tmp_path / "set.json").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("not json", "layer set: expected JSON, got 'not json'"),
        ("{}", "layer set needs the knob model"),
        ("[1]", r"layer set: expected an object, got \[1\]"),
    ],
)
def test_another_file_is_told_in_our_words(content, said, tmp_path):
    (tmp_path / "set.json").write_text(content)
    with pytest.raises(ConfigError, match=rf"{said}\. Find one with") as caught:
        LayerSet.load(tmp_path / "set.json")
    assert "pydantic" not in str(caught.value)
