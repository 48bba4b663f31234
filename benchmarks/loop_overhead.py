"""The loop's own time per round, beside the one of transformers' ``generate``, in one process.

Run ``python -m benchmarks.loop_overhead``. The same weights, prompts and number of tokens, greedy,
end-of-sequence ignored; arms take turns prompt by prompt. Overhead per round = (wall - time inside
the decoder and the LM head) / target passes, both timed by the same forward hooks on the same
modules. Exits 1 when plain decoding takes longer than ``generate(do_sample=False)`` beyond noise.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is imported

import torch

import lenity
from benchmarks.measure import PROMPTS, machine, spread
from lenity.models.causal import CausalLM

BOUND = 1.05
"""Largest ratio of total time, ours to ``generate``: equal, with room for a busy machine."""
GAMMA = 7


@dataclass(slots=True)
class Stopwatch:
    """Seconds inside the decoder and the LM head, and how often the decoder ran."""

    inside: float = 0.0
    passes: int = 0
    _since: float = field(default=0.0, init=False)

    def start(self, *_: object) -> None:
        """Enter a module."""
        self._since = perf_counter()

    def stop(self, *_: object) -> None:
        """Leave a module."""
        self.inside += perf_counter() - self._since

    def count(self, *_: object) -> None:
        """Count a forward of the decoder."""
        self.passes += 1


@contextmanager
def watched(target: CausalLM) -> Iterator[Stopwatch]:
    """Time every forward of the decoder and the LM head inside the block."""
    watch = Stopwatch()
    decoder, head = target.module.get_decoder(), target.module.get_output_embeddings()
    handles = [decoder.register_forward_pre_hook(watch.count)]
    for module in (decoder, head):
        handles.append(module.register_forward_pre_hook(watch.start))
        handles.append(module.register_forward_hook(watch.stop))
    try:
        yield watch
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One prompt decoded by one arm."""

    wall: float
    inside: float
    passes: int
    token_ids: tuple[int, ...]

    @property
    def overhead(self) -> float:
        """Seconds per target pass spent outside the modules, prefill's among them."""
        return (self.wall - self.inside) / self.passes


Run = Callable[[list[int]], tuple[int, ...]]


def arms_of(target: CausalLM, num_tokens: int) -> dict[str, Run]:
    """Return the arms: prompt ids to new ids."""
    settings = lenity.GenerationSettings(max_new_tokens=num_tokens, ignore_eos=True, gamma=GAMMA)

    def ours(drafter: str | None) -> Run:
        decoder = lenity.Decoder(target=target, drafter=drafter)
        return lambda ids: decoder.generate(ids, settings).token_ids

    def theirs(**options: object) -> Run:
        def run(ids: list[int]) -> tuple[int, ...]:
            prompt = torch.tensor([ids])
            whole = target.module.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=False,
                max_new_tokens=num_tokens,
                min_new_tokens=num_tokens,
                **options,
            )
            return tuple(whole[0, len(ids) :].tolist())

        return run

    return {
        "lenity plain": ours(None),
        "generate": theirs(),
        "lenity ngram": ours("ngram"),
        "generate, prompt lookup": theirs(prompt_lookup_num_tokens=GAMMA),
    }


def take_turns(
    target: CausalLM, arms: dict[str, Run], prompts: list[list[int]], repeats: int
) -> dict[str, list[Turn]]:
    """Decode every prompt in every arm, ``repeats`` times, beginning with another arm each time."""
    found: dict[str, list[Turn]] = {name: [] for name in arms}
    names = list(arms)
    for turn in range(repeats + 1):
        for number, prompt in enumerate(prompts):
            at = (turn + number) % len(names)
            for name in names[at:] + names[:at]:
                with watched(target) as watch:
                    started = perf_counter()
                    token_ids = arms[name](prompt)
                    wall = perf_counter() - started
                if turn:  # the first turn warms up
                    found[name].append(
                        Turn(
                            wall=wall,
                            inside=watch.inside,
                            passes=watch.passes,
                            token_ids=token_ids,
                        )
                    )
    return found


def compare(found: dict[str, list[Turn]], ours: str, theirs: str) -> float:
    """Print two arms side by side; return the median ratio of total time, turn by turn."""
    pairs = list(zip(found[ours], found[theirs], strict=True))
    same = sum(a.token_ids == b.token_ids for a, b in pairs)
    total = [a.wall / b.wall for a, b in pairs]
    overhead = [a.overhead / b.overhead for a, b in pairs]
    for name in (ours, theirs):
        turns = found[name]
        print(
            f"  {name:24s} overhead {spread([t.overhead for t in turns])} ms/pass   model "
            f"{spread([t.inside / t.passes for t in turns])} ms/pass   wall "
            f"{median(t.wall for t in turns):.2f} s"
        )
    print(
        f"  ratio lenity / generate: overhead per pass {median(overhead):.2f}, total time "
        f"{spread(total, 1.0).strip()}; same ids in {same} of {len(pairs)}"
    )
    return median(total)


def main() -> int:
    """Print overheads and ratios; return 1 when plain decoding is slower than generate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo:smollm2")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    asked = parser.parse_args()
    print(f"{asked.model}, {asked.tokens} tokens, batch of 1; {machine()}")
    print("medians [quartiles]")
    worst = 0.0
    for dtype in asked.dtypes:
        target = lenity.load(asked.model, dtype=dtype)
        prompts = [target.tokenizer.encode(text) for text in PROMPTS]
        found = take_turns(target, arms_of(target, asked.tokens), prompts, asked.repeats)
        print(f"{dtype}: plain decoding")
        worst = max(worst, compare(found, "lenity plain", "generate"))
        print(f"{dtype}: prompt lookup, {GAMMA} draft tokens")
        compare(found, "lenity ngram", "generate, prompt lookup")
    verdict = "within" if worst <= BOUND else "ABOVE"
    print(f"plain decoding takes {worst:.2f} of generate's time: {verdict} the bound of {BOUND}")
    return 0 if worst <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
