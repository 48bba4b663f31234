"""Tokens per target pass of the shipped EAGLE-3 drafter on held-out prompts, by family.

The prompts are the tenth of lenity's own that no drafter is trained on: new fillings of the
templates the training prompts came from, so this is the narrow workload it was made for. Strict
must equal plain decoding, token for token, in float32; exits 1 if it does not.

    python -m benchmarks.demo_drafter [--prompts 8] [--max-new-tokens 64] [--gamma 5]
"""

from __future__ import annotations

import argparse
import sys

import lenity
from lenity.training.prompts import FAMILIES, prompts

DRAFTERS = ("eagle3:model=demo:smollm2", "ngram")


def main() -> int:
    """Print one row per family and drafter; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--gamma", type=int, default=5)
    chosen = parser.parse_args()
    target = lenity.load("demo:smollm2", dtype="float32")
    settings = {"gamma": chosen.gamma, "max_new_tokens": chosen.max_new_tokens}
    is_equal = True
    print(f"float32, strict, {chosen}, tokens per target pass (acceptance rate)")
    for family in FAMILIES:
        pairs = prompts((family,), chosen.prompts, held_out=True)
        chats = [[{"role": "user", "content": text}] for _, text in pairs]
        plain = lenity.Decoder(target=target).generate(chats, **settings)
        for name in DRAFTERS:
            found = lenity.Decoder(target=target, drafter=name).generate(chats, **settings)
            is_equal &= [g.token_ids for g in found] == [g.token_ids for g in plain]
            tokens = sum(len(g.token_ids) for g in found)
            passes = sum(g.num_target_passes for g in found)
            evaluated = sum(r.evaluated for g in found for r in g.rounds)
            accepted = sum(r.accepted for g in found for r in g.rounds)
            rate = accepted / evaluated if evaluated else 0.0
            print(f"{family:6} {name:26} {tokens / passes:.2f} ({rate:.2f})", flush=True)
    print("strict equals plain" if is_equal else "STRICT DIFFERS FROM PLAIN")
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
