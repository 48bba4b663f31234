"""What a policy would do, predicted from the traces of a strict run, without a model.

**The estimator.** A request's recorded rounds are walked in order with the policy's own code and a
ledger of its own. A round, judged with what the walk has spent, keeps a draft tokens and emits
e = a + 1 (a where a kept token ends the request). Where strict emitted fewer, rounds behind it have
become superfluous: the walk goes on with the first recorded round that starts at or behind the
place in the text it has reached. Tokens between that place and that start belong to no round; they
are taken to cost what the walked ones cost. So for a request of N recorded tokens whose walk
emitted E in W rounds, charged C and relaxed X,

    passes = W N / E,   relaxed tokens = X N / E,   regret = min(C N / E, budget),

and tokens per target pass = sum of N / sum of passes, over requests.

**First order**: behind a relaxed prefix the text is another one, and nobody has scored it. It is
assumed to go on as the recorded text does at that place. The next round is the first one *behind*
the place, because the round that covers it is a long one more often than chance: it would be
preferred for what it emits.

**Bias.** Where text really goes on as recorded (simulated streams of mismatches, even and in
bursts, requests of 128 and 256 tokens) tokens per target pass come out within 3 % of the truth,
mostly within 1 %. On real text it is not seen that relaxed text may be easier (repetition) or
harder to draft than strict text, or end earlier, and that a block begins elsewhere after a relaxed
prefix than after a recovered token. Regret, coverage and relaxed share share these. With a smaller
``gamma`` than recorded the blocks are cut where they begin, and a budget lasts longer than it
would. Replay of strict, and of any rule at its strict limit, is the recorded run itself. Every
number is labelled "predicted": measure before use.

Walked round by round over all requests at once: milliseconds a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isinf
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lenity.errors import ConfigError, ProtocolError
from lenity.workbench.records import UNITS_PER_NAT, Frozen
from lenity.workbench.trace import RequestTrace, TracedRound, check_strict

if TYPE_CHECKING:
    from lenity.policies.base import Policy

Ints = NDArray[np.int64]


class Prediction(Frozen):
    """What replay says of a policy; one entry a request, in the order of the traces."""

    label: Literal["predicted"] = "predicted"
    """Nothing here was measured"""
    policy: str
    """Spec of the rule"""
    gamma: int | None = Field(default=None, ge=1)
    """Draft tokens a round was cut to; none as recorded"""
    tokens: tuple[int, ...]
    """Tokens of the recorded request"""
    passes: tuple[float, ...]
    """Target passes to emit as many"""
    relaxed: tuple[float, ...]
    """Tokens among them that strict would have rejected"""
    regret: tuple[float, ...]
    """Nats charged to the ledger"""

    @property
    def tokens_per_target_pass(self) -> float:
        """Sum of tokens / sum of passes; 0 when nothing was walked."""
        passes = sum(self.passes)
        return sum(self.tokens) / passes if passes else 0.0

    @property
    def regret_per_request(self) -> float:
        """Nats / requests; 0 without requests."""
        return sum(self.regret) / len(self.tokens) if self.tokens else 0.0

    @property
    def coverage(self) -> float:
        """Requests with a relaxed token / requests; 0 without requests."""
        return sum(map(bool, self.relaxed)) / len(self.tokens) if self.tokens else 0.0

    @property
    def relaxed_share(self) -> float:
        """Relaxed tokens / tokens; 0 when nothing was walked."""
        tokens = sum(self.tokens)
        return sum(self.relaxed) / tokens if tokens else 0.0


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What rounds emit under a policy: tokens, relaxed ones among them, units charged."""

    emitted: Ints
    relaxed: Ints
    units: Ints


@dataclass(frozen=True, slots=True)
class _Sums:
    """What the walks of all requests have come to; each array is added to in place."""

    emitted: Ints
    passes: Ints
    relaxed: Ints
    units: Ints


Decide = Callable[[Ints, Ints], _Outcome]
"""(rounds, units their requests have spent) -> what they emit."""


def replayable(traces: Iterable[RequestTrace]) -> list[RequestTrace]:
    """Return the strict requests among a run's traces, of the arm that drafted most.

    A sweep has traces of every arm. Where none is strict all are returned, to be refused by name.
    """
    every = [trace for trace in traces if trace.rounds]
    strict = [trace for trace in every if trace.policy == "strict"]
    longest = max((trace.gamma for trace in strict), default=0)
    return [trace for trace in strict if trace.gamma == longest] or every


class Replayer:
    """Strict traces laid out once, to judge many policies on."""

    def __init__(self, traces: Sequence[RequestTrace]) -> None:
        """Lay out traces. Raises ProtocolError unless all are of strict, whole, greedy runs."""
        check_strict(traces, "replay")
        self.num_requests = len(traces)
        self.tokens = np.array([trace.num_emitted for trace in traces], dtype=np.int64)
        counts = np.array([len(trace.rounds) for trace in traces], dtype=np.int64)
        self._stop: Ints = counts.cumsum()
        self._first: Ints = self._stop - counts
        self._rounds = _Rounds(traces)
        # where each round starts, in one text of all requests, end to end
        self._places: Ints = self._rounds.emitted.cumsum() - self._rounds.emitted
        self._is_checked = False

    def predict(self, policy: str | Policy, *, gamma: int | None = None) -> Prediction:
        """Return the prediction for a greedy policy; ``gamma`` cuts every block to its head.

        Raises ConfigError for a rule that cannot be greedy, ProtocolError where the traces lack
        what it reads.
        """
        from lenity.policies import policy as policy_named

        rule = policy_named(policy)
        self._rounds.check(rule, gamma)
        self._check_recorded()
        sums = self._walk(self._decide(rule, gamma))
        scale = self.tokens / np.maximum(sums.emitted, 1)
        budget = getattr(rule, "budget", None)
        regret = sums.units / UNITS_PER_NAT * scale
        return Prediction(
            policy=rule.spec,
            gamma=gamma,
            tokens=tuple(self.tokens.tolist()),
            passes=tuple((sums.passes * scale).tolist()),
            relaxed=tuple((sums.relaxed * scale).tolist()),
            regret=tuple((regret if budget is None else np.minimum(regret, budget)).tolist()),
        )

    def _decide(self, rule: Policy, gamma: int | None) -> Decide:
        """Return how rounds are decided; all at once where the ledger is never read."""

        def ask(rounds: Ints, spent: Ints) -> _Outcome:
            return self._rounds.judge(rule, rounds, spent, gamma)

        if _reads_ledger(rule):
            return ask
        everything = np.arange(self._rounds.size, dtype=np.int64)
        known = ask(everything, np.zeros_like(everything))

        def look_up(rounds: Ints, spent: Ints) -> _Outcome:
            return _Outcome(known.emitted[rounds], known.relaxed[rounds], known.units[rounds])

        return look_up

    def _check_recorded(self) -> None:
        """Refuse traces whose rounds did not emit what strict emits. Raises ProtocolError."""
        if self._is_checked:
            return
        from lenity.policies.strict import Strict

        everything = np.arange(self._rounds.size, dtype=np.int64)
        found = self._rounds.judge(Strict(), everything, everything, None).emitted
        wrong = np.flatnonzero(found != self._rounds.emitted)
        if wrong.size:
            first = int(wrong[0])
            raise ProtocolError(
                f"Expected strict to emit what was recorded, got {found[first]} tokens and not "
                f"{self._rounds.emitted[first]} in round {first} of the traces. They are damaged, "
                f"or not of a strict run; trace it again."
            )
        self._is_checked = True

    def _walk(self, decide: Decide) -> _Sums:
        """Walk every request at once, a round each a step; see the module for the rule."""
        at = self._first.copy()
        sums = _Sums(*(np.zeros(self.num_requests, dtype=np.int64) for _ in range(4)))
        while (alive := np.flatnonzero(at < self._stop)).size:
            rounds = at[alive]
            found = decide(rounds, sums.units[alive])
            sums.emitted[alive] += found.emitted
            sums.passes[alive] += 1
            sums.relaxed[alive] += found.relaxed
            sums.units[alive] += found.units
            reached = np.searchsorted(self._places, self._places[rounds] + found.emitted)
            at[alive] = np.minimum(reached, self._stop[alive])
        return sums


def _reads_ledger(rule: Policy) -> bool:
    """Return whether what was spent can change what a rule decides."""
    from lenity.policies.base import BlockPolicy

    if not isinstance(rule, BlockPolicy):
        return False
    budget = getattr(rule, "budget", 0.0)  # a block rule of another kind may remember anything
    return not (budget is None or isinf(budget))


class _Rounds:
    """All rounds as padded tensors: what verify reads, and where a kept token ends the request."""

    def __init__(self, traces: Sequence[RequestTrace]) -> None:
        rounds = [traced for trace in traces for traced in trace.rounds]
        self.size = len(rounds)
        self.gamma = max((len(r.draft_ids) for r in rounds), default=0)
        self._lengths = np.array([len(r.draft_ids) for r in rounds], dtype=np.int64)
        width = self.gamma
        self._fields: dict[str, Any] = {
            "draft_ids": _pad([r.draft_ids for r in rounds], width, np.int64),
            "top_id": _pad([r.top_ids for r in rounds], width + 1, np.int64),
            "top_logit": _pad([r.top_logit for r in rounds], width + 1, np.float32),
            "draft_logit": _pad([r.draft_logit for r in rounds], width, np.float32),
            "regret": _pad([r.regret for r in rounds], width, np.float32),
            "is_guarded": _marks([r.guarded for r in rounds], width),
            "is_closed": _marks([r.closed for r in rounds], width),
        }
        self._first_end = np.array([min(r.ending, default=width) for r in rounds], dtype=np.int64)
        self._optional = _optional(rounds, width)
        self._tensors: dict[str, Any] | None = None
        self.emitted = np.array([r.emitted for r in rounds], dtype=np.int64)

    def check(self, rule: Policy, gamma: int | None) -> None:
        """Refuse a rule that reads what was not traced, or a block longer than was drafted."""
        missing = sorted(set(rule.needs) - set(self._optional))
        if missing and rule != rule.strict_limit() and self.gamma:
            raise ProtocolError(
                f"Expected traces with {', '.join(missing)} for {rule}, got traces without. Trace "
                f"the strict arm again with Tracer(divergence=True) and enough max_logits_bytes, "
                f"or by `lenity sweep --divergence`."
            )
        if gamma is not None and not 1 <= gamma <= max(self.gamma, 1):
            raise ConfigError(
                f"Expected gamma from 1 to {self.gamma}, the longest block of the traces, got "
                f"{gamma}. Trace a strict run with a larger gamma."
            )

    def judge(self, rule: Policy, rounds: Ints, spent: Ints, gamma: int | None) -> _Outcome:
        """Return what some rounds emit when their requests have spent so much."""
        import torch

        from lenity.ledger import to_units
        from lenity.policies.verify import verify_greedy
        from lenity.types import Draft, Scores

        index = torch.from_numpy(rounds)
        taken = {
            name: values[index]
            for name, values in self._as_tensors().items()
            if name in self._fields or name in rule.needs
        }
        lengths = self._lengths[rounds]
        lengths = lengths if gamma is None else np.minimum(lengths, gamma)
        draft = Draft(token_ids=taken.pop("draft_ids"), lengths=torch.from_numpy(lengths))
        is_open = ~taken.pop("is_guarded")
        if getattr(rule, "relax_special", False):
            is_open = torch.ones_like(is_open)
        is_open &= ~taken.pop("is_closed")
        scores = Scores(**taken)
        verdict = verify_greedy(
            rule, draft, scores, spent_units=torch.from_numpy(spent), may_relax=is_open
        )
        accepted = verdict.accepted_length.numpy()
        kept = np.minimum(accepted, self._first_end[rounds] + 1)
        column = torch.arange(self.gamma)
        is_relaxed = verdict.is_relaxed & (column < torch.from_numpy(kept)[:, None])
        return _Outcome(
            emitted=kept + (self._first_end[rounds] >= accepted),
            relaxed=is_relaxed.sum(-1).numpy(),
            units=(to_units(scores.regret) * is_relaxed).sum(-1).numpy(),
        )

    def _as_tensors(self) -> dict[str, Any]:
        """Return everything as tensors, made once."""
        if self._tensors is None:
            import torch

            everything = self._fields | self._optional
            self._tensors = {k: torch.from_numpy(v) for k, v in everything.items()}
        return self._tensors


def _pad(rows: Sequence[Sequence[Any]], width: int, dtype: Any) -> NDArray[Any]:
    out = np.zeros((len(rows), width), dtype=dtype)
    for values, row in zip(out, rows, strict=True):
        values[: len(row)] = row
    return out


def _marks(rows: Sequence[Sequence[int]], width: int) -> NDArray[np.bool_]:
    out = np.zeros((len(rows), width), dtype=np.bool_)
    for values, row in zip(out, rows, strict=True):
        values[list(row)] = True
    return out


def _optional(rounds: Sequence[TracedRound], width: int) -> dict[str, NDArray[Any]]:
    """Return the optional reductions that every round with a draft has, as Scores names them."""
    out: dict[str, NDArray[Any]] = {}
    drafting = [r for r in rounds if r.draft_ids]
    if all(r.second_logit is not None for r in drafting):
        out["second_logit"] = _pad([r.second_logit or () for r in rounds], width + 1, np.float32)
    if all(r.draft_rank is not None for r in drafting):
        out["draft_rank"] = _pad([r.draft_rank or () for r in rounds], width, np.int64)
    if all(r.divergence is not None for r in drafting):
        from lenity.policies.divergence import DIVERGENCES

        found = [r.divergence or {} for r in rounds]
        kinds = [_pad([row.get(k, ()) for row in found], width, np.float32) for k in DIVERGENCES]
        out["divergence"] = np.stack(kinds, -1)
    return out
