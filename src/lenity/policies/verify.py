"""Run a policy on a block: the prefix to commit and the token that follows it.

Every rule obeys the same three things here, so that none can forget them: what lies beyond a
row's length is never accepted, a masked token is never accepted (nor, in sampling, one that a
filter left no probability), and nothing behind the first position that fails is kept.
"""

from __future__ import annotations

from functools import cache
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lenity.errors import ConfigError
from lenity.policies.asd import longest_prefix
from lenity.policies.base import BlockPolicy, MatchPolicy, Policy, TokenPolicy
from lenity.policies.strict import Strict
from lenity.sampling import draw
from lenity.types import Draft, Scores, Verdict

_STRICT = Strict()


def verify_greedy(
    policy: Policy,
    draft: Draft,
    scores: Scores,
    *,
    spent_units: Int[Tensor, " B"],
    may_relax: Bool[Tensor, "B G"] | None = None,
) -> Verdict:
    """Return the verdict of a greedy rule; see ``greedy_length``.

    The next token is the target's argmax in the row after the prefix.
    """
    accepted = greedy_length(policy, draft, scores, spent_units=spent_units, may_relax=may_relax)
    column = torch.arange(draft.gamma, device=draft.token_ids.device)
    is_mismatch = draft.token_ids != scores.top_id[:, :-1]
    return Verdict(
        accepted_length=accepted,
        next_token_id=scores.top_id.gather(-1, accepted[:, None]).squeeze(-1),
        is_bonus=accepted == draft.lengths,
        is_relaxed=(column < accepted[:, None]) & is_mismatch,
    )


def greedy_length(
    policy: Policy,
    draft: Draft,
    scores: Scores,
    *,
    spent_units: Int[Tensor, " B"],
    may_relax: Bool[Tensor, "B G"] | None = None,
) -> Int[Tensor, " B"]:
    """Return how many draft tokens of each row a greedy rule accepts.

    ``may_relax`` is False where a mismatch is forbidden whatever the rule says (special and stop
    ids, an ended phase); a draft token that is the target's argmax passes all the same. Raises
    ConfigError for a rule that is defined for sampling only.
    """
    if policy.is_strict:
        return longest_prefix(draft.token_ids == scores.top_id[:, :-1], draft.lengths)
    is_allowed = scores.draft_logit > -float("inf")
    if may_relax is not None:
        is_allowed &= may_relax
    kind = _greedy_kind(type(policy))
    if kind is BlockPolicy:
        return cast(BlockPolicy, policy).accepted_length(draft, scores, is_allowed, spent_units)
    if kind is MatchPolicy:
        passes = cast(MatchPolicy, policy).accepts(draft, scores) & is_allowed
        is_match = draft.token_ids == scores.top_id[:, :-1]
        return longest_prefix(is_match | passes, draft.lengths)
    raise ConfigError(
        f"Expected a policy for greedy decoding, got {policy}. Set a temperature above 0, or "
        f"choose a greedy rule."
    )


@cache
def _greedy_kind(rule: type[Policy]) -> type[BlockPolicy] | type[MatchPolicy] | None:
    """Return which greedy protocol a rule follows; asking a protocol costs as much as the rule."""
    if issubclass(rule, BlockPolicy):
        return BlockPolicy
    return MatchPolicy if issubclass(rule, MatchPolicy) else None


def verify_sampled(
    policy: Policy,
    draft: Draft,
    target_probs: Float[Tensor, "B R V"],
    *,
    accept_coins: Float[Tensor, "B G"],
    next_coins: Float[Tensor, " B"],
    may_relax: Bool[Tensor, "B G"] | None = None,
) -> Verdict:
    """Return the verdict of a sampling rule; the coins are the only randomness.

    Position i passes iff its coin is below the rule's acceptance probability. The next token is
    drawn from the rule's residual after a rejection, from the target's law after a full block.
    Where ``may_relax`` is False (an ended phase), both are strict's.
    """
    if not isinstance(policy, TokenPolicy):
        raise ConfigError(
            f"{policy} is defined for greedy decoding only, got temperature > 0. Use "
            f"temperature=0, or the policy 'strict', which is exact at any temperature."
        )
    rows = torch.arange(draft.token_ids.shape[0], device=target_probs.device)
    accept_prob = policy.accept_prob(target_probs[:, :-1], draft.probs, draft.token_ids)
    if may_relax is not None:
        exact = _STRICT.accept_prob(target_probs[:, :-1], draft.probs, draft.token_ids)
        accept_prob = torch.where(may_relax, accept_prob, exact)
    own = target_probs[:, :-1].gather(-1, draft.token_ids[..., None]).squeeze(-1)
    accept_prob = accept_prob.masked_fill(own == 0, 0)
    accepted = longest_prefix(accept_coins.to(target_probs.device) < accept_prob, draft.lengths)
    is_bonus = accepted == draft.lengths
    law = target_probs[rows, accepted]
    if draft.gamma:
        stop = accepted.clamp_max(draft.gamma - 1)
        drafted = None if draft.probs is None else draft.probs[rows, stop]
        token_ids = draft.token_ids[rows, stop]
        left = policy.residual(law, drafted, token_ids)
        if may_relax is not None:
            exact = _STRICT.residual(law, drafted, token_ids)
            left = torch.where(may_relax[rows, stop][:, None], left, exact)
        law = torch.where(is_bonus[:, None], law, left)
    return Verdict(
        accepted_length=accepted,
        next_token_id=draw(law, next_coins),
        is_bonus=is_bonus,
        is_relaxed=torch.zeros_like(accept_prob, dtype=torch.bool),
        accept_prob=accept_prob,
    )
