"""Arms on the same prompts in one process, taking turns; and what a target pass costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from lenity.cli.figures import Totals
from lenity.engine.decode import Decoder
from lenity.engine.timing import CONTEXT, REPEATS, time_passes
from lenity.models.base import LanguageModel
from lenity.requests import GenerationSettings
from lenity.types import Generation


@dataclass(slots=True, kw_only=True)
class Arm:
    """One configuration of a comparison, and what it has done so far."""

    name: str
    decoder: Decoder
    generations: list[Generation] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def totals(self) -> Totals:
        """Return the sums over all prompts; seconds without prefill."""
        return Totals.of(self.generations, sum(self.seconds, 0.0))

    @property
    def budget(self) -> float | None:
        """Return the nats each request may give away; None for a rule without a budget."""
        return getattr(self.decoder.policy, "budget", None)


def take_turns(
    arms: Sequence[Arm],
    prompts: Sequence[Any],
    settings: GenerationSettings,
    on_turn: Callable[[], None] = lambda: None,
) -> None:
    """Decode every prompt in every arm, one prompt at a time; each prompt begins with another arm.

    A short run before, of every arm, is not counted: it warms what is lazily made.
    """
    warm = settings.model_copy(update={"max_new_tokens": 4})
    for arm in arms:
        arm.decoder.generate(prompts[0], warm)
    for turn, prompt in enumerate(prompts):
        for step in range(len(arms)):
            arm = arms[(turn + step) % len(arms)]
            started = perf_counter()
            generation: Generation = arm.decoder.generate(prompt, settings)
            seconds = perf_counter() - started - generation.prefill_seconds
            arm.generations.append(generation)
            arm.seconds.append(seconds)
            on_turn()


def cost_of_pass(
    target: LanguageModel, widths: Sequence[int], *, context: int = CONTEXT, repeats: int = REPEATS
) -> dict[int, float]:
    """Return the median wall seconds of a target pass over ``width`` tokens, head included.

    Behind ``context`` cached tokens, batch of one, the widths taking turns.
    """
    costs = time_passes(target, widths, context=context, repeats=repeats)
    return {cost.width: cost.seconds for cost in costs}
