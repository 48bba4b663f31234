"""Decode a prompt plainly and speculatively, and look at the receipt.

python examples/generate.py [MODEL]        without a name, a tiny random model is built
"""

import sys
import tempfile
from pathlib import Path

from tiny_model import save_tiny_model

import lenity


def main(name: str) -> None:
    target = lenity.load(name, dtype="float32")
    prompt = "One fish, two fish, red fish, blue fish. One fish, two fish, red"

    plain = lenity.Decoder(target=target).generate(prompt, max_new_tokens=32)
    speculative = lenity.Decoder(target=target, drafter="ngram").generate(
        prompt, max_new_tokens=32, gamma=5
    )
    # Strict verification commits what the target would have said: the same tokens, fewer passes.
    assert speculative.token_ids == plain.token_ids
    print(f"text: {speculative.text!r}")
    print(f"target passes: {plain.num_target_passes} plain, {speculative.num_target_passes} now")

    for token in speculative.receipt[:10]:
        print(f"{token.token_id:6d}  {token.kind:10s} log-probability {token.logprob:7.3f}")

    # Text can also be taken as it is committed.
    for chunk in lenity.Decoder(target=target, drafter="ngram").stream(prompt, max_new_tokens=32):
        print(repr(chunk.text), end=" ")
    print()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(save_tiny_model(Path(folder)))
