import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

import lenity
from lenity.engine.decode import Decoder
from lenity.errors import ConfigError, NonFiniteError, RegistryError
from lenity.policies import policy
from lenity.processors import MinNewTokens, RepetitionPenalty, walk
from lenity.requests import GenerationSettings, Request
from lenity.types import FinishReason, TokenKind
from tests.engine.drive import DrawingDrafter, essence, generate, table_script
from tests.engine.text import byte_tokenizer
from tests.toys import (
    CountingCache,
    ScriptedDrafter,
    ScriptedSession,
    TableModel,
    anti_oracle,
    cycle_model,
    oracle,
    pattern,
)

FREE = "asd:budget=inf,gate=inf,block_cap=none,relax_special=true"
RELAXED = [policy(s) for s in (FREE, "asd", "lenience:ratio=0.01", "top_k:k=4", "priced:price=0")]


def expected_rounds(budget, gamma, right):
    """The emitted counts when ``right`` tokens of every draft are: min(right, limit) + 1."""
    out = []
    while budget:
        limit = min(gamma, budget - 1)
        out.append(min(right, limit) + 1)
        budget -= out[-1]
    return out


@pytest.mark.parametrize("gamma", range(7))
def test_exact_counts_for_every_budget_and_gamma(gamma):
    model = cycle_model(32)
    budgets = range(1, 2 * gamma + 4)
    asked = [
        Request(prompt=[0], settings=GenerationSettings(gamma=gamma, max_new_tokens=budget))
        for budget in budgets
    ]
    for right in {0, 1, gamma // 2, gamma}:
        drafter = ScriptedDrafter(script=pattern(model, right))
        decoder = Decoder(target=model, drafter=drafter, max_batch_size=4)
        for budget, out in zip(budgets, generate(decoder, asked), strict=True):
            assert out.token_ids == tuple(range(1, budget + 1))
            assert out.finish_reason is FinishReason.LENGTH
            expected = expected_rounds(budget, gamma, right)
            assert [r.emitted for r in out.rounds] == expected
            assert out.num_target_passes == len(expected)
            assert out.tokens_per_target_pass == budget / len(expected)


def test_oracle_and_anti_oracle_are_the_two_ends():
    model = cycle_model(16)
    best = generate(
        Decoder(target=model, drafter=ScriptedDrafter(script=oracle(model))),
        [0],
        gamma=3,
        max_new_tokens=12,
    )
    assert (best.acceptance_rate, best.tokens_per_round) == (1.0, 4.0)
    assert [t.kind for t in best.receipt[:4]] == [TokenKind.ACCEPTED] * 3 + [TokenKind.BONUS]
    worst = generate(
        Decoder(target=model, drafter=ScriptedDrafter(script=anti_oracle(model))),
        [0],
        gamma=3,
        max_new_tokens=12,
    )
    assert (worst.acceptance_rate, worst.tokens_per_round) == (0.0, 1.0)
    assert {t.kind for t in worst.receipt[:-1]} == {TokenKind.RECOVERED}
    assert worst.receipt[-1].kind is TokenKind.PLAIN  # no room for a draft
    assert worst.token_ids == best.token_ids


def test_an_alternating_pattern_keeps_the_cache_right():
    model = cycle_model(16)
    drafter = ScriptedDrafter(script=pattern(model, 0, 4, 1, 3, 2))
    out = generate(Decoder(target=model, drafter=drafter), [0], gamma=4, max_new_tokens=40)
    assert [r.accepted for r in out.rounds[:10]] == [0, 4, 1, 3, 2] * 2
    assert out.token_ids == tuple(i % 16 for i in range(1, 41))


# ------------------------------------------------------------------ strict is plain, limits are too

SIZE = 5
rows = st.lists(st.integers(-2, 2).map(float), min_size=SIZE, max_size=SIZE)
tables = st.lists(rows, min_size=SIZE, max_size=SIZE)
ids = st.integers(0, SIZE - 1)
scripts = st.builds(
    table_script,
    st.lists(ids, min_size=SIZE, max_size=SIZE),
    st.lists(st.integers(0, 6), min_size=SIZE, max_size=SIZE),
)
LIMITS = [policy("strict"), *(rule.strict_limit() for rule in RELAXED)]


@given(tables, scripts, st.lists(ids, min_size=1, max_size=4), st.sets(ids, max_size=1))
@settings(max_examples=6)
def test_strict_and_every_strict_limit_equal_plain_for_every_gamma(table, script, prompt, eos):
    model = TableModel(torch.tensor(table), eos=tuple(eos))
    asked = {"max_new_tokens": 8, "frequency_penalty": 0.5, "min_new_tokens": 2}
    plain = generate(Decoder(target=model), prompt, **asked)
    assert {t.kind for t in plain.receipt} == {TokenKind.PLAIN}
    drafter = ScriptedDrafter(script=script)
    batch = [
        Request(prompt=prompt, policy=rule, settings=GenerationSettings(**asked, gamma=gamma))
        for rule in LIMITS
        for gamma in (0, 1, 2, 3, 6)
    ]
    decoder = Decoder(target=model, drafter=drafter, max_batch_size=len(batch))
    for out in generate(decoder, batch):
        assert out.token_ids == plain.token_ids
        assert out.finish_reason == plain.finish_reason
        assert out.processor_states == plain.processor_states
        assert (out.num_relaxed, out.regret_spent) == (0, 0.0)
        assert out.logprobs == pytest.approx(plain.logprobs, abs=1e-5)


def test_a_tie_with_another_id_is_not_strict():
    model = TableModel(torch.zeros(4, 4))  # all tie; the first id is the choice
    drafter = ScriptedDrafter(script=lambda ids, limit: [2] * limit)
    for rule in LIMITS:
        out = generate(Decoder(target=model, drafter=drafter, policy=rule), [1], max_new_tokens=5)
        assert out.token_ids == (0,) * 5
    free = generate(Decoder(target=model, drafter=drafter, policy=FREE), [1], max_new_tokens=5)
    assert free.token_ids[:4] == (2,) * 4
    assert (free.num_relaxed, free.regret_spent) == (4, 0.0)  # relaxed, and free of charge


def test_strict_relaxed_strict_leaves_no_trace():
    model = cycle_model(16)
    drafter = ScriptedDrafter(script=lambda ids, limit: [(ids[-1] + 2) % 16] * limit)
    decoder = Decoder(target=model, drafter=drafter, policy="asd:budget=1,gate=inf,block_cap=1")
    first = generate(decoder, Request(prompt=[0], policy="strict"), max_new_tokens=9)
    relaxed = [generate(decoder, [0], max_new_tokens=9) for _ in range(2)]
    last = generate(decoder, Request(prompt=[0], policy="strict"), max_new_tokens=9)
    assert essence(first) == essence(last)
    assert essence(relaxed[0]) == essence(relaxed[1])  # the budget begins anew
    assert relaxed[0].regret_spent == 1.0
    assert (first.effective_policy, relaxed[0].requested_policy) == ("strict", decoder.policy.spec)


# ------------------------------------------------------------------------------------- the context


@pytest.mark.parametrize("gamma", range(7))
@pytest.mark.parametrize("limit", [2, 3, 7, 8])
def test_the_context_is_filled_exactly(gamma, limit):
    model = cycle_model(16, max_positions=limit)
    widest = []
    run = model.hidden_states

    def recorded(token_ids, cache, **kwargs):
        widest.extend(length + token_ids.shape[1] for length in cache.lengths)
        return run(token_ids, cache, **kwargs)

    model.hidden_states = recorded
    drafter = ScriptedDrafter(script=oracle(model))
    out = generate(
        Decoder(target=model, drafter=drafter), [0], gamma=gamma, max_new_tokens=limit + 5
    )
    assert len(out.token_ids) == limit - 1
    assert out.finish_reason is FinishReason.CONTEXT
    assert max(widest) <= limit - 1  # nothing is computed that there is no room for
    exact = generate(Decoder(target=model, drafter=drafter), [0], max_new_tokens=limit - 1)
    assert exact.finish_reason is FinishReason.LENGTH


# ---------------------------------------------------------------------------------- what is refused


def test_parts_that_do_not_exist_are_refused():
    model = cycle_model()
    with pytest.raises(RegistryError, match="strict"):
        Decoder(target=model, policy="strickt")
    with pytest.raises(RegistryError, match="ngram"):
        Decoder(target=model, drafter="n-gram")
    with pytest.raises(ConfigError, match="budget"):
        Decoder(target=model, policy="asd:budget=-1")
    for knob in ("max_batch_size", "max_logits_bytes"):
        with pytest.raises(ConfigError, match=knob):
            Decoder(target=model, **{knob: 0})


def test_a_drafter_is_opened_when_the_decoder_is_made():
    class Refusing(ScriptedDrafter):
        def open(self, target, cache):
            raise ConfigError("not for this target")

    with pytest.raises(ConfigError, match="not for this"):
        Decoder(target=cycle_model(), drafter=Refusing(script=lambda ids, limit: []))


def test_nothing_runs_when_one_request_cannot():
    model = cycle_model(8)
    with pytest.raises(ConfigError, match=r"Request 1: prompt: .* got 9"):
        Decoder(target=model).generate([[1], [9]])
    assert model.num_forwards == 0


@pytest.mark.parametrize("name", ["none", "plain", None])
def test_plain_has_no_drafter(name):
    out = generate(Decoder(target=cycle_model(), drafter=name), [0], max_new_tokens=3, gamma=5)
    assert (out.drafter, out.gamma) == ("none", 0)
    assert [r.drafted for r in out.rounds] == [0, 0, 0]


def test_a_registered_drafter_by_name():
    model = cycle_model(4)
    decoder = lenity.Decoder(target=model, drafter="ngram:min_match=1")
    out = generate(decoder, [0], max_new_tokens=20, gamma=3)
    assert out.token_ids == generate(Decoder(target=model), [0], max_new_tokens=20).token_ids
    assert out.drafter == "ngram:min_match=1"
    assert out.acceptance_rate > 0.9


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_broken_logits_are_refused_with_request_and_position(bad, temperature):
    model = cycle_model(8)
    model.table[4] = bad
    decoder = Decoder(target=model, drafter=ScriptedDrafter(script=oracle(cycle_model(8))))
    asked = [Request(prompt=[7], name="fine"), Request(prompt=[2], name="ill")]
    if temperature:
        model.table[:4] *= 100  # leave nothing to chance
    base = GenerationSettings(gamma=3, max_new_tokens=6, temperature=temperature)
    rows = decoder._sequences(asked, base)
    with pytest.raises(NonFiniteError, match="request ill at block position 2"):
        list(decoder._rounds(rows, {}))
    assert [row.commits for row in rows] == [[], []]  # nothing of the round is committed
    assert [row.token_ids for row in rows] == [[7], [2]]


@pytest.mark.parametrize("bits", [0x7FC0, 0xFFC0])
@pytest.mark.parametrize("gamma", [0, 3])
def test_one_nan_of_either_sign_is_refused_in_bfloat16(bits, gamma):
    model = cycle_model(8)
    model.table = model.table.to(torch.bfloat16)
    model.table.view(torch.int16)[4, 0] = bits - (bits >> 15 << 16)
    decoder = Decoder(target=model, drafter=ScriptedDrafter(script=oracle(cycle_model(8))))
    with pytest.raises(NonFiniteError, match="got nan for request"):
        generate(decoder, [2], max_new_tokens=6, gamma=gamma)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [float("nan"), -float("inf")])
def test_rows_behind_a_rejected_draft_may_be_anything(bad, temperature):
    model = cycle_model(8)
    model.table *= 100
    model.table[7] = bad
    drafter = ScriptedDrafter(script=lambda ids, limit: [7] * limit)
    decoder = Decoder(target=model, drafter=drafter)
    out = generate(decoder, [0], max_new_tokens=5, temperature=temperature)
    assert out.token_ids == (1, 2, 3, 4, 5)


# ------------------------------------------------------------------------------------------- Ctrl-C


class Fuse:
    """Interrupts at the n-th tick."""

    def __init__(self, ticks):
        self.left = ticks

    def tick(self):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def burning(kind, fuse, *names):
    """Return a subclass whose methods tick before and after they run."""

    def wrap(name):
        inner = getattr(kind, name)

        def method(self, *args, **kwargs):
            fuse.tick()
            out = inner(self, *args, **kwargs)
            fuse.tick()
            return out

        return method

    return type(kind.__name__, (kind,), {name: wrap(name) for name in names})


def burning_decoder(fuse):
    """A decoder that can be interrupted wherever it calls a model, drafter or processor."""
    cache = burning(CountingCache, fuse, "commit", "append", "keep")
    model_kind = burning(TableModel, fuse, "hidden_states", "logits")
    model_kind.new_cache = lambda self, batch_size=0: cache(batch_size)
    session = burning(ScriptedSession, fuse, "admit", "propose", "observe", "keep")
    drafter_kind = type(
        "Burning", (ScriptedDrafter,), {"open": lambda self, target, cache: session(self.script)}
    )
    model = model_kind(cycle_model(256).table, tokenizer=byte_tokenizer())
    damp = burning(RepetitionPenalty, fuse, "advance", "apply")(penalty=1.01)
    decoder = Decoder(
        target=model,
        drafter=drafter_kind(script=pattern(cycle_model(256), 2, 0, 1, 3)),
        policy="asd:budget=1,gate=inf,block_cap=1",
        max_batch_size=2,
    )
    asked = {
        "gamma": 3,
        "max_new_tokens": 6,
        "processors": (MinNewTokens(count=9, ending_ids=frozenset()), damp),
        "stop": "\x0a",
    }
    return decoder, [[0], [8], [20, 21]], asked


def check_interrupted(parts, whole):
    """What is there is complete, and is the beginning of what would have been."""
    for part, full in zip(parts, whole, strict=True):
        count = len(part.token_ids)
        assert part.token_ids == full.token_ids[:count]
        assert part.token_ids == tuple(t.token_id for t in part.receipt)
        assert part.receipt == full.receipt[:count]
        assert sum(r.emitted for r in part.rounds) == count
        assert [r.emitted for r in part.rounds] == [
            r.emitted for r in full.rounds[: len(part.rounds)]
        ]
        is_complete = len(part.rounds) == len(full.rounds)
        expected = full.finish_reason if is_complete else FinishReason.INTERRUPTED
        assert part.finish_reason is expected
        assert part.text == (full.text if is_complete else "".join(map(chr, part.token_ids)))
        started = (0, frozenset(part.prompt_ids))
        damp = (RepetitionPenalty(penalty=2.0), MinNewTokens(count=1, ending_ids=frozenset()))
        assert part.processor_states == walk(damp[::-1], started, part.token_ids)[-1]


def test_an_interruption_of_any_call_leaves_complete_results():
    fuse = Fuse(0)
    decoder, prompts, asked = burning_decoder(fuse)
    whole = generate(decoder, prompts, **asked)
    assert [out.finish_reason for out in whole] == [
        FinishReason.LENGTH,
        FinishReason.STOP,
        FinishReason.LENGTH,
    ]
    total = -fuse.left
    lengths = set()
    for ticks in range(1, total, 7):
        fuse = Fuse(ticks)
        decoder, prompts, asked = burning_decoder(fuse)
        parts = decoder.generate(prompts, **asked)
        fuse.left = 0
        check_interrupted(parts, whole)
        lengths.add(tuple(len(part.token_ids) for part in parts))
    assert len(lengths) > 5  # it was interrupted in many places


class Lines:
    """A tracer that counts the lines of some functions, and interrupts before the at-th."""

    def __init__(self, at, is_ours):
        self.at, self.is_ours, self.num_seen = at, is_ours, 0
        self.has_begun = False

    def __call__(self, frame, event, arg):
        file, name = Path(frame.f_code.co_filename).name, frame.f_code.co_name
        self.has_begun |= file == "batch.py"  # the first row is on its way in
        return self._line if self.has_begun and self.is_ours(file, name) else None

    def _line(self, frame, event, arg):
        if event == "line":
            self.num_seen += 1
            if self.num_seen == self.at:
                raise KeyboardInterrupt
        return self._line


def run_traced(lines):
    decoder, prompts, asked = burning_decoder(Fuse(0))
    before = sys.gettrace()
    sys.settrace(lines)
    try:
        return decoder.generate(prompts, **asked)
    finally:
        sys.settrace(before)


STEPS = ("round.py", "record.py", "batch.py", "stopping.py", "ledger.py")


@pytest.mark.parametrize(
    ("is_ours", "stride"),
    [
        (lambda file, name: file in STEPS, 97),
        # every line of it is met: it has six, and is called more than five times
        (lambda file, name: (file, name) == ("sequences.py", "add"), 5),
    ],
    ids=["round", "add"],
)
def test_an_interruption_between_any_two_lines_leaves_complete_results(is_ours, stride):
    counter = Lines(-1, is_ours)
    whole = run_traced(counter)
    assert counter.num_seen > 20
    for at in range(1, counter.num_seen, stride):
        check_interrupted(run_traced(Lines(at, is_ours)), whole)


def test_an_interrupted_stream_has_said_all_of_its_results():
    fuse = Fuse(0)
    decoder, prompts, asked = burning_decoder(fuse)
    whole = decoder.generate(prompts, **asked)
    for ticks in range(1, -fuse.left, 9):
        decoder, prompts, asked = burning_decoder(Fuse(ticks))
        chunks = list(decoder.stream(prompts, **asked))
        parts = {c.index: c.generation for c in chunks if c.generation is not None}
        check_interrupted([parts[i] for i in range(len(prompts))], whole)
        for index, part in parts.items():
            own = [c for c in chunks if c.index == index]
            assert sum((c.token_ids for c in own), ()) == part.token_ids
            assert "".join(c.text for c in own) == part.text
            assert [c for c in own if c.generation is not None] == own[-1:]
    assert FinishReason.INTERRUPTED in {part.finish_reason for part in parts.values()}


def test_an_interruption_before_anything_is_a_result_too():
    decoder, prompts, asked = burning_decoder(Fuse(1))
    out = decoder.generate(prompts[0], **asked)
    assert (out.token_ids, out.receipt, out.rounds, out.text) == ((), (), (), "")
    assert out.finish_reason is FinishReason.INTERRUPTED
    assert (out.tokens_per_round, out.tokens_per_target_pass, out.relaxed_share) == (0, 0, 0)


# -------------------------------------------------------------------------------------------- seeds


def sampling_decoder(**kwargs):
    generator = torch.Generator().manual_seed(4)
    table = torch.randn(8, 8, generator=generator)
    own = torch.randn(8, 8, generator=generator).softmax(-1)
    drafter = DrawingDrafter(own=own, reported=own)
    return Decoder(target=TableModel(table), drafter=drafter, **kwargs)


def sampled(prompt, seed, **changes):
    base = GenerationSettings(seed=seed, temperature=1.0, max_new_tokens=12, gamma=3)
    return Request(prompt=prompt, settings=base.model_copy(update=changes))


def test_a_seed_does_not_see_its_batch_mates():
    asked = [sampled([i % 8, 1], seed=i) for i in range(4)]
    asked[3] = Request(prompt=[1], settings=GenerationSettings(max_new_tokens=5))  # greedy
    alone = [essence(generate(sampling_decoder(), r)) for r in asked]
    assert len({str(a["token_ids"]) for a in alone}) == 4
    for size in (2, 4):
        together = generate(sampling_decoder(max_batch_size=size), asked)
        assert list(map(essence, together)) == alone
        backwards = generate(sampling_decoder(max_batch_size=size), asked[::-1])
        assert list(map(essence, backwards)) == alone[::-1]


def test_requests_that_share_settings_have_seeds_of_their_own():
    decoder = sampling_decoder()
    shared = generate(decoder, [[0]] * 4, temperature=1.0, seed=30, gamma=3, max_new_tokens=12)
    assert len({out.token_ids for out in shared}) == 4
    for index, out in enumerate(shared):
        assert essence(out) == essence(generate(decoder, sampled([0], seed=30 + index)))
    again = generate(decoder, [0], temperature=1.0, seed=30, gamma=3, max_new_tokens=12)
    assert again.token_ids == shared[0].token_ids


def test_no_policy_is_not_a_policy():
    # a checker of annotations may be faster
    with pytest.raises((ConfigError, TypeCheckError), match=r"[Ee]xpected .*olicy"):
        Decoder(target=cycle_model(), policy=None)


def test_an_error_carries_what_was_committed_to_every_request():
    model = cycle_model(8)
    model.table[6] = float("nan")
    with pytest.raises(NonFiniteError) as caught:
        Decoder(target=model).generate([[1], [4]], max_new_tokens=6)
    first, second = caught.value.generations
    assert first.token_ids[:2] == (2, 3)
    assert second.token_ids == (5, 6)
    assert {first.finish_reason, second.finish_reason} == {FinishReason.INTERRUPTED}


def test_a_relaxed_policy_without_a_draft_says_so():
    bare = Decoder(target=cycle_model(), policy="asd").generate([1], max_new_tokens=2)
    assert (bare.requested_policy, bare.effective_policy) == ("asd", "strict")
    assert "no drafter" in bare.fallback_reason
    drafted = Decoder(
        target=cycle_model(), policy="asd", drafter=ScriptedDrafter(script=oracle(cycle_model()))
    )
    assert "gamma is 0" in drafted.generate([1], gamma=0, max_new_tokens=2).fallback_reason
    assert drafted.generate([1], max_new_tokens=2).fallback_reason is None


def test_a_name_is_no_target():
    with pytest.raises((ConfigError, TypeCheckError), match="target"):
        Decoder(target="demo:smollm2")
