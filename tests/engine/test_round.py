import math

import pytest
import torch

from lenity.engine.decode import Decoder
from lenity.errors import ShapeError
from lenity.policies import policy
from lenity.requests import GenerationSettings, Request
from lenity.sampling import Sampling, probabilities
from lenity.types import Draft, TokenKind
from tests.engine.drive import DrawingDrafter, generate
from tests.engine.text import Pieces
from tests.toys import ScriptedDrafter, ScriptedSession, TableModel, cycle_model

FREE = "asd:budget=inf,gate=inf,block_cap=none"
SIZE = 8


def runner_up(ids, limit):
    """Drafts the second choice of a cycle model of 16, again and again."""
    return [(ids[-1] + 2 * (1 + i)) % 16 for i in range(limit)]


def decoder(script=runner_up, rule=FREE, **kwargs):
    return Decoder(
        target=cycle_model(16, **kwargs), drafter=ScriptedDrafter(script=script), policy=rule
    )


# ------------------------------------------------------------------ special ids and ended phases


@pytest.mark.parametrize(
    ("rule", "expected"),
    # special are 4, drafted second and then the choice, and 9, the choice where 10 is drafted
    [(FREE, (2, 3, 4, 6, 8, 9)), (f"{FREE},relax_special=true", (2, 4, 6, 8, 10, 11))],
)
def test_special_ids_are_neither_relaxed_nor_relaxed_away(rule, expected):
    tokenizer = Pieces([bytes([65 + i]) for i in range(16)], special_ids=frozenset({4, 9}))
    out = generate(decoder(rule=rule, tokenizer=tokenizer), [0], gamma=5, max_new_tokens=6)
    assert out.token_ids == expected


def test_a_special_id_that_is_the_targets_choice_passes_all_the_same():
    tokenizer = Pieces([bytes([65 + i]) for i in range(16)], special_ids=frozenset(range(16)))
    right = decoder(lambda ids, n: [(ids[-1] + 1 + i) % 16 for i in range(n)], tokenizer=tokenizer)
    out = generate(right, [0], gamma=5, max_new_tokens=6)
    assert out.rounds[0].accepted == 5


@pytest.mark.parametrize("gamma", [1, 2, 3, 5, 8])
def test_a_relaxed_phase_ends_with_its_token_inside_a_draft_too(gamma):
    free = generate(decoder(), [0], gamma=gamma, max_new_tokens=12)
    relaxed = [t.token_id for t in free.receipt if t.kind is TokenKind.RELAXED]
    out = generate(decoder(), [0], gamma=gamma, max_new_tokens=12, strict_after=(relaxed[1],))
    at = out.token_ids.index(relaxed[1])
    assert out.token_ids[: at + 1] == free.token_ids[: at + 1]
    assert out.num_relaxed == 2 < free.num_relaxed
    assert out.token_ids[at:] == tuple((relaxed[1] + i) % 16 for i in range(12 - at))


def test_a_phase_token_that_was_only_drafted_ends_nothing():
    # 3 nats off and gated, so rejected; relaxation goes on in the next round
    def script(ids, limit):
        return [(ids[-1] + 2) % 16, 15, 15][:limit]

    rule = "asd:budget=inf,gate=1,block_cap=none"
    out = generate(decoder(script, rule), [0], gamma=3, max_new_tokens=8, strict_after=(15,))
    assert [t.kind for t in out.receipt].count(TokenKind.RELAXED) > 2


# ------------------------------------------------------------------------- many rules in one round


def test_rows_of_one_batch_follow_rules_of_their_own():
    rules = ["strict", FREE, "asd:budget=0.5,gate=inf,block_cap=none", "top_k:k=2", "strict", FREE]
    asked = [Request(prompt=[i], policy=rule) for i, rule in enumerate(rules)]
    outs = generate(decoder(rule="strict"), asked, gamma=3, max_new_tokens=4)
    assert [out.num_relaxed for out in outs] == [0, 3, 1, 3, 0, 3]
    assert [out.regret_spent for out in outs] == [0, 1.5, 0.5, 1.5, 0, 1.5]
    assert [out.token_ids[0] - i for i, out in enumerate(outs)] == [1, 2, 2, 2, 1, 2]
    assert [out.effective_policy for out in outs] == [policy(rule).spec for rule in rules]


# --------------------------------------------------------------------------------- the sampling law


WARM = Sampling(temperature=1.3)


def model_and_laws(sampling=WARM):
    generator = torch.Generator().manual_seed(1)
    table = torch.randn(SIZE, SIZE, generator=generator)
    own = torch.randn(SIZE, SIZE, generator=generator).softmax(-1)
    return TableModel(table), probabilities(table, sampling).double(), own


def excess(observed, law):
    """Return how many standard deviations chi-squared lies above its mean; a law per row."""
    expected = law * observed.sum(-1, keepdim=True)
    is_possible = expected > 0
    assert not observed[~is_possible].any(), "a token of probability 0"
    parts = (observed - expected)[is_possible] ** 2 / expected[is_possible]
    freedom = int(is_possible.sum()) - len(law)
    return float(parts.sum() - freedom) / math.sqrt(2 * freedom)


def transitions(model, drafter, total, sampling):
    """Count (position in the round, token before, token) over ``total`` tokens of 16 requests."""
    out = Decoder(target=model, drafter=drafter, max_batch_size=16).generate(
        [[0]] * 16, seed=10**6, gamma=2, max_new_tokens=total // 16, **sampling.model_dump()
    )
    counts = torch.zeros(3, SIZE, SIZE, dtype=torch.float64)
    for generation in out:
        last, tokens = 0, iter(generation.token_ids)
        for record in generation.rounds:
            for position in range(record.emitted):
                token = next(tokens)
                counts[position, last, token] += 1
                last = token
    return counts, out


@pytest.mark.parametrize(
    ("sampling", "total"),
    [
        (WARM, 3_000),
        pytest.param(WARM, 60_000, marks=pytest.mark.slow),
        pytest.param(Sampling(temperature=0.8, top_k=5), 60_000, marks=pytest.mark.slow),
        pytest.param(Sampling(temperature=2, top_p=0.8), 60_000, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_law_of_every_position_is_the_targets_own(sampling, total):
    """Given the token before, the n-th token of a round is the target's, kept or drawn anew."""
    model, law, own = model_and_laws(sampling)
    drafter = DrawingDrafter(own=own, reported=own)
    counts, outs = transitions(model, drafter, total, sampling)
    for position in range(3):
        assert counts[position].sum() > total / 20
        assert excess(counts[position], law) < 5
    # and it was speculation that was tested: x is kept with probability sum of min(p, q)
    starts = counts[0].sum(-1)
    rate = float((starts * torch.minimum(law, own.double()).sum(-1)).sum() / starts.sum())
    kept = sum(r.accepted > 0 for out in outs for r in out.rounds if r.drafted)
    drafted = sum(r.drafted > 0 for out in outs for r in out.rounds)
    assert abs(kept / drafted - rate) < 5 * math.sqrt(rate * (1 - rate) / drafted)


def test_a_drafter_that_reports_another_law_is_found_out():
    """The negative control: the bound above can be missed."""
    model, law, own = model_and_laws()
    wrong = DrawingDrafter(own=own, reported=torch.full((SIZE, SIZE), 1 / SIZE))
    counts, _ = transitions(model, wrong, 1_200, WARM)
    assert excess(counts[0], law) > 10


def test_greedy_and_sampled_rows_share_a_round():
    model, _, own = model_and_laws()
    drafter = DrawingDrafter(own=own, reported=own)
    greedy = Request(prompt=[0], settings=GenerationSettings(max_new_tokens=6, gamma=3))
    warm = Request(
        prompt=[0],
        settings=GenerationSettings(max_new_tokens=6, gamma=3, temperature=1.0, seed=9),
    )
    outs = generate(Decoder(target=model, drafter=drafter), [greedy, warm, greedy])
    last, expected = 0, []
    for _ in range(6):
        last = int(model.table[last].argmax())
        expected.append(last)
    assert outs[0].token_ids == outs[2].token_ids == tuple(expected)
    assert outs[1].token_ids != tuple(expected)


def test_warm_rows_of_one_rule_have_laws_of_their_own():
    model, _, own = model_and_laws()
    decoder = Decoder(target=model, drafter=DrawingDrafter(own=own, reported=own))
    base = {"max_new_tokens": 16, "gamma": 2, "seed": 5}
    asked = [
        Request(prompt=[0], settings=GenerationSettings(**base, **filters))
        for filters in ({"temperature": 4.0}, {"temperature": 1.0, "top_k": 1})
    ]
    hot, cold = generate(decoder, asked)
    choices = [int(model.table[last].argmax()) for last in (0, *cold.token_ids[:-1])]
    assert list(cold.token_ids) == choices
    assert hot.token_ids != cold.token_ids
    assert [out.token_ids for out in generate(decoder, asked[::-1])] == [
        cold.token_ids,
        hot.token_ids,
    ]


def test_a_drafter_that_ignores_its_limits_is_refused():
    class Greedy(ScriptedSession):
        def propose(self, context):
            return Draft(
                token_ids=torch.zeros(1, context.gamma + 1, dtype=torch.int64),
                lengths=torch.tensor([context.gamma + 1]),
            )

    class GreedyDrafter(ScriptedDrafter):
        def open(self, target, cache):
            return Greedy(self.script)

    decoder = Decoder(target=cycle_model(), drafter=GreedyDrafter(script=lambda ids, limit: []))
    with pytest.raises(ShapeError, match="at most 3 tokens"):
        decoder.generate([1], gamma=3, max_new_tokens=8)


@pytest.mark.parametrize("lengths", [[3, 2], [4, 1], [-1, 1]])
def test_a_draft_longer_than_its_own_rows_limit_is_refused(lengths):
    class Careless(ScriptedSession):
        def propose(self, context):
            assert context.limits == [3, 1]
            return Draft(
                token_ids=torch.ones(2, 3, dtype=torch.int64), lengths=torch.tensor(lengths)
            )

    class CarelessDrafter(ScriptedDrafter):
        def open(self, target, cache):
            return Careless(self.script)

    own = GenerationSettings(gamma=1, max_new_tokens=8)
    asked = [Request(prompt=[1]), Request(prompt=[2], name="short", settings=own)]
    decoder = Decoder(target=cycle_model(), drafter=CarelessDrafter(script=runner_up))
    limit, name, got = (1, "short", 2) if lengths[1] > 1 else (3, "0", lengths[0])
    with pytest.raises(ShapeError, match=rf"0 to {limit} draft .* request {name}, .*got {got}\."):
        decoder.generate(asked, gamma=3, max_new_tokens=8)


def test_a_phase_that_ended_in_the_prompt_ended_nothing():
    """A chat's history holds the ends of former turns."""
    for prompt in ([15, 0], [15, 3, 15, 0]):
        free = generate(decoder(), prompt, gamma=3, max_new_tokens=6)
        out = generate(decoder(), prompt, gamma=3, max_new_tokens=6, strict_after=(15,))
        assert out.token_ids == free.token_ids
        assert out.num_relaxed == 4
