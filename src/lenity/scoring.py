"""From the target's logits to the reductions that policies read, in bounded memory.

Each reduction is computed once, over chunks of rows: the peak is one chunk of ``rows x V`` values,
whatever the batch and the draft length. Comparing and reading values is exact in any dtype, so the
logits stay in the model's; what is summed (the normaliser) is summed in float32.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lenity.errors import NonFiniteError
from lenity.sampling import greedy
from lenity.types import Draft, Scores

DEFAULT_CHUNK_BYTES = 256 << 20
"""Room for one float32 chunk of logits; 256 MiB is 441 rows of a 152k vocabulary."""


def rows_per_chunk(chunk_bytes: int, vocab_size: int) -> int:
    """Return how many rows of float32 logits fit; at least one."""
    return max(1, chunk_bytes // (4 * vocab_size))


def reduce_logits(
    logits_of: Callable[[int, int], Float[Tensor, "N V"]],
    draft: Draft,
    *,
    needs: frozenset[str] = frozenset(),
    keep_logits: bool = False,
    chunk_rows: int | None = None,
) -> Scores:
    """Return the Scores of ``B * R`` rows of logits, R = G + 1, asked for chunk by chunk.

    ``logits_of(start, stop)`` returns rows ``start..stop`` of the flattened (B, R) block with
    logits processors applied and unknown ids masked. ``needs`` names optional fields of Scores;
    ``keep_logits`` keeps all of them (B, R, V), in their own dtype.
    """
    batch, rows = draft.token_ids.shape[0], draft.gamma + 1
    token_ids = torch.constant_pad_nd(draft.token_ids, (0, 1)).reshape(-1)
    total = batch * rows
    step = max(1, chunk_rows or total)
    parts = [
        _reduce_chunk(
            logits_of(start, min(start + step, total)), token_ids[start:], needs, keep_logits
        )
        for start in range(0, total, step)
    ]
    joined = parts[0] if len(parts) == 1 else _join(parts)
    fields = {name: value.reshape(batch, rows, *value.shape[1:]) for name, value in joined.items()}
    draft_logit, top_logit = fields.pop("draft_logit")[:, :-1], fields["top_logit"]
    if "draft_rank" in fields:
        fields["draft_rank"] = fields["draft_rank"][:, :-1]
    # -inf - -inf is NaN; a masked draft token costs infinitely much, whatever else is masked
    inf = float("inf")
    regret = (top_logit[:, :-1] - draft_logit).nan_to_num_(nan=inf, posinf=inf)
    return Scores(draft_logit=draft_logit, regret=regret, **fields)


def _join(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _reduce_chunk(
    logits: Float[Tensor, "N V"],
    token_ids: Int[Tensor, " T"],
    needs: frozenset[str],
    keep_logits: bool,
) -> dict[str, Tensor]:
    ids, top_id = token_ids[: logits.shape[0]], greedy(logits)
    top_logit, draft_logit = (
        logits.gather(-1, torch.stack((top_id, ids), -1)).to(torch.float32).unbind(-1)
    )
    out = {"top_id": top_id, "top_logit": top_logit, "draft_logit": draft_logit}
    if "log_normalizer" in needs:
        out["log_normalizer"] = log_normalizer(logits, top_id, out["top_logit"])
    if "second_logit" in needs:
        out["second_logit"] = logits.topk(2, dim=-1).values[:, 1].to(torch.float32)
    if "draft_rank" in needs:
        out["draft_rank"] = rank_of(logits, ids)
    if keep_logits:
        out["logits"] = logits
    return out


def log_normalizer(
    logits: Float[Tensor, "N V"], top_id: Int[Tensor, " N"], top_logit: Float[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """Return each row's log-sum-exp in float32, given its largest logit."""
    # softmax has a vectorised kernel, several times as fast on a CPU as logsumexp; the largest
    # probability is at least 1 / V, so that its logarithm loses nothing
    probs = logits.softmax(-1, dtype=torch.float32)
    return top_logit - probs.gather(-1, top_id[:, None]).squeeze(-1).log()


def rank_of(logits: Float[Tensor, "N V"], token_ids: Int[Tensor, " N"]) -> Int[Tensor, " N"]:
    """Return how many tokens come before this one: larger logit, or equal and lower id."""
    own = logits.gather(-1, token_ids[:, None])
    column = torch.arange(logits.shape[-1], device=logits.device)
    before = (logits > own) | ((logits == own) & (column < token_ids[:, None]))
    return before.sum(-1)


def check_finite(top_logit: list[list[float]], lengths: list[int], names: list[str]) -> None:
    """Refuse rows whose largest logit is NaN or infinite; only ``lengths[b] + 1`` are looked at.

    Raises NonFiniteError naming request and position.
    """
    for name, row, length in zip(names, top_logit, lengths, strict=True):
        for position, value in enumerate(row[: length + 1]):
            if value != value or value in (float("inf"), -float("inf")):
                raise NonFiniteError(
                    f"Expected finite target logits, got {value} for request {name} at block "
                    f"position {position}. Check the checkpoint and its dtype, or a logits "
                    f"processor that masks every token."
                )
