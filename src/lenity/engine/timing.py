"""Timing target passes and drafts on this machine. Sizes take turns, so a busy moment meets all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenity import __version__
from lenity.drafters.base import DraftContext, Drafter, DraftSession
from lenity.engine.batch import Batch
from lenity.engine.curves import CostCurves, DraftCost, PassCost
from lenity.engine.prepare import make_sequence
from lenity.engine.round import run_round
from lenity.errors import ConfigError
from lenity.models.base import LanguageModel
from lenity.policies import policy
from lenity.requests import GenerationSettings, Request
from lenity.scoring import DEFAULT_CHUNK_BYTES
from lenity.types import Draft

WIDTHS = (1, 2, 4, 8, 16)
"""Tokens per row of the passes timed."""
BATCHES = (1, 2, 4)
GAMMAS = (1, 2, 4, 8, 15)
"""Draft tokens asked for; the last goes with a pass over 16."""
CONTEXT = 128
"""Tokens cached before each timed pass."""
REPEATS = 7
"""Timings per size; one more before them is not counted."""


def measure_curves(
    target: LanguageModel,
    drafter: Drafter | None = None,
    *,
    max_draft_length: int | None = None,
    widths: Sequence[int] = WIDTHS,
    batches: Sequence[int] = BATCHES,
    context: int = CONTEXT,
    repeats: int = REPEATS,
) -> CostCurves:
    """Return the costs of passes over width and batch, and of drafts over gamma and batch.

    ``max_draft_length`` is the most tokens the drafter can propose; None leaves it to the widths.
    The context is shortened where the target's positions are few. Raises ConfigError.
    """
    widest = max(widths)
    room = (repeats + 2) * widest
    if target.max_positions is not None:
        context = min(context, target.max_positions - room - 1)
    if context < 1:
        raise ConfigError(
            f"Expected a target with more than {room + 1} positions to time {repeats} rounds of "
            f"{widest} tokens, got {target.max_positions}. Time fewer repeats or widths."
        )
    longest = min(widest - 1, max_draft_length or widest)
    gammas = sorted({gamma for gamma in (*GAMMAS, longest) if gamma <= longest})
    passes = time_passes(target, widths, batches, context=context, repeats=repeats)
    drafts: tuple[DraftCost, ...] = ()
    if drafter is not None:
        drafts = time_drafts(target, drafter, gammas, batches, context=context, repeats=repeats)
    return CostCurves(
        target=target.name,
        drafter=None if drafter is None else drafter.spec,
        dtype=str(target.dtype).removeprefix("torch."),
        device=str(target.device),
        threads=torch.get_num_threads(),
        context=context,
        repeats=repeats,
        versions={"lenity": __version__, "torch": torch.__version__},
        passes=passes,
        drafts=drafts,
    )


def curves_file(folder: Path, curves: CostCurves) -> Path:
    """Return where these curves are kept: one file a target, drafter, dtype, device and threads."""
    parts = (curves.target, curves.drafter, curves.dtype, curves.device, curves.threads)
    slug = re.sub(r"[^A-Za-z0-9]+", "-", curves.target.rstrip("/").rpartition("/")[2])[-40:]
    digest = sha256(repr(parts).encode()).hexdigest()[:12]
    return folder / "curves" / f"{slug}-{curves.dtype}-{digest}.json"


@torch.inference_mode()
def time_passes(
    target: LanguageModel,
    widths: Sequence[int],
    batches: Sequence[int] = (1,),
    *,
    context: int = CONTEXT,
    repeats: int = REPEATS,
) -> tuple[PassCost, ...]:
    """Return wall seconds of a target pass over ``width`` tokens of ``batch`` rows, head included.

    Behind ``context`` cached tokens, nothing of which moves.
    """
    caches = {batch: target.new_cache(batch) for batch in batches}
    for batch, cache in caches.items():
        target.hidden_states(_ids(target, batch, 0, context), cache)
        cache.commit([context] * batch)
    sizes = [(width, batch) for batch in batches for width in widths]
    times: dict[tuple[int, int], list[float]] = {size: [] for size in sizes}
    for _ in range(repeats + 1):
        for width, batch in sizes:
            ids = _ids(target, batch, context, width)
            started = _now(target)
            hidden = target.hidden_states(ids, caches[batch])
            target.logits(hidden.last)
            times[width, batch].append(_now(target) - started)
    return tuple(
        PassCost(width=width, batch=batch, **_summary(spent[1:]))
        for (width, batch), spent in times.items()
    )


def time_drafts(
    target: LanguageModel,
    drafter: Drafter,
    gammas: Sequence[int],
    batches: Sequence[int] = (1,),
    *,
    context: int = CONTEXT,
    repeats: int = REPEATS,
) -> tuple[DraftCost, ...]:
    """Return wall seconds the drafter takes per round, in the decoder's own strict rounds.

    Proposing, and observing what was accepted; prefill is not counted.
    """
    sizes = [(gamma, batch) for batch in batches for gamma in gammas]
    running = {size: _open(target, drafter, *size, context, repeats) for size in sizes}
    for _ in range(repeats + 1):
        for batch, _ in running.values():
            run_round(batch, chunk_bytes=DEFAULT_CHUNK_BYTES)
    return tuple(
        DraftCost(gamma=gamma, batch=batch, **_summary(timed.seconds[1:]))
        for (gamma, batch), (_, timed) in running.items()
    )


class TimedSession:
    """A session that notes what each round of another one takes."""

    def __init__(self, session: DraftSession, target: LanguageModel) -> None:
        """Start without rounds."""
        self.taps, self.seconds = session.taps, list[float]()
        self._session, self._target = session, target

    def admit(self, token_ids: Sequence[int], features: Float[Tensor, "T F"] | None) -> None:
        """Add a row, untimed."""
        self._session.admit(token_ids, features)

    def propose(self, context: DraftContext) -> Draft:
        """Return the other's draft and begin a round's time."""
        started = _now(self._target)
        draft = self._session.propose(context)
        self.seconds.append(_now(self._target) - started)
        return draft

    def observe(
        self, accepted_lengths: Sequence[int], features: Float[Tensor, "B R F"] | None
    ) -> None:
        """Let the other learn, and add what it took to the round."""
        started = _now(self._target)
        self._session.observe(accepted_lengths, features)
        self.seconds[-1] += _now(self._target) - started

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, untimed."""
        self._session.keep(rows)


def _open(
    target: LanguageModel, drafter: Drafter, gamma: int, size: int, context: int, repeats: int
) -> tuple[Batch, TimedSession]:
    """Return a batch about to draft ``gamma`` tokens in every round that is timed."""
    batch = Batch(target, drafter)
    assert batch.session is not None
    timed = TimedSession(batch.session, target)
    batch.session = timed
    settings = GenerationSettings(
        gamma=gamma, max_new_tokens=(repeats + 2) * (gamma + 1), ignore_eos=True
    )
    for row, prompt in enumerate(_ids(target, size, 0, context + 1).tolist()):
        request = Request(prompt=prompt)
        batch.admit(make_sequence(request, row, target, policy("strict"), settings), None)
    return batch, timed


def _ids(target: LanguageModel, batch: int, start: int, count: int) -> Int[Tensor, "B T"]:
    rows = torch.arange(batch, device=target.device)[:, None]
    return (rows + torch.arange(start, start + count, device=target.device)) % target.vocab_size


def _now(target: LanguageModel) -> float:
    """Return the time once the device has done what it was asked."""
    if target.device.type == "cuda":
        torch.cuda.synchronize(target.device)
    return perf_counter()


def _summary(seconds: Sequence[float]) -> dict[str, float]:
    """Return median and quartiles; of a single timing, that one."""
    if len(seconds) == 1:
        return dict.fromkeys(("seconds", "low_seconds", "high_seconds"), seconds[0])
    low, _, high = quantiles(seconds, n=4, method="inclusive")
    return {"seconds": median(seconds), "low_seconds": low, "high_seconds": high}
