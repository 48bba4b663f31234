"""What passes between the stages of a round: Draft, Scores, Verdict, RoundRecord, Generation.

Axes: B requests, G draft positions (gamma, padded), R = G + 1 scored rows, V vocabulary.
Token ids int64; logits and probabilities float32; regret in nats; times in seconds.

Row i of a request scores the token after its i-th input, so draft token i is judged by row i and
row ``lengths[b]`` of request b is its bonus row (not row G: rows are ragged).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from jaxtyping import Bool, Float, Int
from torch import Tensor

from lenity.errors import ShapeError

UNITS_PER_NAT = 1 << 20
"""Regret is charged in integers of 2^-20 nat, so that sums are exact and order does not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRecord:
    """How each draft token of a masked-diffusion drafter came about; nothing of the target.

    Passes are counted from 0; "at reveal" is the pass that revealed the token. ``reveal_rank`` is
    how many tokens of the block were revealed before it, ``num_together`` how many in its pass,
    ``is_late`` whether that was the row's last. ``probability`` is the token's, ``entropy`` (nats),
    ``margin`` (first minus second probability) and ``top5_mass`` are its position's, at reveal;
    ``first_probability`` (of the likeliest token) and ``first_entropy`` its position's in pass 0.
    ``hidden`` is the vector that entered the drafter's LM head for the position, at reveal; where
    logits are shifted it stands one place to the left. Behind a row's length everything is 0.
    """

    reveal_step: Int[Tensor, "B G"]
    reveal_rank: Int[Tensor, "B G"]
    num_together: Int[Tensor, "B G"]
    is_late: Bool[Tensor, "B G"]
    probability: Float[Tensor, "B G"]
    entropy: Float[Tensor, "B G"]
    margin: Float[Tensor, "B G"]
    top5_mass: Float[Tensor, "B G"]
    first_probability: Float[Tensor, "B G"]
    first_entropy: Float[Tensor, "B G"]
    hidden: Float[Tensor, "B G H"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The tokens proposed in one round.

    ``lengths[b]`` (0 allowed) counts the real draft tokens of request b; what lies beyond is
    padding and can never be accepted. ``probs`` is the law the tokens were drawn from, exactly;
    None means each token was chosen with certainty (a point mass). ``logprobs`` is the drafter's
    own log-softmax, before temperature and filters; it is there when a policy compares laws at
    temperature 0, unless the drafter has no law (ngram). ``record`` says how the tokens came about,
    where a drafter reveals them out of order.
    """

    token_ids: Int[Tensor, "B G"]
    lengths: Int[Tensor, " B"]
    probs: Float[Tensor, "B G V"] | None = None
    confidence: Float[Tensor, "B G"] | None = None
    logprobs: Float[Tensor, "B G V"] | None = None
    record: DraftRecord | None = None

    def __post_init__(self) -> None:
        """Refuse tensors that do not describe one block per request."""
        if self.token_ids.ndim != 2 or self.lengths.shape != self.token_ids.shape[:1]:
            raise ShapeError(
                f"Draft expects token_ids (B, G) and lengths (B,), got "
                f"{tuple(self.token_ids.shape)} and {tuple(self.lengths.shape)}. Pad the blocks "
                f"to one width and give each request its own length."
            )

    @property
    def gamma(self) -> int:
        """Draft positions per request, padding included (G)."""
        return self.token_ids.shape[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The target's view of a draft, as the reductions the policies read.

    ``top_id`` is the first index of the largest logit; ``regret`` is the top logit minus the draft
    token's, in nats, at least 0, inf where the draft token is masked.
    ``logits`` (after logits processors, in the model's dtype) are kept where memory allows or
    somebody needs them; a tensor-parallel engine may hand in the reductions alone.
    ``second_logit``, ``draft_rank`` (0 = argmax, ties by lower id first) and ``log_normalizer``
    (log-sum-exp of the row) are there when they were asked for, by a policy's ``needs`` or by
    whoever scores. ``divergence`` compares the target's softmax with the drafter's; K runs over
    lenity.policies.divergence.DIVERGENCES.
    """

    top_id: Int[Tensor, "B R"]
    top_logit: Float[Tensor, "B R"]
    draft_logit: Float[Tensor, "B G"]
    regret: Float[Tensor, "B G"]
    logits: Float[Tensor, "B R V"] | None = None
    second_logit: Float[Tensor, "B R"] | None = None
    draft_rank: Int[Tensor, "B G"] | None = None
    log_normalizer: Float[Tensor, "B R"] | None = None
    divergence: Float[Tensor, "B G K"] | None = None

    def __post_init__(self) -> None:
        """Refuse reductions whose row counts disagree."""
        rows, gamma = self.top_id.shape[-1], self.regret.shape[-1]
        if rows != gamma + 1:
            raise ShapeError(
                f"Scores expects one row more than draft positions, got {rows} rows for "
                f"{gamma} draft positions. The last row scores the bonus token."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a policy decided about a draft; nothing is committed yet.

    ``accepted_length`` excludes the next token. ``is_relaxed`` marks accepted positions strict
    would have rejected. ``is_bonus`` says the next token follows a fully accepted draft.
    ``accept_prob`` is the probability with which each position was accepted (sampling only).
    """

    accepted_length: Int[Tensor, " B"]
    next_token_id: Int[Tensor, " B"]
    is_bonus: Bool[Tensor, " B"]
    is_relaxed: Bool[Tensor, "B G"]
    accept_prob: Float[Tensor, "B G"] | None = None


class TokenKind(StrEnum):
    """How an emitted token came about."""

    ACCEPTED = "accepted"  # a draft token that is the target's own choice
    RELAXED = "relaxed"  # a draft token strict would have rejected
    RECOVERED = "recovered"  # the target's token after a rejection
    BONUS = "bonus"  # the target's token after a fully accepted draft
    SKIPPED = "skipped"  # committed without a target pass
    PLAIN = "plain"  # the target's token in a round without a draft


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"  # an end-of-sequence id, a stop id or a stop string
    LENGTH = "length"  # max_new_tokens reached
    CONTEXT = "context"  # the target's context is full
    INTERRUPTED = "interrupted"  # the caller stopped it; what is there is complete


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenReceipt:
    """One emitted token: its kind and its price.

    ``regret`` in nats (0 unless relaxed or skipped). ``rank`` of the token among the target's
    logits (0 = argmax); None when it was not asked for. ``logprob`` under the target, in nats.
    ``choice_id`` is what strict would have emitted where this token has a price. A skipped token is
    priced when a later target pass replays it; both numbers are NaN if none did.
    """

    token_id: int
    kind: TokenKind
    regret: float
    logprob: float
    rank: int | None = None
    choice_id: int | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSeconds:
    """Wall seconds of one round by stage, shared by all requests of the batch."""

    draft: float = 0.0
    target: float = 0.0
    verify: float = 0.0
    commit: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of all stages."""
        return self.draft + self.target + self.verify + self.commit


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """One request's counters in one round; rates are made from sums, never stored.

    ``accepted`` counts draft tokens that were kept and emitted (a prefix), ``emitted`` everything
    committed after stop handling, ``regret_units`` what the ledger was charged (2^-20 nat), for
    skipped tokens that this round's pass replayed too. ``skipped`` tokens were emitted without a
    target pass; ``shadow_accepted`` is then what strict would have accepted, where a shadow
    verifier looked.
    """

    drafted: int
    evaluated: int
    accepted: int
    emitted: int
    relaxed: int
    regret_units: int
    target_passes: int = 1
    skipped: int = 0
    shadow_accepted: int | None = None
    batch_size: int = 1
    seconds: StageSeconds = field(default_factory=StageSeconds)

    def __post_init__(self) -> None:
        """Check the identities that every published rate rests on."""
        assert self.accepted <= self.evaluated <= self.drafted, self
        assert self.relaxed <= self.accepted, self


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One finished request.

    ``token_ids`` are the new tokens only, the one that ended the request included; ``text`` is
    None when the target has no tokenizer. ``requested_policy`` and ``effective_policy`` differ
    only when ``fallback_reason`` says why.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str | None
    finish_reason: FinishReason
    stop_match: str | int | None
    receipt: tuple[TokenReceipt, ...]
    rounds: tuple[RoundRecord, ...]
    requested_policy: str
    effective_policy: str
    drafter: str
    gamma: int
    prefill_seconds: float = 0.0
    fallback_reason: str | None = None
    processor_states: tuple[object, ...] = ()
    skip: str = "none"

    @property
    def num_target_passes(self) -> int:
        """Target forwards after the prompt."""
        return sum(r.target_passes for r in self.rounds)

    @property
    def num_relaxed(self) -> int:
        """Emitted tokens that strict would have rejected."""
        return sum(r.relaxed for r in self.rounds)

    @property
    def num_skipped(self) -> int:
        """Emitted tokens that were committed without a target pass."""
        return sum(r.skipped for r in self.rounds)

    @property
    def regret_spent(self) -> float:
        """Nats charged to the ledger."""
        return sum(r.regret_units for r in self.rounds) / UNITS_PER_NAT

    @property
    def tokens_per_round(self) -> float:
        """Emitted tokens / rounds; 0 when nothing ran."""
        return len(self.token_ids) / len(self.rounds) if self.rounds else 0.0

    @property
    def tokens_per_target_pass(self) -> float:
        """Emitted tokens / target passes; 0 when nothing ran."""
        passes = self.num_target_passes
        return len(self.token_ids) / passes if passes else 0.0

    @property
    def relaxed_share(self) -> float:
        """Relaxed tokens / emitted tokens; 0 when nothing was emitted."""
        return self.num_relaxed / len(self.token_ids) if self.token_ids else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted draft tokens / evaluated draft tokens; 0 when nothing was drafted."""
        evaluated = sum(r.evaluated for r in self.rounds)
        return sum(r.accepted for r in self.rounds) / evaluated if evaluated else 0.0

    @property
    def logprobs(self) -> tuple[float, ...]:
        """Target log-probability of each emitted token, nats."""
        return tuple(t.logprob for t in self.receipt)
