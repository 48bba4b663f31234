"""The verifier's share of a target pass: reductions, policy and commit at K = 7.

Run ``python -m benchmarks.verify_overhead``. Share = (verify + commit seconds of a round) / (its
target seconds, LM head included), as RoundRecord has them; medians over rounds that scored K draft
tokens, policies taking turns. The drafter repeats the last tokens: it always drafts K and costs
nothing. Exits 1 when a share in the first dtype, the default one on a CPU, is above the bound; the
others, in which a pass is cheaper and the verifier as dear, are judged in words.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import ClassVar, Literal

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is imported

import torch

import lenity
from benchmarks.measure import PROMPTS, machine, spread
from lenity.drafters.base import DraftContext, Drafter
from lenity.models.base import HiddenStates, KVCache, LanguageModel
from lenity.types import Draft, RoundRecord

BOUND = 0.02
"""Largest share of a target pass that the verifier may take."""
GAMMA = 7
POLICIES = ("strict", "asd:budget=8,gate=0.25,block_cap=2", "priced:budget=8,price=0.5")


class RepeatSession:
    """Drafts each row's last tokens once more."""

    taps: tuple[int, ...] = ()

    def admit(self, token_ids: Sequence[int], features: object) -> None:
        """Do nothing."""

    def propose(self, context: DraftContext) -> Draft:
        """Return the last ``limits[b]`` tokens of every row."""
        rows = [
            list(ids[len(ids) - limit :])
            for ids, limit in zip(context.token_ids, context.limits, strict=True)
        ]
        width = max(map(len, rows))
        padded = [row + [0] * (width - len(row)) for row in rows]
        return Draft(
            token_ids=torch.tensor(padded), lengths=torch.tensor([len(row) for row in rows])
        )

    def observe(self, accepted_lengths: Sequence[int], features: HiddenStates | None) -> None:
        """Do nothing."""

    def keep(self, rows: Sequence[int]) -> None:
        """Do nothing."""


class Repeat(Drafter):
    """The last tokens once more: always K of them, at no cost."""

    idea: ClassVar[str] = "the last tokens once more"
    paper: ClassVar[str] = "none"

    type: Literal["repeat"] = "repeat"

    def open(self, target: LanguageModel, cache: KVCache) -> RepeatSession:
        """Return a session; any target will do."""
        return RepeatSession()


def rounds_of(
    target: LanguageModel, *, num_tokens: int, repeats: int
) -> dict[str, list[RoundRecord]]:
    """Return the full-width rounds of every policy; policies take turns prompt by prompt."""
    decoders = {
        rule: lenity.Decoder(target=target, drafter=Repeat(), policy=rule) for rule in POLICIES
    }
    settings = lenity.GenerationSettings(gamma=GAMMA, max_new_tokens=num_tokens, ignore_eos=True)
    found: dict[str, list[RoundRecord]] = defaultdict(list)
    for turn in range(repeats + 1):
        for prompt in PROMPTS:
            for rule, decoder in decoders.items():
                rounds = decoder.generate(prompt, settings).rounds
                if turn:  # the first turn warms up
                    found[rule] += [r for r in rounds if r.evaluated == GAMMA]
    return found


def main() -> int:
    """Print the shares; return 1 when one is above the bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo:smollm2")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    asked = parser.parse_args()
    print(f"{asked.model}, K = {GAMMA}, batch of 1; {machine()}")
    print("medians over rounds [quartiles], ms")
    print(f"{'dtype':9s} {'policy':36s} {'target':>28s} {'verify':>22s} {'commit':>22s}  share")
    worst: dict[str, float] = {}
    for dtype in asked.dtypes:
        target = lenity.load(asked.model, dtype=dtype)
        found = rounds_of(target, num_tokens=asked.tokens, repeats=asked.repeats)
        for rule, rounds in found.items():
            seconds = [r.seconds for r in rounds]
            own = median(s.verify + s.commit for s in seconds)
            share = own / median(s.target for s in seconds)
            worst[dtype] = max(worst.get(dtype, 0.0), share)
            print(
                f"{dtype:9s} {rule:36s} {spread([s.target for s in seconds]):>28s} "
                f"{spread([s.verify for s in seconds]):>22s} "
                f"{spread([s.commit for s in seconds]):>22s}  {share:.2%}"
            )
    for dtype, share in worst.items():
        verdict = "within" if share <= BOUND else "ABOVE"
        print(f"{dtype}: largest share {share:.2%}, {verdict} the bound of {BOUND:.0%}")
    return 0 if worst[asked.dtypes[0]] <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
