"""Fuzzy rules in the loop: whose law is asked for, and what cannot be compared."""

import math

import pytest
import torch

from lenity.drafters.autoregressive import Autoregressive
from lenity.drafters.ngram import Ngram
from lenity.engine.decode import Decoder
from lenity.engine.tracing import Tracer
from lenity.errors import ConfigError, ModelMismatchError
from lenity.policies.divergence import DIVERGENCES
from lenity.policies.fuzzy import Fuzzy
from lenity.requests import GenerationSettings, Request
from lenity.types import TokenKind
from tests.engine.drive import generate
from tests.reference.local import divergence, softmax
from tests.toys import ScriptedDrafter, TableModel, oracle

SIZE = 8
SETTINGS = {"gamma": 3, "max_new_tokens": 24}


def models(seed=3):
    """A target and a drafter that often agrees with it."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randn(SIZE, SIZE, generator=generator)
    noise = torch.randn(SIZE, SIZE, generator=generator)
    return TableModel(target * 2), TableModel(target * 2 + noise, name="toy:draft")


def decoder(rule, drafter=None):
    target, draft = models()
    return Decoder(target=target, drafter=drafter or Autoregressive(model=draft), policy=rule)


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_what_is_relaxed_is_where_the_laws_are_close(kind):
    """Every block is redone by hand from the two tables."""
    target, draft = models()
    rule = Fuzzy(divergence=kind, threshold=0.25)
    out = generate(decoder(rule), [[0], [1], [2]], **SETTINGS)
    assert sum(o.num_relaxed for o in out) > 0
    for generation in out:
        last, tokens = generation.prompt_ids[-1], iter(generation.receipt)
        for record in generation.rounds:
            drafted = last
            for i in range(record.evaluated):
                p, q = target.table[last], draft.table[last]
                drafted = int(q.argmax())
                value = divergence(kind, softmax(p.tolist()), softmax(q.tolist()))
                passes = drafted == int(p.argmax()) or value <= 0.25
                assert passes == (i < record.accepted) or i > record.accepted
                if i >= record.accepted:
                    break
                receipt = next(tokens)
                is_relaxed = drafted != int(p.argmax())
                assert (receipt.token_id, receipt.kind is TokenKind.RELAXED) == (
                    drafted,
                    is_relaxed,
                )
                last = drafted
            last = next(tokens).token_id


def test_strict_rows_and_fuzzy_rows_share_a_batch():
    rules = ["strict", "fuzzy:threshold=inf", "fuzzy:threshold=0", "margin"]
    asked = [Request(prompt=[1], policy=rule) for rule in rules]
    outs = generate(decoder("strict"), asked, **SETTINGS)
    alone = [generate(decoder(rule), [1], **SETTINGS) for rule in rules]
    assert [o.token_ids for o in outs] == [o.token_ids for o in alone]
    assert outs[0].token_ids == outs[2].token_ids != outs[1].token_ids
    assert all(r.accepted == r.evaluated for r in outs[1].rounds)


def test_above_temperature_zero_an_ended_phase_is_strict():
    """Every id ends the relaxed phase, so that only the first token may be relaxed."""
    warm = SETTINGS | {"temperature": 1.0, "seed": 3}
    strict, loose, ended = (
        [
            generate(decoder(rule), [start], **warm, strict_after=after).token_ids
            for start in range(8)
        ]
        for rule, after in (
            ("strict", ()),
            ("fuzzy:threshold=inf", ()),
            ("fuzzy:threshold=inf", tuple(range(8))),
        )
    )
    assert loose != strict
    same_start = [i for i in range(8) if ended[i][0] == strict[i][0]]
    assert same_start
    assert [ended[i] for i in same_start] == [strict[i] for i in same_start]


def test_certain_draft_tokens_are_point_masses():
    """ngram: 1 - p(x) <= .6 is p(x) >= .4, whatever the drafter."""
    target, _ = models()
    rule = Fuzzy(divergence="tv", threshold=0.6)
    out = generate(
        decoder(rule, Ngram(min_match=1)), [0, 1, 2, 3, 4, 5, 6, 7] * 2, gamma=3, max_new_tokens=40
    )
    ids = (*out.prompt_ids, *out.token_ids)
    relaxed = [i for i, t in enumerate(out.receipt) if t.kind is TokenKind.RELAXED]
    for i in relaxed:
        before = ids[len(out.prompt_ids) + i - 1]
        assert softmax(target.table[before].tolist())[out.token_ids[i]] >= 0.4
    loose = generate(
        decoder("fuzzy:divergence=tv,threshold=0.99", Ngram(min_match=1)),
        [0, 1, 2, 3, 4, 5, 6, 7] * 2,
        gamma=3,
        max_new_tokens=40,
    )
    assert loose.num_relaxed > len(relaxed)


def test_kl_from_certain_draft_tokens_is_refused_before_anything_runs():
    ngram = Ngram(min_match=1)
    with pytest.raises(ConfigError, match=r"fuzzy:divergence=kl expects.*ngram.*divergence=tv"):
        decoder("fuzzy:divergence=kl", ngram).generate([1, 2, 1], gamma=3)
    assert models()[0].num_forwards == 0
    asked = Request(prompt=[1], policy="fuzzy:divergence=kl")
    with pytest.raises(ConfigError, match="Request 1: fuzzy"):
        decoder("strict", ngram).generate([Request(prompt=[1]), asked], gamma=3)
    # nothing to compare: no draft, or no relaxation
    for rule, gamma in (("fuzzy:divergence=kl", 0), ("fuzzy:divergence=kl,threshold=0", 3)):
        out = decoder(rule, ngram).generate([1, 2, 1], gamma=gamma, max_new_tokens=4)
        assert out.num_relaxed == 0


def test_kl_from_a_drafter_that_leaves_tokens_out_is_refused():
    target, draft = models()
    narrow = TableModel(draft.table, unknown_ids=[3], name="toy:narrow")
    drafter = Autoregressive(model=narrow)
    with pytest.raises(ModelMismatchError, match=r"every token of the target.*leaves tokens out"):
        Decoder(target=target, drafter=drafter, policy="fuzzy:divergence=kl").generate(
            [1], **SETTINGS
        )
    out = Decoder(target=target, drafter=drafter, policy="fuzzy:threshold=0.5").generate(
        [1], **SETTINGS
    )
    assert len(out.token_ids) == 24


def test_a_drafter_that_keeps_its_law_to_itself_is_refused():
    class Secretive(ScriptedDrafter):
        is_certain = False

    target, _ = models()
    scripted = Secretive(script=oracle(target))
    with pytest.raises(ModelMismatchError, match=r"law behind each draft token.*Use another"):
        Decoder(target=target, drafter=scripted, policy="fuzzy").generate([1], **SETTINGS)
    strict = Decoder(target=target, drafter=scripted, policy="fuzzy:threshold=0")
    assert strict.generate([1], **SETTINGS).acceptance_rate == 1


def test_logits_in_chunks_cannot_be_compared():
    target, draft = models()
    small = Decoder(
        target=target,
        drafter=Autoregressive(model=draft),
        policy="fuzzy",
        max_logits_bytes=4 * SIZE,
    )
    with pytest.raises(ConfigError, match="Raise max_logits_bytes"):
        small.generate([1], **SETTINGS)


def test_nobody_asks_for_laws_unless_a_policy_or_an_observer_does():
    target, draft = models()
    asked = []

    class Watching(Autoregressive):
        def open(self, target, cache):
            session = super().open(target, cache)
            propose = session.propose
            session.propose = lambda context: (
                asked.append(context.wants_logprobs) or propose(context)
            )
            return session

    def run(rule, observer=None, **settings):
        asked.clear()
        Decoder(target=target, drafter=Watching(model=draft), policy=rule).generate(
            [1], observer=observer, gamma=2, max_new_tokens=4, **settings
        )
        return set(asked)

    assert run("strict") == run("asd") == run("fuzzy:threshold=0") == {False}
    assert run("fuzzy") == {True}
    assert run("strict", Tracer()) == {False}
    assert run("strict", Tracer(divergence=True)) == {True}
    # above temperature 0 the laws that are drawn from are compared
    assert run("fuzzy", temperature=0.8) == {False}


def test_above_temperature_0_the_emitted_law_is_the_drafters_where_they_are_close():
    """threshold inf: every draft token stays; 0: the target's law. One position at a time."""
    target, draft = models()
    total = 400
    for threshold, model in ((math.inf, draft), (0.0, target)):
        fuzzy = Decoder(
            target=target,
            drafter=Autoregressive(model=draft),
            policy=Fuzzy(threshold=threshold),
            max_batch_size=total,
        )
        shared = GenerationSettings(gamma=1, max_new_tokens=2, temperature=1.0, seed=1)
        outs = fuzzy.generate([[0]] * total, shared)
        counts = torch.bincount(torch.tensor([o.token_ids[0] for o in outs]), minlength=SIZE)
        law = model.table[0].double().softmax(-1)
        bound = 5 * (total * law * (1 - law)).sqrt() + 1
        assert ((counts - total * law).abs() <= bound).all()
        other = (target if model is draft else draft).table[0].double().softmax(-1)
        assert ((counts - total * other).abs() > bound).any(), "another law would show"


def test_a_budget_above_temperature_0_is_refused():
    with pytest.raises(ConfigError, match="temperature 0 for fuzzy:budget=8"):
        decoder("fuzzy:budget=8").generate([1], temperature=1.0, **SETTINGS)
