"""Reveal schedules: which masks of a block become tokens in which pass, and how it is recorded.

In each pass the likeliest token of every masked position is looked at, and the positions with the
highest confidence keep theirs. How many do is the schedule's business:

* ``dream``: with times t_i = linspace(1, 0.001, steps + 1), int(n (1 - t_{i+1} / t_i)) of the n
  masks that are left (Ye et al. 2025, "Dream 7B", arXiv 2508.15487);
* ``half``: ceil(n / 2);
* ``threshold``: those whose token is at least so likely, and one in any case (Wu et al. 2025,
  "Fast-dLLM", arXiv 2505.22618);

in the last pass all that are left, so no mask ever is. Everything is deterministic: the likeliest
token is the one with the lowest id, and of equal confidences the earlier position goes first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lenity.sampling import greedy
from lenity.types import DraftRecord

Schedule = Literal["dream", "half", "threshold"]
Confidence = Literal["probability", "margin", "entropy"]

EPSILON = 1e-3
"""Dream's last time: where its schedule ends instead of at 0."""

Predict = Callable[[Int[Tensor, "B G"], Bool[Tensor, "B G"]], "tuple[Tensor, Tensor]"]
"""(block, what is masked) -> hidden states (B, G, H) and logits (B, G, V), float32, -inf where a
token must not be."""


def num_to_reveal(schedule: Schedule, num_masked: int, step: int, steps: int) -> int:
    """Return how many of ``num_masked`` masks become tokens in pass ``step`` of ``steps``.

    ``threshold`` looks at the tokens instead: its number is the least, 1.
    """
    if step == steps - 1:
        return num_masked
    if schedule == "half":
        return -(-num_masked // 2)
    if schedule == "threshold":
        return min(1, num_masked)
    time, following = (1 - (1 - EPSILON) * i / steps for i in (step, step + 1))
    return int(num_masked * (1 - following / time))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one pass says of every position of a block."""

    token_ids: Int[Tensor, "B G"]
    probability: Float[Tensor, "B G"]
    margin: Float[Tensor, "B G"]
    entropy: Float[Tensor, "B G"]
    top5_mass: Float[Tensor, "B G"]

    def confidence(self, kind: Confidence) -> Float[Tensor, "B G"]:
        """Return what positions are ranked by; higher is surer."""
        if kind == "entropy":
            return -self.entropy
        return self.margin if kind == "margin" else self.probability


def look(logits: Float[Tensor, "B G V"]) -> Look:
    """Return the likeliest tokens and how sure each position is; entropy in nats."""
    logprobs = logits.log_softmax(-1)
    probs = logprobs.exp()
    top = probs.topk(min(5, probs.shape[-1]), dim=-1).values
    token_ids = greedy(logits)
    first = top[..., 0]
    second = top[..., 1] if top.shape[-1] > 1 else torch.zeros_like(first)
    return Look(
        token_ids=token_ids,
        probability=probs.gather(-1, token_ids[..., None]).squeeze(-1),
        margin=first - second,
        # 0 log 0 is 0, and a forbidden token has probability 0
        entropy=-(probs * logprobs.masked_fill(probs == 0, 0)).sum(-1),
        top5_mass=top.sum(-1),
    )


def choose(
    seen: Look,
    is_masked: Bool[Tensor, "B G"],
    counts: Int[Tensor, " B"],
    kind: Confidence,
    least: float | None = None,
) -> tuple[Bool[Tensor, "B G"], Int[Tensor, "B G"]]:
    """Return which masks become tokens, and every position's rank among the row's masks.

    The ``counts[b]`` surest do; with ``least`` also every one whose token is at least so likely.
    """
    sureness = seen.confidence(kind).masked_fill(~is_masked, -torch.inf)
    order = sureness.argsort(dim=-1, descending=True, stable=True)
    ranks = order.argsort(dim=-1)
    chosen = ranks < counts[:, None]
    if least is not None:
        chosen = chosen | (seen.probability >= least)
        # those above the threshold come first, whatever ranks them
        keys = torch.where(chosen, ranks, ranks + ranks.shape[-1])
        ranks = keys.argsort(dim=-1).argsort(dim=-1)
    return chosen & is_masked, ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Revealed:
    """A block without masks; ``logprobs`` is each position's law at reveal, if it was asked for."""

    token_ids: Int[Tensor, "B G"]
    record: DraftRecord
    logprobs: Float[Tensor, "B G V"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reveal:
    """How a block is revealed: see the module's text. ``steps`` is the most passes."""

    schedule: Schedule = "dream"
    confidence: Confidence = "entropy"
    steps: int = 2
    threshold: float = 0.9

    def run(
        self,
        predict: Predict,
        is_slot: Bool[Tensor, "B G"],
        mask_token_id: int,
        *,
        wants_logprobs: bool = False,
    ) -> Revealed:
        """Reveal every slot of a block; what is no slot stays token 0.

        A row's passes are those in which it reveals something: what is recorded of a row does not
        depend on its neighbours.
        """
        sheet = _Sheet(is_slot, mask_token_id, wants_logprobs=wants_logprobs)
        for step in range(self.steps):
            left = sheet.is_masked.sum(1).tolist()
            counts = [num_to_reveal(self.schedule, n, step, self.steps) for n in left]
            if any(counts):
                hidden, logits = predict(sheet.token_ids, sheet.is_masked)
                seen = look(logits)
                least = self.threshold if self.schedule == "threshold" else None
                asked = torch.tensor(counts, device=is_slot.device)
                chosen, ranks = choose(seen, sheet.is_masked, asked, self.confidence, least)
                sheet.write(seen, hidden, chosen, ranks)
                sheet.write_laws(logits, chosen)
        return sheet.finish()


class _Sheet:
    """What is known of a block so far; the one thing here that changes."""

    def __init__(
        self, is_slot: Bool[Tensor, "B G"], mask_token_id: int, *, wants_logprobs: bool
    ) -> None:
        """Begin with masks everywhere."""
        self.is_masked = is_slot.clone()
        self.token_ids = torch.where(is_slot, mask_token_id, 0)
        self._is_slot, self._wants_laws = is_slot, wants_logprobs
        zero = torch.zeros_like(self.token_ids)
        number = torch.zeros(is_slot.shape, device=is_slot.device)
        self._counts = {name: zero for name in ("step", "rank", "together")}
        self._reveal = {name: number for name in _MEASURES}
        self._first: Look | None = None
        self._passes = zero[:, :1]
        self._hidden: Tensor | None = None
        self._laws: Tensor | None = None

    def write(
        self,
        seen: Look,
        hidden: Float[Tensor, "B G H"],
        chosen: Bool[Tensor, "B G"],
        ranks: Int[Tensor, "B G"],
    ) -> None:
        """Turn the chosen masks into tokens, and note how."""
        before = (self._is_slot & ~self.is_masked).sum(1, keepdim=True)
        count = chosen.sum(1, keepdim=True)
        notes = {"step": self._passes, "rank": before + ranks, "together": count}
        for name, value in notes.items():
            self._counts[name] = torch.where(chosen, value, self._counts[name])
        for name in _MEASURES:
            self._reveal[name] = torch.where(chosen, getattr(seen, name), self._reveal[name])
        if self._first is None or self._hidden is None:
            self._first, self._hidden = seen, torch.zeros_like(hidden)
        self._hidden = torch.where(chosen[..., None], hidden, self._hidden)
        self.token_ids = torch.where(chosen, seen.token_ids, self.token_ids)
        self.is_masked = self.is_masked & ~chosen
        self._passes = self._passes + (count > 0)

    def write_laws(self, logits: Float[Tensor, "B G V"], chosen: Bool[Tensor, "B G"]) -> None:
        """Keep the laws of the chosen positions, if they are wanted."""
        if not self._wants_laws:
            return
        laws = logits.log_softmax(-1)
        self._laws = (
            laws if self._laws is None else torch.where(chosen[..., None], laws, self._laws)
        )

    def finish(self) -> Revealed:
        """Return the block; behind a row's slots everything is 0."""
        assert self._first is not None, "a block has a position to look at"
        assert self._hidden is not None, "as above"
        assert not self.is_masked.any(), "the last pass reveals everything"
        is_late = (self._counts["step"] == self._passes - 1) & self._is_slot
        record = DraftRecord(
            reveal_step=self._counts["step"],
            reveal_rank=self._counts["rank"],
            num_together=self._counts["together"],
            is_late=is_late,
            first_probability=self._first.probability.masked_fill(~self._is_slot, 0),
            first_entropy=self._first.entropy.masked_fill(~self._is_slot, 0),
            hidden=self._hidden,
            **self._reveal,
        )
        return Revealed(token_ids=self.token_ids, record=record, logprobs=self._laws)


_MEASURES = ("probability", "entropy", "margin", "top5_mass")
