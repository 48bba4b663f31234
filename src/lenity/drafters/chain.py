"""Drafting token by token with a causal model: what every such drafter does around its forward.

A draft token is drawn from exactly the law that is handed to the verifier, float32, over the
target's vocabulary. Ids that either model does not know have probability 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenity.drafters.base import DraftContext
from lenity.errors import NonFiniteError
from lenity.models.base import KVCache, LanguageModel
from lenity.sampling import Purpose, Sampling, draw, greedy, point_mass, probabilities
from lenity.types import Draft

Advance = Callable[[int, Int[Tensor, " B"] | None], Float[Tensor, "B D"]]
"""(position i, draft token i - 1 or None at 0) -> the drafter's logits of draft token i."""


class DraftVocabulary:
    """Which rows of a drafter's head stand for tokens the target can emit."""

    def __init__(self, model: LanguageModel, target: LanguageModel) -> None:
        """Compare the two heads once."""
        self.name, self.size, self.device = model.name, target.vocab_size, target.device
        self._width = min(model.vocab_size, target.vocab_size)
        forbidden = torch.zeros(self.size, dtype=torch.bool)
        forbidden[self._width :] = True
        forbidden[target.unknown_ids.cpu()] = True
        padding = model.unknown_ids.cpu()
        forbidden[padding[padding < self.size]] = True
        self._forbidden = forbidden.to(model.device) if forbidden.any() else None

    def clean(self, logits: Float[Tensor, "B D"]) -> Float[Tensor, "B V"]:
        """Return logits over the target's head, float32, -inf where no shared token stands."""
        logits = logits[..., : self._width].to(torch.float32)
        if self._width < self.size:
            logits = torch.nn.functional.pad(
                logits, (0, self.size - self._width), value=-float("inf")
            )
        if self._forbidden is not None:
            logits = logits.masked_fill(self._forbidden, -float("inf"))
        return logits

    def clamp(self, token_ids: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Keep ids drawn from a law that is not one (NaN) inside both vocabularies."""
        return token_ids.clamp_max(self._width - 1)

    def translate(self, token_ids: Sequence[int]) -> Sequence[int] | None:
        """Return the target's tokens as the drafter's; None where it cannot read them."""
        return token_ids

    def own_ids(self, token_ids: Int[Tensor, "*N"]) -> Int[Tensor, "*N"]:
        """Return draft tokens as the drafter's."""
        return token_ids


def run_ragged(
    model: LanguageModel, cache: KVCache, rows: Sequence[Sequence[int]]
) -> Float[Tensor, "B H"]:
    """Write rows of different lengths behind the cache's; return each row's last hidden state.

    Rows are padded on the right. A row without tokens returns what its padding gave.
    """
    width = max(map(len, rows))
    padded = [[*ids, *[0] * (width - len(ids))] for ids in rows]
    tokens = torch.tensor(padded, dtype=torch.int64, device=model.device)
    # A prompt may hold an id that only the target's padded table has a row for.
    hidden = model.hidden_states(tokens.clamp_max(model.vocab_size - 1), cache).last
    ends = torch.tensor([max(len(ids) - 1, 0) for ids in rows], device=hidden.device)
    return hidden[torch.arange(len(rows), device=hidden.device), ends]


def prefill(
    model: LanguageModel, cache: KVCache, rows: Sequence[Sequence[int]], chunk: int
) -> None:
    """Write rows of different lengths and commit them, at most ``chunk`` tokens a forward."""
    for start in range(0, max(map(len, rows), default=0), chunk):
        pieces = [ids[start : start + chunk] for ids in rows]
        run_ragged(model, cache, pieces)
        cache.commit([len(piece) for piece in pieces])


def draft_chain(advance: Advance, context: DraftContext, vocabulary: DraftVocabulary) -> Draft:
    """Return a chain of ``context.limits[b]`` draft tokens per row, drawn one after the other.

    ``probs`` is None when every row is greedy. Where only some are, theirs are point masses.
    ``confidence`` is the drafter's probability of its token before temperature and filters, so it
    means the same in greedy and sampled rows; ``logprobs``, if asked for, is all of that law.
    Behind a row's limit stand token 0, its point mass and confidence 0; logprobs may be anything
    there. Raises NonFiniteError when the drafter returns NaN.
    """
    gamma = context.gamma
    is_greedy = all(sampling.is_greedy for sampling in context.sampling)
    coins = None if is_greedy else context.coins.uniform(Purpose.DRAFT, gamma)
    token_ids: list[Tensor] = []
    confidence: list[Tensor] = []
    laws: list[Tensor] = []
    logprobs: list[Tensor] = []
    for i in range(gamma):
        logits = vocabulary.clean(advance(i, token_ids[-1] if token_ids else None))
        if coins is None:
            drafted = greedy(logits)
        else:
            laws.append(row_laws(logits, context.sampling))
            drafted = vocabulary.clamp(draw(laws[-1], coins[:, i]))
        chosen = logits.gather(-1, drafted[:, None]).squeeze(-1)
        token_ids.append(drafted)
        confidence.append((chosen - logits.logsumexp(-1)).exp())
        if context.wants_logprobs:
            logprobs.append(logits.log_softmax(-1))
    draft = _stack(
        torch.stack(token_ids, 1), torch.stack(confidence, 1), laws, context.limits, vocabulary
    )
    if not logprobs:
        return draft
    return replace(draft, logprobs=torch.stack(logprobs, 1).to(vocabulary.device))


def row_laws(logits: Float[Tensor, "B V"], sampling: Sequence[Sampling]) -> Float[Tensor, "B V"]:
    """Return each row's law under its own sampling settings, one call per distinct setting."""
    groups: dict[Sampling, list[int]] = {}
    for row, setting in enumerate(sampling):
        groups.setdefault(setting, []).append(row)
    if len(groups) == 1:
        return probabilities(logits, sampling[0])
    laws = torch.empty_like(logits, dtype=torch.float32)
    for setting, rows in groups.items():
        laws[rows] = probabilities(logits[rows], setting)
    return laws


def _stack(
    tokens: Int[Tensor, "B G"],
    trust: Float[Tensor, "B G"],
    laws: list[Tensor],
    limits: Sequence[int],
    vocabulary: DraftVocabulary,
) -> Draft:
    lengths = torch.tensor(list(limits), dtype=torch.int64, device=tokens.device)
    is_padding = torch.arange(tokens.shape[1], device=tokens.device) >= lengths[:, None]
    trust = trust.masked_fill(is_padding, 0)
    is_broken = ~torch.isfinite(trust)
    if is_broken.any():
        row, position = is_broken.nonzero()[0].tolist()
        raise NonFiniteError(
            f"Expected finite logits from the drafter {vocabulary.name}, got NaN or infinity for "
            f"draft token {position} of row {row}. Load it in float32, or decode without it."
        )
    probs = None
    if laws:
        no_token = point_mass(tokens.new_zeros(1, 1), vocabulary.size)
        probs = torch.where(is_padding[..., None], no_token, torch.stack(laws, 1))
    return Draft(
        token_ids=tokens.masked_fill(is_padding, 0).to(vocabulary.device),
        lengths=lengths.to(vocabulary.device),
        probs=None if probs is None else probs.to(vocabulary.device),
        confidence=trust.to(vocabulary.device),
    )
