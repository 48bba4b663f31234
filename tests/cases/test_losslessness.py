"""Speculation changes nothing: every drafter, every rule at its strict limit, every shape of batch.

In float32, token for token, against plain decoding through the same loop and against transformers'
own generate. The grid is a covering one: every pair of choices meets in at least one run.
"""

from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from lenity.drafters import DRAFTERS, drafter
from lenity.drafters.autoregressive import Autoregressive
from lenity.engine.decode import Decoder
from lenity.models.causal import CausalLM
from lenity.policies import POLICIES, policy
from tests.cases.rig import (
    CONFIGS,
    PROMPTS,
    SELF,
    VARIANTS,
    Reference,
    anti_oracle,
    build,
    check_accounts,
    cousin,
    hf_greedy,
    pattern,
    reference,
    runner_up,
    scripted,
)
from tests.drafters.heads import tiny_dflash, tiny_dspark, tiny_medusa
from tests.models.heads.tiny import eagle3_folder
from tests.models.masked_tiny import masked_folder

COUNT = 12


def tiny_eagle3(family, known):
    model = known.model
    with TemporaryDirectory() as folder:
        made = eagle3_folder(
            Path(folder), target_size=model.hidden_size, vocab_size=model.vocab_size
        )
        head = drafter("eagle3", model=str(made), taps=(-1, 0, 1))
        head.open(model, model.new_cache())  # reads the files, while they are there
    return head


def tiny_masked(family, known):
    """A Dream-like drafter whose mask is the target's last id, which it then never drafts."""
    size = known.model.vocab_size
    with TemporaryDirectory() as folder:
        made = masked_folder(Path(folder), "dream", vocab_size=size, mask=size - 1)
        head = drafter("masked_diffusion", model=str(made))
        head.open(known.model, known.model.new_cache())
    return head


REGISTERED = {
    "autoregressive": lambda family, known: Autoregressive(model=cousin(family)),
    "dflash": lambda family, known: drafter("dflash", model=tiny_dflash(known.model)),
    "dspark": lambda family, known: drafter("dspark", model=tiny_dspark(known.model)),
    "eagle3": tiny_eagle3,
    "masked_diffusion": tiny_masked,
    "medusa": lambda family, known: drafter("medusa", model=tiny_medusa(known.model)),
    "ngram": lambda family, known: drafter("ngram:min_match=1,max_match=3"),
    "self_speculative": lambda family, known: drafter("self_speculative:skip=1"),
}
"""One for every registered drafter."""
SCRIPTED = {
    "self": lambda family, known: SELF,
    "anti-oracle": lambda family, known: scripted(anti_oracle(known)),
    "runner-up": lambda family, known: scripted(runner_up(known)),
    "pattern": lambda family, known: scripted(pattern(known, 2, 0, None, 5, 1)),
}
MAKERS = REGISTERED | SCRIPTED

BATCHES = {
    "one": (PROMPTS[1:2], 8),
    "ragged": (PROMPTS, 8),
    "more than fit": ([*PROMPTS, *PROMPTS[2:0:-1]], 3),
}
"""Prompts, and how many of them are decoded together."""

FACTORS = {
    "variant": VARIANTS,
    "drafter": tuple(MAKERS),
    "policy": POLICIES.names(),
    "batch": tuple(BATCHES),
    "gamma": (0, 1, 3, 5),
}


@dataclass(frozen=True)
class Run:
    """One point of the grid."""

    variant: tuple[str, str]
    drafter: str
    policy: str
    batch: str
    gamma: int

    def __str__(self):
        return f"{'-'.join(self.variant)}-{self.drafter}-{self.policy}-{self.batch}-{self.gamma}"

    @property
    def pairs(self):
        return {
            (one, getattr(self, one), other, getattr(self, other))
            for one, other in combinations(FACTORS, 2)
        }


def every_pair():
    return {
        (one, a, other, b)
        for one, other in combinations(FACTORS, 2)
        for a, b in product(FACTORS[one], FACTORS[other])
    }


@cache
def covering():
    """Every model meets every drafter; the rest is chosen for the pairs still missing."""
    missing, runs = every_pair(), []
    rest = list(product(*(FACTORS[name] for name in ("policy", "batch", "gamma"))))
    for variant, maker in product(FACTORS["variant"], FACTORS["drafter"]):
        trials = [Run(variant, maker, *choice) for choice in rest]
        runs.append(max(trials, key=lambda run: len(run.pairs & missing)))
        missing -= runs[-1].pairs
    return runs


def test_every_registered_drafter_has_a_factory():
    missing = set(DRAFTERS.names()) - set(REGISTERED)
    assert not missing, f"write a small factory in REGISTERED for: {', '.join(sorted(missing))}"


def test_the_grid_covers_every_pair():
    assert {family for family, _ in VARIANTS} == set(CONFIGS)
    assert every_pair() == set().union(*(run.pairs for run in covering()))


@cache
def expected(variant, prompt):
    """The target alone; transformers and our own plain loop agree on it."""
    known = reference(*variant)
    theirs = hf_greedy(known.model, prompt, COUNT)
    ours = Decoder(target=known.model).generate(list(prompt), max_new_tokens=COUNT)
    assert list(ours.token_ids) == theirs
    assert {t.kind for t in ours.receipt} == {"plain"}
    return tuple(theirs)


@pytest.mark.parametrize("run", covering(), ids=str)
def test_speculative_equals_plain(run):
    prompts, batch_size = BATCHES[run.batch]
    known = reference(*run.variant)
    decoder = Decoder(
        target=known.model,
        drafter=MAKERS[run.drafter](run.variant[0], known),
        policy=policy(run.policy).strict_limit(),
        max_batch_size=batch_size,
    )
    results = decoder.generate(prompts, max_new_tokens=COUNT, gamma=run.gamma)
    for prompt, result in zip(prompts, results, strict=True):
        assert result.token_ids == expected(run.variant, tuple(prompt))
        assert (result.num_relaxed, result.regret_spent) == (0, 0.0)
        check_accounts(result)
        if run.gamma == 0:
            assert {t.kind for t in result.receipt} == {"plain"}
        elif run.drafter == "self":
            assert result.acceptance_rate == 1.0
        elif run.drafter in ("anti-oracle", "runner-up"):
            assert result.acceptance_rate == 0.0
            assert len(result.rounds) == COUNT


@pytest.mark.parametrize("name", ["autoregressive", "ngram", "self_speculative"])
def test_drafters_are_right_and_wrong_in_turn(name):
    """Otherwise the grid says little about them; random heads are wrong nearly always."""
    known = reference()
    prompts = [*PROMPTS, (PROMPTS[2] * 3)[:20]]
    results = Decoder(target=known.model, drafter=REGISTERED[name]("llama", known)).generate(
        prompts, max_new_tokens=40, gamma=5
    )
    accepted = {r.accepted for result in results for r in result.rounds if r.drafted}
    assert len(accepted) > 1


WIDE = {
    "asd": "asd:budget=inf,gate=inf,block_cap=none",
    "fuzzy": "fuzzy:threshold=inf",
    "lenience": "lenience:ratio=0.01",
    "margin": "margin:ratio=0",
    "priced": "priced:budget=inf,price=0",
    "top_k": "top_k:k=2",
}


@pytest.mark.parametrize("name", [n for n in POLICIES.names() if not policy(n).is_strict])
def test_control_away_from_its_limit_a_rule_does_relax(name):
    assert name in WIDE, f"write knobs in WIDE with which {name} accepts a runner-up"
    known = reference()
    result = Decoder(
        target=known.model, drafter=scripted(runner_up(known)), policy=WIDE[name]
    ).generate(PROMPTS[1], max_new_tokens=COUNT, gamma=5)
    assert result.num_relaxed
    assert result.token_ids != expected(("llama", "eager"), tuple(PROMPTS[1]))


@cache
def twins():
    """A model in which token t and token t + 64 always tie exactly."""
    module = build("llama")
    head = module.get_output_embeddings().weight
    with torch.no_grad():
        head[64:].copy_(head[:64])
    return Reference(CausalLM(module, name="tiny:twins"))


@pytest.mark.parametrize("name", POLICIES.names())
def test_at_the_limit_a_tie_with_another_id_is_a_mismatch(name):
    """The lower id is the argmax; its twin costs nothing, and strict does not take it."""
    known = twins()
    twin = runner_up(known)
    for prompt in PROMPTS:
        row = known.row(prompt)
        assert torch.equal(row[:64], row[64:])
        assert twin(prompt, 1) == [known.rank(prompt, 0) + 64]
        result = Decoder(
            target=known.model, drafter=scripted(twin), policy=policy(name).strict_limit()
        ).generate(prompt, max_new_tokens=COUNT, gamma=5)
        assert list(result.token_ids) == hf_greedy(known.model, prompt, COUNT)
        assert result.acceptance_rate == 0.0
    if name in WIDE:
        wide = Decoder(target=known.model, drafter=scripted(twin), policy=WIDE[name]).generate(
            PROMPTS[1], max_new_tokens=COUNT, gamma=5
        )
        assert (wide.num_relaxed > 0, wide.regret_spent) == (True, 0.0)
