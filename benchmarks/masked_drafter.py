"""Accepted length of a masked-diffusion drafter under strict, by family and gamma.

On the tenth of lenity's own prompts that no drafter is trained on. ``accepted`` is accepted draft
tokens per round, the target's own token not counted, over rounds that drafted; ``conditional`` is
the acceptance of each draft position given those before. Strict must equal plain decoding, token
for token, in float32; exits 1 if it does not.

    python -m benchmarks.masked_drafter DIR [--gammas 8 16] [--steps 2] [--prompts 12]
        [--families data maths] [--max-new-tokens 96] [--schedule dream] [--confidence entropy]
        [--drafter-dtype bfloat16]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import lenity
from lenity.engine.acceptance import Acceptance
from lenity.training.prompts import FAMILIES, prompts


def main() -> int:
    """Print one row per family and gamma; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("drafter", help="directory or hub id of a masked-diffusion model")
    parser.add_argument("--target", default="demo:smollm2")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=["data", "maths"])
    parser.add_argument("--gammas", nargs="+", type=int, default=[8, 16])
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--schedule", default="dream")
    parser.add_argument("--confidence", default="entropy")
    parser.add_argument("--drafter-dtype", default="float32")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    chosen = parser.parse_args()
    target = lenity.load(chosen.target, dtype="float32")
    knobs: dict[str, object] = {
        name: getattr(chosen, name) for name in ("steps", "schedule", "confidence")
    }
    knobs |= {"model": chosen.drafter, "dtype": chosen.drafter_dtype}
    drafter = lenity.drafter("masked_diffusion", **knobs)
    is_equal = True
    print(f"float32, strict, {chosen}")
    print("family gamma: accepted per round, tokens per target pass, rounds; conditional")
    for family in chosen.families:
        pairs = prompts((family,), chosen.prompts, held_out=True)
        chats = [[{"role": "user", "content": text}] for _, text in pairs]
        length = chosen.max_new_tokens
        plain = lenity.Decoder(target=target).generate(chats, max_new_tokens=length)
        for gamma in chosen.gammas:
            decoder = lenity.Decoder(target=target, drafter=drafter)
            found = decoder.generate(chats, gamma=gamma, max_new_tokens=length)
            is_equal &= [g.token_ids for g in found] == [g.token_ids for g in plain]
            print(f"{family:6} {gamma:5}: {_row(found)}", flush=True)
    print("strict equals plain" if is_equal else "STRICT DIFFERS FROM PLAIN")
    return 0 if is_equal else 1


def _row(found: Sequence[lenity.Generation]) -> str:
    rounds = [r for g in found for r in g.rounds if r.drafted]
    tokens = sum(len(g.token_ids) for g in found)
    passes = sum(g.num_target_passes for g in found)
    accepted = sum(r.accepted for r in rounds) / max(1, len(rounds))
    rates = " ".join(f"{rate:.2f}" for rate in Acceptance.of_generations(found).conditional)
    return f"{accepted:.2f}, {tokens / passes:.2f}, {len(rounds)}; {rates}"


if __name__ == "__main__":
    sys.exit(main())
