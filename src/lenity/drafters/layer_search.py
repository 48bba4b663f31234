"""Finding the layers a model can draft without.

The search removes one layer at a time, each time the one whose absence costs least, and measures
what drafting will see: the kept layers read the full model's keys and values for all committed
tokens, and their own for the block. Blocks are teacher-forced along the target's greedy
continuation, so one forward of the kept layers judges every draft position at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lenity.drafters.chain import prefill, run_ragged
from lenity.drafters.layer_sets import CurvePoint, LayerSet, SearchSettings
from lenity.errors import ConfigError
from lenity.models.base import LanguageModel
from lenity.sampling import greedy

Prompts = Sequence[Sequence[int]]

PREFILL_CHUNK = 128
"""Tokens per row in one forward: many blocks are prefilled at once, and activations add up."""


def search_layers(
    model: LanguageModel,
    prompts: Prompts,
    *,
    held_out: Prompts = (),
    settings: SearchSettings | None = None,
    on_step: Callable[[CurvePoint], None] | None = None,
) -> LayerSet:
    """Return the layers of ``model`` whose absence costs its own greedy text least.

    Greedy elimination: remove the layer without which the most block positions agree with the
    target; ties go to the higher mean log-probability of the target's token, then to the lower
    index. The first removal tries every layer, a later one the ``shortlist`` layers that were
    cheapest to lose when last tried. It stops at ``keep_share``. Prompts are token ids;
    ``on_step`` hears of every removal. Raises ConfigError when there is nothing to measure.
    """
    settings = settings or SearchSettings()
    blocks = Blocks(model, prompts, settings)
    unseen = Blocks(model, held_out, settings) if held_out else None
    kept, curve = tuple(range(model.num_layers)), list[CurvePoint]()
    order, num_tried = list(kept), len(kept)  # cheapest to lose first, as far as is known
    while len(kept) - 1 >= max(1, settings.keep_share * model.num_layers):
        scores = {layer: blocks.score(_without(layer, kept)) for layer in order[:num_tried]}
        order[:num_tried] = sorted(scores, key=lambda layer: (*scores[layer].costs, layer))
        removed = order.pop(0)
        kept, num_tried = _without(removed, kept), settings.shortlist
        check = None if unseen is None else unseen.score(kept)
        curve.append(_point(removed, len(curve) + 1, scores[removed], check))
        if on_step is not None:
            on_step(curve[-1])
    good = [point for point in curve if point.agreement >= settings.min_agreement]
    num_skipped = good[-1].num_skipped if good else 0
    return LayerSet(
        model=model.name,
        num_layers=model.num_layers,
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        dtype=str(model.dtype).removeprefix("torch."),
        skipped=tuple(sorted(point.removed for point in curve[:num_skipped])),
        agreement=good[-1].agreement if good else 1.0,
        prompts_sha256=hashlib.sha256(json.dumps([list(p) for p in prompts]).encode()).hexdigest(),
        num_positions=blocks.num_positions,
        settings=settings,
        curve=tuple(curve),
    )


def _without(layer: int, kept: Sequence[int]) -> tuple[int, ...]:
    return tuple(other for other in kept if other != layer)


def _point(removed: int, num_skipped: int, score: Score, held_out: Score | None) -> CurvePoint:
    return CurvePoint(
        removed=removed,
        num_skipped=num_skipped,
        agreement=score.agreement,
        accepted_length=score.accepted_length,
        held_out_agreement=None if held_out is None else held_out.agreement,
        held_out_accepted_length=None if held_out is None else held_out.accepted_length,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How well some layers follow the target on a set of blocks; ``logprob`` in nats."""

    agreement: float
    accepted_length: float
    logprob: float

    @property
    def costs(self) -> tuple[float, float]:
        """Return what removals are ordered by, cheapest first."""
        return -self.agreement, -self.logprob


class Blocks:
    """Blocks of a target's greedy continuations, their prefixes cached once with all layers."""

    def __init__(self, model: LanguageModel, prompts: Prompts, settings: SearchSettings) -> None:
        """Continue the prompts and cut the continuations into blocks. Raises ConfigError."""
        if not prompts or not all(prompts):
            raise ConfigError(
                f"Expected prompts of at least one token to search layers with, got "
                f"{[list(prompt) for prompt in prompts]}. Encode a few typical prompts."
            )
        self._model = model
        prefixes, inputs, labels = [], [], []
        continued = continue_greedily(model, prompts, settings.num_tokens)
        for prompt, new in zip(prompts, continued, strict=True):
            ids, num_prompt = [*prompt, *new], len(prompt)
            for start in range(num_prompt - 1, len(ids) - 1, settings.block_size):
                stop = min(start + settings.block_size, len(ids) - 1)
                padding = [0] * (settings.block_size - (stop - start))
                prefixes.append(ids[:start])
                inputs.append(ids[start:stop] + padding)
                labels.append(ids[start + 1 : stop + 1] + [-1 for _ in padding])
        self._cache = model.new_cache(len(prefixes))
        prefill(model, self._cache, prefixes, PREFILL_CHUNK)
        self._inputs = torch.tensor(inputs, device=model.device)
        self._labels = torch.tensor(labels, device=model.device)
        self._is_real = self._labels >= 0
        self.num_positions = int(self._is_real.sum())

    def score(self, layers: tuple[int, ...]) -> Score:
        """Return how well a draft by these layers alone would do; commits nothing."""
        hidden = self._model.hidden_states(self._inputs, self._cache, layers=layers).last
        logits = mask_unknown(self._model, self._model.logits(hidden))
        agrees = greedy(logits) == self._labels  # padding is labelled -1 and agrees with nothing
        chosen = self._labels.clamp_min(0)[..., None]
        logprobs = logits.gather(-1, chosen).squeeze(-1) - logits.logsumexp(-1)
        prefix = agrees.to(torch.int64).cumprod(-1).sum(-1).to(torch.float64)
        return Score(
            agreement=int(agrees.sum()) / self.num_positions,
            accepted_length=float(prefix.mean()),
            logprob=float(logprobs[self._is_real].to(torch.float64).mean()),
        )


def continue_greedily(model: LanguageModel, prompts: Prompts, num_tokens: int) -> list[list[int]]:
    """Return the target's own greedy continuation of each prompt, up to and with its end token."""
    cache = model.new_cache(len(prompts))
    prefill(model, cache, [ids[:-1] for ids in prompts], PREFILL_CHUNK)
    anchors = [ids[-1] for ids in prompts]
    rows: list[list[int]] = [[] for _ in prompts]
    for _ in range(num_tokens):
        last = run_ragged(model, cache, [[token] for token in anchors])
        cache.commit([1] * len(rows))
        anchors = greedy(mask_unknown(model, model.logits(last))).tolist()
        for row, token in zip(rows, anchors, strict=True):
            if not row or row[-1] not in model.eos_token_ids:
                row.append(token)
    return rows


def mask_unknown(model: LanguageModel, logits: Float[Tensor, "*N V"]) -> Float[Tensor, "*N V"]:
    """Return float32 logits in which ids without a token are -inf."""
    return logits.to(torch.float32).index_fill(-1, model.unknown_ids.to(logits.device), -torch.inf)
