import pytest
from pydantic import ValidationError

from lenity.workbench.config import Arm, FixedWork, NaturalEos, pair, plain_of, strict_of, triplet

RELAXED = Arm(name="relaxed", drafter="ngram", policy="asd:budget=8", gamma=4, batch_size=2)


def test_strict_stands_around_the_arm_with_its_own_drafter():
    first, middle, last = triplet(RELAXED)
    assert [first.name, middle, last.name] == ["strict-a", RELAXED, "strict-b"]
    assert first == RELAXED.renamed("strict-a", policy="strict") == last.renamed("strict-a")
    assert [arm.name for arm in triplet(RELAXED, with_plain=True)] == [
        "plain",
        "strict-a",
        "relaxed",
        "strict-b",
    ]
    assert pair(RELAXED) == (strict_of(RELAXED), RELAXED)
    assert pair(RELAXED, with_plain=True)[0] == plain_of(RELAXED)


def test_what_a_skipping_arm_is_compared_with_verifies_everything():
    skipping = RELAXED.renamed("skipping", skip="periodic", shadow=True)
    for arm in (*pair(skipping, with_plain=True)[:2], triplet(skipping)[2]):
        assert (arm.skip, arm.shadow) == (None, False)
    assert triplet(skipping)[1].skip == "periodic"


def test_plain_decoding_drafts_nothing_in_the_same_batch():
    plain = plain_of(RELAXED)
    assert (plain.drafter, plain.gamma, plain.policy, plain.batch_size) == (None, 0, "strict", 2)


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "../x"},
        {"name": ""},
        {"name": "a", "gamma": -1},
        {"name": "a", "batch_size": 0},
        {"name": "a", "budget": 3},
    ],
)
def test_an_arm_that_cannot_be_is_refused(settings):
    with pytest.raises(ValidationError):
        Arm(**settings)


def test_settings_read_back_and_refuse_what_they_do_not_know():
    for settings in (FixedWork(), NaturalEos(stop=("\n\n",), temperature=0.7)):
        assert type(settings).model_validate_json(settings.model_dump_json()) == settings
        with pytest.raises(ValidationError, match="extra"):
            type(settings)(max_minutes=3)
