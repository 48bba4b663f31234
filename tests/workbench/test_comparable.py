import pytest

from lenity.errors import ProtocolError
from lenity.workbench.comparable import (
    ArmIdentity,
    check_comparable,
    differences,
    first_prompt_difference,
    hash_prompts,
    prompts_of,
)
from lenity.workbench.facts import TargetFacts
from lenity.workbench.metrics import COUNTERS_VERSION
from tests.workbench.handmade import failed, text
from tests.workbench.made import provenance

TARGET = TargetFacts(name="tiny", dtype="float32", revision="r1", fingerprint="f1")
THINKS = [text(1, item_id="a", prompt_ids=(5, 6, 7)), text(1, item_id="b", prompt_ids=(8,))]
BARE = [text(1, item_id="a", prompt_ids=(5, 9, 7)), text(1, item_id="b", prompt_ids=(8,))]


def identity(**changes: object) -> ArmIdentity:
    base = {
        "template_hash": "t1",
        "prompt_ids_hash": hash_prompts(prompts_of(THINKS)),
        "dtype": "float32",
        "target": "tiny",
        "target_revision": "r1",
        "target_fingerprint": "f1",
    }
    return ArmIdentity(**{**base, **changes})


def test_the_identity_of_an_arm_is_read_off_its_run():
    found = ArmIdentity.of(provenance(target=TARGET, template_hash="t1"), THINKS)
    assert found == identity(counters_version=COUNTERS_VERSION)
    with pytest.raises(ProtocolError, match="says which target"):
        ArmIdentity.of(provenance(), THINKS)


def test_equal_arms_are_comparable():
    assert check_comparable(identity(), identity()) == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("template_hash", "t2"),
        ("template_hash", None),
        ("prompt_ids_hash", "p"),
        ("dtype", "bfloat16"),
        ("dtype", None),
        ("target", "other"),
        ("target_revision", "r2"),
        ("target_fingerprint", "f2"),
        ("counters_version", COUNTERS_VERSION + 1),
    ],
)
def test_arms_that_differ_in_a_field_are_refused_by_its_name(field, value):
    other = identity(**{field: value})
    for left, right in ((identity(), other), (other, identity())):
        with pytest.raises(ProtocolError, match=f"got {field}: .*force the comparison"):
            check_comparable(left, right)
        found = check_comparable(left, right, force=True)
        assert [difference.field for difference in found] == [field]


@pytest.mark.parametrize("field", ["target_revision", "target_fingerprint"])
def test_what_one_side_does_not_know_is_not_compared(field):
    assert check_comparable(identity(), identity(**{field: None})) == ()


def test_another_template_is_refused_with_the_first_prompt_id_that_differs():
    left, right = prompts_of(THINKS), prompts_of(BARE)
    other = identity(template_hash="t2", prompt_ids_hash=hash_prompts(right))
    with pytest.raises(ProtocolError) as caught:
        check_comparable(identity(), other, left, right)
    assert "template_hash: t1 and t2" in str(caught.value)
    assert "toy@1 a at token 1: id 6 and 9" in str(caught.value)
    forced = differences(identity(), other, left, right)
    assert [d.field for d in forced] == ["template_hash", "prompt_ids_hash"]
    assert forced[0].words == "template_hash: t1 and t2"
    assert type(forced[1]).model_validate_json(forced[1].model_dump_json()) == forced[1]


def test_prompts_hash_alike_in_any_order_and_apart_otherwise():
    one = hash_prompts({("t", "a"): (1, 2), ("t", "b"): (3,)})
    assert one == hash_prompts({("t", "b"): (3,), ("t", "a"): (1, 2)})
    others = (
        {("t", "a"): (1,), ("t", "b"): (2, 3)},
        {("t", "a"): (3,), ("t", "b"): (1, 2)},
        {("t", "a"): (1, 2)},
    )
    assert len({one, *map(hash_prompts, others)}) == 4


def test_where_prompts_part_is_told_in_words():
    base = {("t", "a"): (1, 2), ("t", "b"): (3,)}
    assert first_prompt_difference(base, dict(base)) == ""
    shorter = {**base, ("t", "a"): (1,)}
    assert first_prompt_difference(base, shorter) == "t a at token 1: id 2 and no token"
    assert first_prompt_difference(shorter, base) == "t a at token 1: id no token and 2"
    fewer = {("t", "a"): (1, 2)}
    assert first_prompt_difference(base, fewer) == "t b is only in the first"
    assert first_prompt_difference(fewer, base) == "t b is only in the second"


def test_prompts_are_those_of_failed_requests_too():
    records = [*THINKS, failed(item_id="c", prompt_ids=(4,)), failed(item_id="d")]
    assert prompts_of(records)["toy@1", "c"] == (4,)
    assert ("toy@1", "d") not in prompts_of(records)
    assert prompts_of([THINKS[0], THINKS[0]]) == {("toy@1", "a"): (5, 6, 7)}
    with pytest.raises(ProtocolError, match="one rendering of toy@1 a, got two"):
        prompts_of([THINKS[0], BARE[0]])
