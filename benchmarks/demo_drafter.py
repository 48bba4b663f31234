"""Tokens per target pass of the shipped EAGLE-3 drafter on held-out prompts, by family.

The prompts are the tenth of lenity's own that no drafter is trained on: new fillings of the
templates the training prompts came from, so this is the narrow workload it was made for. Beside
tokens per target pass stands the conditional acceptance of every draft position. Strict must equal
plain decoding, token for token, in float32; exits 1 if it does not.

    python -m benchmarks.demo_drafter [--drafters eagle3:model=DIR ngram] [--prompts 8]
        [--max-new-tokens 64] [--gamma 5]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import lenity
from lenity.engine.acceptance import Acceptance
from lenity.training.prompts import FAMILIES, prompts

DRAFTERS = ("eagle3:model=demo:smollm2", "ngram")


def main() -> int:
    """Print one row per family and drafter; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="demo:smollm2")
    parser.add_argument("--drafters", nargs="+", default=DRAFTERS)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--gamma", type=int, default=5)
    chosen = parser.parse_args()
    target = lenity.load(chosen.target, dtype="float32")
    settings = {"gamma": chosen.gamma, "max_new_tokens": chosen.max_new_tokens}
    is_equal = True
    print(f"float32, strict, {chosen}")
    print("family drafter: tokens per target pass; acceptance by position, given those before")
    for family in chosen.families:
        pairs = prompts((family,), chosen.prompts, held_out=True)
        chats = [[{"role": "user", "content": text}] for _, text in pairs]
        plain = lenity.Decoder(target=target).generate(chats, **settings)
        for name in chosen.drafters:
            found = lenity.Decoder(target=target, drafter=name).generate(chats, **settings)
            is_equal &= [g.token_ids for g in found] == [g.token_ids for g in plain]
            print(f"{family:6} {name:26} {_row(found)}", flush=True)
    print("strict equals plain" if is_equal else "STRICT DIFFERS FROM PLAIN")
    return 0 if is_equal else 1


def _row(found: Sequence[lenity.Generation]) -> str:
    tokens = sum(len(g.token_ids) for g in found)
    passes = sum(g.num_target_passes for g in found)
    rates = " ".join(f"{rate:.2f}" for rate in Acceptance.of_generations(found).conditional)
    return f"{tokens / passes:.2f}; {rates}"


if __name__ == "__main__":
    sys.exit(main())
