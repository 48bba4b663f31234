"""DSpark: a DFlash block, corrected from left to right, that says how far it trusts itself.

    logits_k = lm_head(h_k) + bias(x_{k-1}, h_k)          # x_{-1} is the anchor
    vanilla:  bias = W2 e, e = W1[x_{k-1}]
    gated:    bias = W2 (sigmoid(G[h; e]) * e)
    rnn:      g, c, o = J[s; e; h];  s = sigmoid(g) s + (1 - sigmoid(g)) tanh(c), s_0 = 0
              bias = W2 tanh(o)
    confidence_k = sigmoid(w [h_k; e])                    # that slot k is accepted if k - 1 was

(DeepSeek-AI 2026, "DSpark"; layouts of deepseek-ai/DeepSpec, SpecForge and speculators.) Slot k's
confidence depends on tokens before it only, so that cutting a block there leaks nothing of x_k.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lenity.models.base import LanguageModel
from lenity.models.heads.checkpoint import Checkpoint
from lenity.models.heads.dflash import DFlash, finish, tables
from lenity.models.heads.dflash_config import DFlashConfig


class MarkovHead(nn.Module):
    """What a slot's logits gain from the token before it; three kinds, one face."""

    def __init__(
        self, kind: str, num_embeddings: int, head_rows: int, rank: int, hidden_size: int
    ) -> None:
        """Build ``kind`` vanilla, gated or rnn; parameters carry their published names."""
        super().__init__()
        self.kind, self.rank = kind, rank
        self.markov_w1 = nn.Embedding(num_embeddings, rank)
        self.markov_w2 = nn.Linear(rank, head_rows, bias=False)
        if kind == "gated":
            self.gate_proj = nn.Linear(hidden_size + rank, rank)
        elif kind == "rnn":
            self.joint_proj = nn.Linear(2 * rank + hidden_size, 3 * rank)

    def embed(self, token_ids: Int[Tensor, "*N"]) -> Float[Tensor, "*N r"]:
        """Return e of tokens; ids beyond the table take its last row."""
        return self.markov_w1(token_ids.clamp_max(self.markov_w1.num_embeddings - 1))

    def forward(
        self,
        previous: Int[Tensor, "*N"],
        hidden: Float[Tensor, "*N H"],
        state: Float[Tensor, "*N r"] | None = None,
    ) -> tuple[Float[Tensor, "*N D"], Float[Tensor, "*N r"] | None]:
        """Return the bias of one slot and the state for the next one; None begins a block.

        Only ``rnn`` has a state.
        """
        embedded = self.embed(previous)
        if self.kind == "vanilla":
            return self.markov_w2(embedded), None
        if self.kind == "gated":
            gate = self.gate_proj(torch.cat([hidden, embedded], -1)).sigmoid()
            return self.markov_w2(gate * embedded), None
        state = torch.zeros_like(embedded) if state is None else state
        gate, new, out = self.joint_proj(torch.cat([state, embedded, hidden], -1)).chunk(3, -1)
        gate = gate.sigmoid()
        return self.markov_w2(out.tanh()), gate * state + (1 - gate) * new.tanh()


class ConfidenceHead(nn.Module):
    """The chance of a slot's acceptance, as a logit."""

    def __init__(self, size: int) -> None:
        """Read ``size`` numbers."""
        super().__init__()
        self.proj = nn.Linear(size, 1)

    def forward(self, x: Float[Tensor, "*N H"]) -> Float[Tensor, "*N"]:
        """Return the logit, before the sigmoid."""
        return self.proj(x).squeeze(-1)


class DSpark(DFlash):
    """A DFlash backbone with a Markov head, a confidence head, or both."""

    def __init__(
        self,
        config: DFlashConfig,
        target_hidden_size: int,
        num_embeddings: int | None = None,
        head_rows: int | None = None,
        *,
        vocab_size: int,
    ) -> None:
        """Build the backbone and the heads; ``vocab_size`` is the target's."""
        super().__init__(config, target_hidden_size, num_embeddings, head_rows)
        size, rank = config.shape.hidden_size, config.markov_rank
        self.markov_head: MarkovHead | None = None
        self.confidence_head: ConfidenceHead | None = None
        if rank:
            rows = (num_embeddings or vocab_size, head_rows or vocab_size)
            self.markov_head = MarkovHead(config.markov_kind, *rows, rank, size)
        if config.has_confidence:
            self.confidence_head = ConfidenceHead(
                size + (rank if config.is_confidence_markov else 0)
            )

    def describe(self) -> dict[str, Any]:
        """Return what was understood of the checkpoint, as plain values."""
        markov = self.markov_head
        return {
            **super().describe(),
            "markov_head": None if markov is None else f"{markov.kind}, rank {markov.rank}",
            "confidence_head": self.confidence_head is not None,
        }

    def confidence_logits(
        self, previous: Int[Tensor, "*N"], hidden: Float[Tensor, "*N H"]
    ) -> Float[Tensor, "*N"] | None:
        """Return the logit of each slot's acceptance given the token before it; None without."""
        if self.confidence_head is None:
            return None
        if self.markov_head is not None and self.config.is_confidence_markov:
            hidden = torch.cat([hidden, self.markov_head.embed(previous)], -1)
        return self.confidence_head(hidden)


def read_dspark(
    checkpoint: Checkpoint, config: DFlashConfig, target: LanguageModel, dtype: torch.dtype
) -> DSpark:
    """Return the DSpark drafter of a checkpoint, frozen, on the target's device.

    Raises ModelMismatchError, ConfigError.
    """
    with torch.device("meta"):
        head = DSpark(config, target.hidden_size, *tables(checkpoint), vocab_size=target.vocab_size)
    return finish(head, checkpoint, target, dtype)
