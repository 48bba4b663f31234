import json

import pytest

from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.id_map import IdMap, Tokens, make_id_map, read_pairs


def tokens(name, words, special=None):
    by_id = None if words is None else {i: w for i, w in enumerate(words) if w}
    return Tokens(name=name, size=len(words or "123456"), by_id=by_id, special_ids=special)


TARGET = tokens("target", ["a", "b", "c", "<eos>", "d"])
DRAFTER = tokens("drafter", ["x", "c", "a", "", "<eos>", "b"])


def by_content(target=TARGET, drafter=DRAFTER, stand_in=None):
    return make_id_map("content", target, drafter, stand_in)


def file(tmp_path, pairs, **more):
    path = tmp_path / "map.json"
    path.write_text(json.dumps({"version": 1, "pairs": pairs} | more))
    return str(path)


def test_equal_tokens_are_one():
    assert by_content().to_drafter == {0: 2, 1: 5, 2: 1, 3: 4}


def test_texts_are_read_token_by_token():
    assert by_content().translate([2, 0, 0, 3]) == [1, 2, 2, 4]
    assert by_content().translate([2, 4]) is None, "d is unknown to the drafter"
    assert by_content(stand_in=0).translate([2, 4]) == [1, 0]
    assert by_content().translate([]) == []


def test_a_special_token_is_no_text():
    """What is special to one only is another thing, however it is written."""
    target, drafter = tokens("t", ["a", "<x>"], {1}), tokens("d", ["<x>", "a"], set())
    assert by_content(target, drafter).to_drafter == {0: 1}
    assert by_content(target, tokens("d", ["<x>", "a"], {0})).to_drafter == {0: 1, 1: 0}
    assert by_content(target, tokens("d", ["<x>", "a"])).to_drafter == {0: 1, 1: 0}


def test_one_to_one_even_where_a_token_stands_twice():
    twice = tokens("t", ["a", "a", "b"])
    assert by_content(twice, tokens("d", ["b", "a", "a"])).to_drafter == {0: 1, 2: 0}


def test_tokens_that_no_row_of_the_head_stands_for_are_left_out():
    wide = Tokens(name="d", size=3, by_id=DRAFTER.by_id)
    assert by_content(drafter=wide).to_drafter == {0: 2, 2: 1}


def test_nothing_in_common_is_refused():
    with pytest.raises(ModelMismatchError, match="to share a token, got none"):
        by_content(drafter=tokens("d", ["x", "y"]))


def test_without_tokens_there_is_no_content():
    with pytest.raises(ModelMismatchError, match=r"got none of d.* give the map in a file"):
        by_content(drafter=tokens("d", None))


def test_a_file_says_it_all(tmp_path):
    found = make_id_map(file(tmp_path, [[4, 0], [0, 3]]), TARGET, tokens("d", None), 5)
    assert found.translate([4, 1, 0]) == [0, 5, 3]
    again = tmp_path / "again.json"
    found.write(again)
    assert read_pairs(again) == {4: 0, 0: 3}


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([[0, 1], [0, 2]], "an id twice"),
        ([[0, 1], [2, 1]], "an id twice"),
        ([[0]], r"map\.json needs the field pairs\.0\.1"),
        ("no pairs", r"map\.json: pairs: expected a list, got 'no pairs'"),
        ([[True, 1]], r"map\.json: pairs\.0\.0: expected an integer, got True"),
        ([[0, "1"]], r"map\.json: pairs\.0\.1: expected an integer, got '1'"),
    ],
)
def test_a_file_that_is_no_map_is_refused(pairs, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        make_id_map(file(tmp_path, pairs), TARGET, DRAFTER, None)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"no/such\.json.*id_map=content"):
        read_pairs("no/such.json")


@pytest.mark.parametrize("name", ["~nobody-of-that-name/map.json", "a\0b"])
def test_a_name_that_is_no_place_is_refused(name):
    with pytest.raises(ConfigError, match="Expected a map of token ids"):
        read_pairs(name)


@pytest.mark.parametrize(("pairs", "owner"), [([[5, 0]], "target"), ([[0, 6]], "drafter")])
def test_ids_of_other_models_are_refused(pairs, owner, tmp_path):
    with pytest.raises(ModelMismatchError, match=f"ids of {owner} in the map, 0 to"):
        make_id_map(file(tmp_path, pairs), TARGET, DRAFTER, None)


def test_a_stand_in_is_an_id_of_the_drafter():
    with pytest.raises(ModelMismatchError, match="0 to 5, got 6"):
        by_content(stand_in=6)
    assert IdMap(name="x", to_drafter={}, stand_in=1).translate([7]) == [1]
