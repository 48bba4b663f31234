"""Find the layers a model can draft without, and save the set for ``self_speculative``.

    python benchmarks/find_layers.py                                    # where skip=auto looks
    python benchmarks/find_layers.py --out src/lenity/demo/smollm2.layers.json    # the shipped one

The model continues a few chat prompts greedily, in float32; layers are removed one at a time, each
time the one whose absence costs the least agreement on those continuations. Further prompts of the
same kinds are held out and only measured. Prints one row per removal: the longer the list, the
cheaper a draft token and the fewer of them are accepted.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from lenity.drafters.layer_search import search_layers
from lenity.drafters.layer_sets import CurvePoint, SearchSettings, saved_path
from lenity.models import load

PROMPTS = (
    "Explain in a few sentences why the sky is blue.",
    "Write a short story about a lighthouse keeper who finds a letter.",
    "List five ways to save water at home.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "What is the difference between a virus and a bacterium?",
    "A shop sells pens at 3 dollars each. How much do 7 pens cost? Explain each step.",
    "Rewrite this sentence politely: Send me the report now.",
    "Give me a recipe for a simple vegetable soup.",
)
HELD_OUT = (
    "Why do leaves change colour in autumn?",
    "Write an email to a neighbour about a lost cat.",
    "Write a Python function that checks whether a word is a palindrome.",
    "Summarise: The meeting was moved from Monday to Thursday because the projector is broken.",
    "Name three famous rivers and say where they flow.",
    "Tom has 12 apples and gives away 5. How many are left? Explain each step.",
)


def parse() -> argparse.Namespace:
    """Return the command line."""
    defaults = SearchSettings()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo:smollm2")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--out", type=Path, help="default: the user's cache, read by skip=auto")
    parser.add_argument("--block-size", type=int, default=defaults.block_size)
    parser.add_argument("--num-tokens", type=int, default=defaults.num_tokens)
    parser.add_argument("--shortlist", type=int, default=defaults.shortlist)
    parser.add_argument("--keep-share", type=float, default=defaults.keep_share)
    parser.add_argument("--min-agreement", type=float, default=defaults.min_agreement)
    return parser.parse_args()


def main() -> int:
    """Search, print, save."""
    arguments = parse()
    model = load(arguments.model, dtype=arguments.dtype)
    if model.tokenizer is None:
        print("Expected a model with a tokenizer: the prompts are texts.", file=sys.stderr)
        return 2
    tokenizer, started = model.tokenizer, time.perf_counter()

    def encode(texts: tuple[str, ...]) -> list[list[int]]:
        return [tokenizer.encode_chat([{"role": "user", "content": text}]) for text in texts]

    def show(point: CurvePoint) -> None:
        print(
            f"{point.num_skipped:7}  {point.removed:7}  {point.agreement:9.3f}  "
            f"{point.accepted_length:8.2f}  {point.held_out_agreement:18.3f}  "
            f"{point.held_out_accepted_length:17.2f}  {time.perf_counter() - started:7.0f}",
            flush=True,
        )

    print("skipped  removed  agreement  accepted  held-out agreement  held-out accepted  seconds")
    found = search_layers(
        model,
        encode(PROMPTS),
        held_out=encode(HELD_OUT),
        settings=SearchSettings(
            block_size=arguments.block_size,
            num_tokens=arguments.num_tokens,
            shortlist=arguments.shortlist,
            keep_share=arguments.keep_share,
            min_agreement=arguments.min_agreement,
        ),
        on_step=show,
    )
    path = arguments.out or saved_path(model)
    found.save(path)
    print(f"skip={'+'.join(map(str, found.skipped))}  agreement {found.agreement:.3f}  -> {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
