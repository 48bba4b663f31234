"""Nothing behind the first token that fails is kept, however right it looks.

Seen in Mesh-LLM#567 (matches rescued behind a mismatch), HF#48636
(the first infeasible position stops) and vllm#50808 (a window that must fit): tokens
behind a rejected one were conditioned on it, so their agreement says nothing.
"""

import pytest

from lenity.engine.decode import Decoder
from lenity.policies import POLICIES, policy
from tests.cases.rig import (
    PROMPTS,
    VARIANTS,
    check_accounts,
    follow,
    mistaken,
    reference,
    scripted,
    target,
)

GAMMA, COUNT, WRONG = 5, 18, 2

TIGHT = {
    "asd": [
        "asd:budget=1e-5,gate=inf,block_cap=none",
        "asd:budget=inf,gate=1e-6,block_cap=none",
        "asd:budget=inf,gate=inf,block_cap=0",
    ],
    "fuzzy": ["fuzzy:divergence=js,threshold=1e-6", "fuzzy:divergence=tv,threshold=1e-6"],
    "lenience": ["lenience:ratio=0.999999"],
    "margin": ["margin:ratio=1e-6"],
    "priced": [
        "priced:budget=1e-5,price=0",
        "priced:budget=inf,price=0,block_cap=0",
        "priced:budget=inf,price=1e6",
        "priced:budget=inf,price=0,gate=1e-6",
    ],
    "strict": ["strict"],
    "top_k": ["top_k:k=2"],
}
"""Rules for which the worst token is out of reach."""
OPEN = {
    "asd": "asd:budget=inf,gate=inf,block_cap=none",
    "fuzzy": "fuzzy:divergence=js,threshold=0.7",
    "lenience": "lenience:ratio=1e-300",
    "priced": "priced:budget=inf,price=0",
    "top_k": "top_k:k=128",
}
"""Rules for which it is not: the control."""
NEVER = {"margin"}
"""Rules that no knob opens so far: at most the second best passes."""


def test_every_rule_is_here():
    missing = set(POLICIES.names()) - set(TIGHT)
    assert not missing, f"add knobs that reject a bad token to TIGHT (and OPEN): {missing}"
    for name in POLICIES.names():
        assert name in NEVER or name in OPEN or policy(name).is_strict, f"add {name} to OPEN"


@pytest.mark.parametrize("rule", [rule for rules in TIGHT.values() for rule in rules])
def test_matches_behind_a_mistake_are_dropped(rule):
    """The draft is wrong at position 2; behind it stands the argmax given the draft itself."""
    known, script = reference(), mistaken(reference(), WRONG)
    for prompt in PROMPTS:
        draft = script(prompt, GAMMA)
        assert draft[WRONG + 1] == known.rank([*prompt, *draft[: WRONG + 1]], 0)
        result = Decoder(target=target(), drafter=scripted(script), policy=rule).generate(
            prompt, max_new_tokens=COUNT, gamma=GAMMA
        )
        # every round keeps two, then commits the argmax given what is committed
        assert list(result.token_ids) == known.greedy(prompt, COUNT)
        assert [r.accepted for r in result.rounds if r.drafted > WRONG] == [WRONG] * 5
        assert [t.kind for t in result.receipt[:3]] == ["accepted", "accepted", "recovered"]
        assert result.num_relaxed == 0
        check_accounts(result)


@pytest.mark.parametrize("rule", OPEN.values())
def test_control_an_open_rule_keeps_mistake_and_matches(rule):
    known, script = reference(), mistaken(reference(), WRONG)
    prompt = PROMPTS[1]
    result = Decoder(target=target(), drafter=scripted(script), policy=rule).generate(
        prompt, max_new_tokens=COUNT, gamma=GAMMA
    )
    draft = script(prompt, GAMMA)
    bonus = known.rank([*prompt, *draft], 0)
    assert list(result.token_ids[: GAMMA + 1]) == [*draft, bonus]
    kinds = [t.kind for t in result.receipt[: GAMMA + 1]]
    assert kinds == ["accepted", "accepted", "relaxed", "accepted", "accepted", "bonus"]


@pytest.mark.parametrize(("family", "attn"), [v for v in VARIANTS if v[1] == "eager"])
def test_the_next_token_follows_the_committed_prefix(family, attn):
    """Position 0 is relaxed, position 2 infeasible: the argmax after both kept tokens is next."""
    known = reference(family, attn)

    def script(ids, limit):
        return follow(ids, [1, 0, -1, 0, 0][:limit], known)

    for rule in ("asd:budget=inf,gate=inf,block_cap=1", "top_k:k=2"):
        decoder = Decoder(target=target(family, attn), drafter=scripted(script), policy=rule)
        for prompt in PROMPTS[:3]:
            result = decoder.generate(prompt, max_new_tokens=COUNT, gamma=GAMMA)
            ids, at = list(prompt), 0
            for record in result.rounds:
                kept = script(ids, min(GAMMA, COUNT - at - 1))[:WRONG]
                kept.append(known.rank([*ids, *kept], 0))
                assert list(result.token_ids[at : at + record.emitted]) == kept
                ids, at = ids + kept, at + len(kept)
            assert at == COUNT
            check_accounts(result)
