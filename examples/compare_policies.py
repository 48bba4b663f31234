"""Run the same prompts under several policies and print what each gives away and gains.

python examples/compare_policies.py [MODEL]      without a name, a tiny random model is built
"""

import sys
import tempfile
from pathlib import Path

from tiny_model import save_tiny_model

import lenity

POLICIES = [
    "strict",
    "asd:budget=8,gate=0.25,block_cap=2",
    "priced:budget=8,price=0.5",
    "lenience:ratio=0.9",
    "top_k:k=2",
]
PROMPTS = [
    "To make tea, first",
    "Dear neighbour, I write to you because",
    "The three largest lakes are",
]


def main(name: str) -> None:
    target = lenity.load(name, dtype="float32")
    # The target without some of its middle layers drafts for itself: often right, often close.
    middle = range(target.num_layers // 3, target.num_layers // 3 + max(1, target.num_layers // 5))
    drafter = lenity.drafter("self_speculative", skip="+".join(map(str, middle)))

    print(f"{'policy':36s} {'tokens/pass':>11s} {'relaxed':>8s} {'nats spent':>11s}")
    for spec in POLICIES:
        decoder = lenity.Decoder(target=target, drafter=drafter, policy=spec)
        # One ragged batch: the prompts differ in length and leave when they end.
        found = decoder.generate(PROMPTS, max_new_tokens=32, gamma=4)
        emitted = sum(len(generation.token_ids) for generation in found)
        passes = sum(generation.num_target_passes for generation in found)
        relaxed = sum(generation.num_relaxed for generation in found)
        spent = sum(generation.regret_spent for generation in found)
        print(f"{spec:36s} {emitted / passes:11.2f} {relaxed:8d} {spent:11.3f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(save_tiny_model(Path(folder)))
