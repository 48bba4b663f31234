"""A masked-diffusion drafter that computes nothing twice, for studies that ask it the same again.

What it drafts is a function of the committed tokens, so arms that share text share drafts. And
where committed tokens see only what is before them (``prefix_attention: causal``), a pass computes
the block alone. Its drafts are masked_diffusion's; its seconds are not, so no time is measured with
it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import PrivateAttr
from torch import Tensor

from lenity.drafters.base import DraftContext, DraftSession
from lenity.drafters.masked_diffusion import MaskedDiffusion
from lenity.models import CausalLM
from lenity.models.base import KVCache, LanguageModel
from lenity.models.masked import Canvas, MaskedLM, load_masked
from lenity.types import Draft, DraftRecord
from scripts.remembering_target import RememberingTarget

MOST = 20_000
"""Drafts kept; beyond, all are forgotten."""

Row = dict[str, Tensor]


class PrefixOnce(MaskedLM):
    """A masked-diffusion model with a causal prefix that computes every committed token once."""

    _columns: Tensor | None = None
    _tree: RememberingTarget | None = None

    @torch.no_grad()
    def hidden(self, canvas: Canvas) -> Tensor:
        """Return what enters the LM head for every block position, as MaskedLM does."""
        if self.config.prefix != "causal" or not self.config.is_shifted:
            return super().hidden(canvas)
        if self._columns is not canvas.columns:  # painting a canvas keeps its columns
            self._read_prefixes(canvas)
        at = canvas.columns
        size = at.shape[1]
        old = self._is_prefix[:, None, None, :].expand(-1, 1, size, -1)
        new = canvas.is_slot[:, None, None, :].expand(-1, 1, size, -1)
        states = self.module.model(
            input_ids=canvas.token_ids.gather(1, at),
            attention_mask=torch.cat([old, new], -1),
            position_ids=canvas.positions.gather(1, at),
            use_cache=True,
            **{self._cache_name: self._cache},
        ).last_hidden_state
        self._cache.crop(-size)
        return torch.cat([self._anchor, states[:, :-1]], 1)

    def _read_prefixes(self, canvas: Canvas) -> None:
        """Look up keys and values of the committed tokens, and what their last says."""
        if self._tree is None:
            self._tree = RememberingTarget(CausalLM(self.module, name=self.name))
        ids = canvas.token_ids.clamp_max(self.vocab_size - 1)
        is_prefix = canvas.is_real & ~canvas.is_block
        rows = [own[kept].tolist() for own, kept in zip(ids, is_prefix, strict=True)]
        self._tree.new_cache()  # it may forget now
        paths = self._tree.read(rows)
        self._cache = self._tree.dynamic_cache(paths)
        counts = torch.tensor([len(row) for row in rows])
        self._is_prefix = torch.arange(int(counts.max())) < counts[:, None]
        self._anchor = torch.stack([self._tree.hidden_at(path[-1]) for path in paths])[:, None]
        self._columns = canvas.columns

    @property
    def _cache_name(self) -> str:
        # transformers 5.19 knows past_key_values only, 5.24 deprecates it
        known = inspect.signature(self.module.model.forward).parameters
        return "cache" if "cache" in known else "past_key_values"


class RememberingDrafter(MaskedDiffusion):
    """masked_diffusion, each text drafted for once."""

    _known: dict[tuple[tuple[int, ...], int], Row] = PrivateAttr(default_factory=dict)

    def open(self, target: LanguageModel, cache: KVCache) -> Any:
        """Return a session that looks up what was drafted before."""
        if len(self._known) > MOST:
            self._known.clear()
        return _Session(super().open(target, cache), self._known)


def remembering_drafter(folder: Path, *, steps: int, dtype: str = "bfloat16") -> RememberingDrafter:
    """Return the drafter of a folder; its spec is masked_diffusion's."""
    plain = load_masked(folder, dtype=getattr(torch, dtype))
    model = PrefixOnce(
        plain.module,
        plain.config,
        name=plain.name,
        tokens=plain.tokens,
        tokens_hash=plain.tokens_hash,
    )
    return RememberingDrafter(model=model, steps=steps, dtype=dtype)


class _Session:
    taps: tuple[int, ...] = ()

    def __init__(self, inner: DraftSession, known: dict[tuple[tuple[int, ...], int], Row]) -> None:
        self._inner, self._known = inner, known

    def admit(self, token_ids: Sequence[int], features: Any) -> None:
        """Do nothing."""

    def observe(self, accepted_lengths: Sequence[int], features: Any) -> None:
        """Do nothing."""

    def keep(self, rows: Sequence[int]) -> None:
        """Do nothing."""

    def propose(self, context: DraftContext) -> Draft:
        """Return the draft, asking the drafter for the rows it has not seen."""
        keys = [
            (tuple(ids), limit)
            for ids, limit in zip(context.token_ids, context.limits, strict=True)
        ]
        todo = {key: row for row, key in enumerate(keys) if key[1] and key not in self._known}
        if todo:
            rows = list(todo.values())
            asked = replace(
                context,
                token_ids=[context.token_ids[row] for row in rows],
                limits=[context.limits[row] for row in rows],
                sampling=[context.sampling[row] for row in rows],
            )
            self._known |= zip(todo, _rows(self._inner.propose(asked)), strict=True)
        return _draft([self._known.get(key, {}) for key in keys])


_RECORD = [field.name for field in fields(DraftRecord)]


def _rows(draft: Draft) -> Iterable[Row]:
    assert draft.record is not None, "a masked-diffusion drafter keeps one"
    for row, length in enumerate(draft.lengths.tolist()):
        parts = {name: getattr(draft.record, name)[row, :length].clone() for name in _RECORD}
        yield {"token_ids": draft.token_ids[row, :length].clone(), **parts}


def _draft(rows: Sequence[Row]) -> Draft:
    lengths = [len(row.get("token_ids", ())) for row in rows]
    first = next((row for row in rows if row), None)
    if first is None:
        nothing = torch.zeros(len(rows), 0, dtype=torch.int64)
        return Draft(token_ids=nothing, lengths=torch.zeros(len(rows), dtype=torch.int64))

    def joined(name: str) -> Tensor:
        out = first[name].new_zeros(len(rows), max(lengths), *first[name].shape[1:])
        for index, row in enumerate(rows):
            if row:
                out[index, : lengths[index]] = row[name]
        return out

    record = DraftRecord(**{name: joined(name) for name in _RECORD})
    return Draft(
        token_ids=joined("token_ids"),
        lengths=torch.tensor(lengths),
        confidence=record.probability,
        record=record,
    )
