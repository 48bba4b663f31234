"""Budget and phase belong to a request, not to the slot it happens to sit in.

Seen in TRT-LLM#12063, LightLLM#1555 and vllm#36138: relaxed
acceptance broke with more than one row, a slot handed its state to the next request, and a phase
that ended inside a block went on to its end.
"""

import pytest

from lenity.engine.decode import Decoder
from lenity.policies import policy
from lenity.requests import GenerationSettings, Request
from tests.cases.rig import (
    PROMPTS,
    check_accounts,
    follow,
    plain,
    reference,
    runner_up,
    scripted,
    target,
)
from tests.toys import ScriptedDrafter, anti_oracle, cycle_model

GAMMA, COUNT = 5, 24
OPEN = "gate=inf,block_cap=none"
STEP = 0.5
"""Nats the cycle model's runner-up costs."""


def skip_by_two(ids, limit):
    """The cycle model's runner-up, again and again."""
    return [(ids[-1] + 2 * (i + 1)) % 16 for i in range(limit)]


def requests_of(*rules, prompt=(0,), **changes):
    settings = GenerationSettings(**{"max_new_tokens": COUNT, "gamma": GAMMA, **changes})
    return [Request(prompt=list(prompt), policy=rule, settings=settings) for rule in rules]


@pytest.mark.parametrize("batch_size", [1, 2, 6])
def test_every_row_spends_its_own_budget_to_the_end(batch_size):
    """Slots are used again by later requests; each starts with a full budget."""
    budgets = [0, 1.2, 3, 0.5, 0, 1.7, 3, 0.49]
    requests = requests_of(*(f"asd:budget={b},{OPEN}" for b in budgets))
    decoder = Decoder(
        target=cycle_model(), drafter=ScriptedDrafter(script=skip_by_two), max_batch_size=batch_size
    )
    for budget, result in zip(budgets, decoder.generate(requests), strict=True):
        relaxed = int(budget / STEP)
        assert result.num_relaxed == relaxed
        assert result.regret_spent == relaxed * STEP
        # every relaxed token skips one of the cycle
        steps = [b - a for a, b in zip((0, *result.token_ids), result.token_ids, strict=False)]
        assert sum(step % 16 for step in steps) == COUNT + relaxed
        check_accounts(result)


def test_rows_of_a_real_model_are_as_they_would_be_alone():
    """Budget 0 is strict; each other row is what it is without batch-mates."""
    known, rules = reference(), ["strict"]
    rules += [f"asd:budget={b},{OPEN}" for b in (0, 1, "inf")]
    rules += ["priced:budget=2,price=0", "top_k:k=2", "asd:budget=0", "lenience:ratio=0.5"]
    settings = GenerationSettings(max_new_tokens=COUNT, gamma=GAMMA)
    requests = [
        Request(prompt=prompt, policy=rule, settings=settings)
        for rule, prompt in zip(rules, PROMPTS * 2, strict=True)
    ]
    drafter = scripted(runner_up(known))
    decoder = Decoder(target=target(), drafter=drafter, max_batch_size=3)
    for request, result in zip(requests, decoder.generate(requests), strict=True):
        alone = Decoder(target=target(), drafter=drafter).generate(request)
        assert result.token_ids == alone.token_ids
        assert [t.regret for t in result.receipt] == pytest.approx(
            [t.regret for t in alone.receipt], abs=1e-5
        )
        assert (result.requested_policy, result.effective_policy) == (
            policy(request.policy).spec,
        ) * 2
        if request.policy in ("strict", f"asd:budget=0,{OPEN}", "asd:budget=0"):
            (strict,) = plain(target(), [request.prompt], max_new_tokens=COUNT)
            assert result.token_ids == strict.token_ids
        check_accounts(result)


FREE = f"asd:budget=inf,{OPEN}"


@pytest.mark.parametrize(
    "rule", [FREE, "top_k:k=2", "priced:budget=inf,price=0", "lenience:ratio=0.5"]
)
@pytest.mark.parametrize("end", [2, 6, 10])
def test_relaxation_ends_inside_the_block_that_ends_the_phase(rule, end):
    """The end id is the 1st, 3rd or 5th token of the block; what stands behind it is strict.

    The end id is drafted as a relaxed token here, and kept: it is what ends the phase.
    """
    (request,) = requests_of(rule, strict_after=(end,))
    result = Decoder(target=cycle_model(), drafter=ScriptedDrafter(script=skip_by_two)).generate(
        [request]
    )[0]
    at = end // 2
    assert list(result.token_ids[:at]) == list(range(2, end + 1, 2))
    behind = result.token_ids[at:]
    assert list(behind) == [(end + 1 + i) % 16 for i in range(COUNT - at)]
    assert [t.kind == "relaxed" for t in result.receipt] == [i < at for i in range(COUNT)]


def test_the_end_of_a_phase_may_also_be_the_targets_own_token():
    """As a matching draft token mid-block, and as the token after a rejected draft."""
    script = {"mid-block": lambda ids, limit: [1, 3, 4, 6, 8][:limit], "recovered": None}

    def rejected(ids, limit):
        return anti_oracle(cycle_model())(ids, limit) if len(ids) == 1 else skip_by_two(ids, limit)

    script["recovered"] = rejected
    for name, end in (("mid-block", 4), ("recovered", 1)):
        (request,) = requests_of("top_k:k=2", strict_after=(end,))
        decoder = Decoder(target=cycle_model(), drafter=ScriptedDrafter(script=script[name]))
        (result,) = decoder.generate([request])
        at = result.token_ids.index(end) + 1
        kinds = [t.kind for t in result.receipt]
        assert "relaxed" not in kinds[at:]
        expected = [(end + 1 + i) % 16 for i in range(COUNT - at)]
        assert list(result.token_ids[at:]) == expected
        if name == "mid-block":
            assert kinds[:3] == ["accepted", "relaxed", "accepted"]
        (free,) = decoder.generate(requests_of("top_k:k=2"))
        assert "relaxed" in [t.kind for t in free.receipt][at:]


@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_reused_slot_starts_in_the_first_phase(batch_size):
    """Rows with and without a phase that ends, one after the other in the same slots."""
    ends = [(6,), (), (2,), (), (6,)]
    requests = [requests_of(FREE, strict_after=end)[0] for end in ends]
    decoder = Decoder(
        target=cycle_model(), drafter=ScriptedDrafter(script=skip_by_two), max_batch_size=batch_size
    )
    for end, result in zip(ends, decoder.generate(requests), strict=True):
        relaxed = [t.kind == "relaxed" for t in result.receipt]
        if end:
            assert sum(relaxed) == end[0] // 2
        else:
            assert relaxed[-2]
            assert sum(relaxed) == COUNT - len(result.rounds)


def test_real_rows_that_end_their_phase_do_not_end_another():
    known = reference()
    drafter = scripted(runner_up(known))
    paths = [follow(prompt, [1] * GAMMA, known) for prompt in PROMPTS]
    requests = [
        Request(
            prompt=prompt,
            policy=FREE,
            settings=GenerationSettings(
                max_new_tokens=COUNT, gamma=GAMMA, strict_after=(path[2],) if i % 2 else ()
            ),
        )
        for i, (prompt, path) in enumerate(zip(PROMPTS, paths, strict=True))
    ]
    results = Decoder(target=target(), drafter=drafter, max_batch_size=4).generate(requests)
    for i, (path, result) in enumerate(zip(paths, results, strict=True)):
        if i % 2:
            at = path.index(path[2]) + 1
            assert list(result.token_ids[:at]) == path[:at]
            prefix = [*PROMPTS[i], *path[:at]]
            assert list(result.token_ids[at:]) == known.greedy(prefix, COUNT - at)
        else:
            assert list(result.token_ids[:GAMMA]) == path
            assert result.num_relaxed > 2 * GAMMA


def test_what_a_row_may_not_relax_moves_with_it():
    """The first row ends after two tokens; the second keeps the ids that end it, and only those."""
    (short,) = requests_of(FREE, prompt=(0,), max_new_tokens=2, stop_token_ids=(12,))
    (guarded,) = requests_of(FREE, prompt=(1,), stop_token_ids=(9,))
    decoder = Decoder(
        target=cycle_model(), drafter=ScriptedDrafter(script=skip_by_two), max_batch_size=2
    )
    _, result = decoder.generate([short, guarded])
    # from 1 by twos up to 7; the step into 9 is forbidden, so 8 comes from the target
    assert list(result.token_ids[:4]) == [3, 5, 7, 8]
    (alone,) = decoder.generate([guarded])
    assert result.token_ids == alone.token_ids
    assert result.finish_reason == alone.finish_reason
