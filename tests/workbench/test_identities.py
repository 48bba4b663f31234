import pytest

from lenity.errors import ProtocolError
from lenity.workbench.identities import check_identities
from lenity.workbench.records import UNITS_PER_NAT, RelaxedToken
from tests.workbench.handmade import a_round, request

GOOD = request(("axr", 4), ("aaaab", 4), ("sss", 3), ("p", 0), ("aa", 4), logprobs=(-1.0,) * 14)


def test_what_adds_up_passes():
    check_identities(GOOD)
    check_identities(GOOD.model_copy(update={"logprobs": ()}))
    check_identities(request())


FIRST = GOOD.rounds[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"token_ids": (1, 2)}, "emitted = token ids, got 14 and 2"),
        ({"kinds": GOOD.kinds[1:]}, "kinds = token ids"),
        ({"kinds": "r" + GOOD.kinds[1:]}, "accepted = kinds a \\+ x"),
        ({"kinds": "xa" + GOOD.kinds[2:]}, "ledger entries at kinds x, got \\[1\\] and \\[0\\]"),
        ({"kinds": "aa" + GOOD.kinds[2:], "relaxed": ()}, "relaxed = kinds x, got 1 and 0"),
        ({"kinds": GOOD.kinds.replace("s", "r")}, "skipped = kinds s"),
        ({"kinds": GOOD.kinds.replace("b", "z")}, "known kinds only"),
        ({"logprobs": (-1.0,)}, "a log-probability for each token"),
        ({"relaxed": (RelaxedToken(position=1, regret=9.0),)}, "charged regret = ledger entries"),
    ],
)
def test_what_does_not_add_up_is_refused(changes, words):
    with pytest.raises(ProtocolError, match=words):
        check_identities(GOOD.model_copy(update=changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluated": 1},
        {"relaxed": 3},
        {"drafted": 3},
        {"target_passes": 0},
        {"accepted": 0, "relaxed": 0},
    ],
)
def test_a_round_out_of_order_is_refused(changes):
    rounds = (FIRST.model_copy(update=changes), *GOOD.rounds[1:])
    with pytest.raises(ProtocolError, match="toy@1 1: expected ordered counters in round 0"):
        check_identities(GOOD.model_copy(update={"rounds": rounds}))


def test_a_mask_sum_in_place_of_a_prefix_is_refused():
    # drafts 1 and 3 of 4 match, 2 does not: one is accepted; a mask counts two
    wrong = request(a_round("ar", 4, accepted=2), token_ids=(5, 6), kinds="ar")
    with pytest.raises(ProtocolError, match=r"accepted = kinds a \+ x, got 2 and 1"):
        check_identities(wrong)


def test_only_skipped_tokens_may_be_charged_without_an_entry():
    debt = a_round("ar", 2, regret_units=UNITS_PER_NAT)
    with pytest.raises(ProtocolError, match="charged regret"):
        check_identities(request(debt, token_ids=(1, 2), kinds="ar"))
    skipped = request(a_round("ss", 2), debt, token_ids=(1, 2, 3, 4), kinds="ssar")
    check_identities(skipped)
