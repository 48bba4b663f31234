"""What tests of trained heads need: tiny ones, a recorder, the golden loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from lenity.drafters.base import DraftContext, Drafter, DraftSession
from lenity.engine.decode import Decoder
from lenity.models.base import KVCache, LanguageModel
from lenity.models.heads.blocks import BlockShape, read_rotary
from lenity.models.heads.dflash import DFlash
from lenity.models.heads.dflash_config import DFlashConfig
from lenity.models.heads.dspark import DSpark
from lenity.models.heads.formats import Format
from lenity.models.heads.medusa import MedusaHeads
from lenity.types import Draft
from tests.drafters.rig import drafted
from tests.models.heads.golden import Golden


class RecordedSession:
    """A session that remembers what it drafted."""

    def __init__(self, session: DraftSession, drafts: list[Draft]) -> None:
        self._session, self._drafts, self.taps = session, drafts, session.taps

    def propose(self, context: DraftContext) -> Draft:
        self._drafts.append(self._session.propose(context))
        return self._drafts[-1]

    def admit(self, token_ids: Sequence[int], features: Tensor | None) -> None:
        self._session.admit(token_ids, features)

    def observe(self, accepted_lengths: Sequence[int], features: Tensor | None) -> None:
        self._session.observe(accepted_lengths, features)

    def keep(self, rows: Sequence[int]) -> None:
        self._session.keep(rows)


class Recorded(Drafter):
    """Another drafter, and everything it drafted."""

    idea: ClassVar[str] = "recorded"
    paper: ClassVar[str] = "none"

    type: Literal["recorded"] = "recorded"
    inner: Drafter
    drafts: list[Any] = Field(default_factory=list)

    @property
    def takes_pending(self) -> bool:
        return self.inner.takes_pending

    def open(self, target: LanguageModel, cache: KVCache) -> RecordedSession:
        return RecordedSession(self.inner.open(target, cache), self.drafts)


def replay(
    golden: Golden, drafter: Drafter, gamma: int, prompts: Sequence[int] = (0, 1)
) -> list[list[dict[str, Any]]]:
    """Decode golden prompts in one batch; return each row's rounds as the golden writes them.

    A golden run begins with the target's own first token as anchor, so that is where ours begins.
    It may pass its end by a block, so ours goes on long enough.
    """
    about = [golden.about["prompts"][i] for i in prompts]
    asked = [p["final"][: len(p["prompt"]) + 1] for p in about]
    recorder = Recorded(inner=drafter, drafts=[])
    decoder = Decoder(target=golden.target, drafter=recorder)
    length = about[0]["max_new_tokens"] + 2 * gamma + 2
    made = decoder.generate(asked, gamma=gamma, max_new_tokens=length)
    runs = []
    for b, prompt in enumerate(about):
        whole, place = [*asked[b], *made[b].token_ids], len(asked[b]) - 1
        assert whole[: len(prompt["final"])] == prompt["final"] == prompt["plain_greedy"]
        rounds = []
        for record, draft in zip(made[b].rounds, recorder.drafts, strict=False):
            following = whole[place + record.accepted + 1]
            rounds.append(
                {"start": place, "anchor": whole[place], "draft": drafted(draft)[b]}
                | {"accepted": record.accepted, "next": following}
            )
            place += record.accepted + 1
        runs.append(rounds)
    return runs


def tiny_medusa(
    target: LanguageModel, heads: int = 4, blocks: int = 1, seed: int = 7, own: bool = True
) -> MedusaHeads:
    """Return random heads whose choices are clear."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        rows = target.vocab_size if own else None
        return _loud(MedusaHeads(heads, blocks, target.hidden_size, rows))


def tiny_config(target: LanguageModel, **changes: Any) -> DFlashConfig:
    """Return a block drafter of two layers with grouped heads; ``changes`` are fields."""
    windows = changes.pop("windows", (None, None))
    shape = BlockShape(
        hidden_size=target.hidden_size,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        intermediate_size=48,
        windows=windows,
        rotary=read_rotary({}, 16),
        has_qk_norm=True,
    )
    fields: dict[str, Any] = {
        "format": Format.DFLASH_ZLAB,
        "shape": shape,
        "block_size": 5,
        "mask_token_id": 3,
        "taps": (0, target.num_layers - 1),
        "slots": "fill_in",
        "is_causal": (False, False),
    }
    return DFlashConfig(**fields | changes)


def tiny_dflash(target: LanguageModel, seed: int = 5, **changes: Any) -> DFlash:
    """Return a random DFlash that borrows the target's embeddings and head."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _loud(DFlash(tiny_config(target, **changes), target.hidden_size))


def tiny_dspark(target: LanguageModel, kind: str = "vanilla", seed: int = 6, **changes: Any) -> Any:
    """Return a random DSpark with a Markov head of ``kind`` and a confidence head."""
    fields: dict[str, Any] = {
        "format": Format.DSPARK_DEEPSPEC,
        "slots": "anchor_first",
        "markov_rank": 6,
        "markov_kind": kind,
        "has_confidence": True,
        "is_confidence_markov": True,
    }
    config = tiny_config(target, **fields | changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _loud(DSpark(config, target.hidden_size, vocab_size=target.vocab_size))


def _loud(module: Any) -> Any:
    """Scale weights up, so that logits are far apart and confidences not all one half."""
    with torch.no_grad():
        for weight in module.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=2 / weight.shape[1] ** 0.5)
    return module.eval().requires_grad_(False)
