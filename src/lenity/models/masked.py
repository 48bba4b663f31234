"""Masked-diffusion language models: a canvas of clean tokens and masks in, every position out.

No cache: each pass computes the whole canvas, in which every real token may see every other. Rows
of different lengths stand in one canvas with explicit positions, padded on either side; a row's
numbers do not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.base import LanguageModel
from lenity.models.heads.checkpoint import fill, open_checkpoint, read_json
from lenity.models.heads.vocab_map import check_vocabulary
from lenity.models.masked_formats import MaskedConfig, build_module, read_masked_config, settle
from lenity.models.quiet import quiet
from lenity.models.tokenizers import vocabulary_hash

_IGNORED = ("lm_head.weight", "model.transformer.ff_out.weight")
"""A tied LM head may be published all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canvas:
    """Rows of clean tokens, each with a block behind them, padded to one width.

    ``positions`` count within a row. ``columns[b, k]`` is where position k of row b's block stands;
    behind a row's block (``is_slot`` False) it is some place in the row.
    """

    token_ids: Int[Tensor, "B T"]
    positions: Int[Tensor, "B T"]
    is_real: Bool[Tensor, "B T"]
    columns: Int[Tensor, "B G"]
    is_slot: Bool[Tensor, "B G"]

    def painted(self, block: Int[Tensor, "B G"]) -> Canvas:
        """Return the canvas with other tokens in its blocks."""
        rows, slots = self.is_slot.nonzero(as_tuple=True)
        token_ids = self.token_ids.clone()
        token_ids[rows, self.columns[rows, slots]] = block[rows, slots]
        return replace(self, token_ids=token_ids)

    @property
    def is_block(self) -> Bool[Tensor, "B T"]:
        """Which columns belong to a block."""
        rows, slots = self.is_slot.nonzero(as_tuple=True)
        found = torch.zeros_like(self.is_real)
        found[rows, self.columns[rows, slots]] = True
        return found


def lay_out(
    prefixes: Sequence[Sequence[int]],
    sizes: Sequence[int],
    mask_token_id: int,
    *,
    side: Literal["left", "right"] = "right",
    device: torch.device | None = None,
) -> Canvas:
    """Return a canvas with ``sizes[b]`` masks behind the tokens of row b; padding on ``side``."""
    lengths = [len(ids) + size for ids, size in zip(prefixes, sizes, strict=True)]
    width = max(lengths, default=0)
    token_ids = torch.zeros(len(lengths), width, dtype=torch.int64)
    starts = torch.tensor([width - n if side == "left" else 0 for n in lengths], dtype=torch.int64)
    ends = torch.tensor([len(ids) for ids in prefixes], dtype=torch.int64)
    for row, (ids, length) in enumerate(zip(prefixes, lengths, strict=True)):
        content = torch.tensor([*ids, *[mask_token_id] * (length - len(ids))], dtype=torch.int64)
        token_ids[row, starts[row] : starts[row] + length] = content
    positions = torch.arange(width) - starts[:, None]
    counts = torch.tensor(lengths, dtype=torch.int64)[:, None]
    is_real = (positions >= 0) & (positions < counts)
    slots = torch.arange(max(sizes, default=0))
    is_slot = slots < torch.tensor(list(sizes), dtype=torch.int64)[:, None]
    columns = starts[:, None] + torch.minimum(ends[:, None] + slots, counts - 1)
    return Canvas(
        token_ids=token_ids.to(device),
        positions=positions.clamp(min=0).to(device),
        is_real=is_real.to(device),
        columns=columns.clamp(min=0).to(device),
        is_slot=is_slot.to(device),
    )


class MaskedLM:
    """A masked-diffusion model on a stock module of transformers.

    ``forbidden_ids`` are never text: the mask, other ids the config names, rows of the head no
    token stands for. ``tokens`` is what its tokenizer file says of ids, None without one;
    ``tokens_hash`` is the vocabulary_hash of the target that lenity trained it for.
    """

    def __init__(
        self,
        module: Any,
        config: MaskedConfig,
        *,
        name: str,
        tokens: Mapping[int, str] | None = None,
        tokens_hash: str | None = None,
    ) -> None:
        """Wrap a module with its weights; see ``load_masked``."""
        self.module = module.eval()
        self.config, self.name = config, name
        self.tokens, self.tokens_hash = tokens, tokens_hash
        self.vocab_size: int = config.words["vocab_size"]
        self.hidden_size: int = config.words["hidden_size"]
        self.num_layers: int = config.words["num_hidden_layers"]
        self.max_positions: int = config.words["max_position_embeddings"]
        weight: Tensor = self.module.lm_head.weight
        self.device, self.dtype = weight.device, weight.dtype
        unknown = set(range(self.vocab_size)) - tokens.keys() if tokens is not None else set()
        self.forbidden_ids = frozenset(config.special_ids | unknown | {config.mask_token_id})

    @torch.no_grad()
    def hidden(self, canvas: Canvas) -> Float[Tensor, "B G H"]:
        """Return what enters the LM head for every block position, shifted where logits are.

        A position of no block has some other position's.
        """
        # A prompt may hold an id that only the target's padded table has a row for.
        ids = canvas.token_ids.clamp_max(self.vocab_size - 1)
        states = self.module.model(
            input_ids=ids,
            attention_mask=self._sees(canvas)[:, None],
            position_ids=canvas.positions,
            use_cache=False,
        ).last_hidden_state
        at = canvas.columns
        if self.config.is_shifted:
            at = torch.where(canvas.positions.gather(1, at) > 0, at - 1, at)
        return states.take_along_dim(at[..., None], dim=1)

    @torch.no_grad()
    def logits(self, hidden: Float[Tensor, "*N H"]) -> Float[Tensor, "*N V"]:
        """Return the logits of hidden states, in the model's dtype, forbidden ids included."""
        return self.module.lm_head(hidden)

    def shifted(self, is_shifted: bool) -> MaskedLM:
        """Return the same weights, read with or without the shift."""
        config = replace(self.config, is_shifted=is_shifted)
        return MaskedLM(
            self.module, config, name=self.name, tokens=self.tokens, tokens_hash=self.tokens_hash
        )

    def describe(self) -> dict[str, Any]:
        """Return what was understood of the checkpoint: names and plain values."""
        return {
            "format": self.config.format.value,
            "shifted_logits": self.config.is_shifted,
            "prefix_attention": self.config.prefix,
            "mask_token_id": self.config.mask_token_id,
            "layers": self.num_layers,
            "hidden_size": self.hidden_size,
            "vocabulary_rows": self.vocab_size,
            "max_positions": self.max_positions,
        }

    def _sees(self, canvas: Canvas) -> Bool[Tensor, "B T T"]:
        """Return which column (second) is seen by which (first); padding by none."""
        sees = canvas.is_real[:, None, :].expand(-1, canvas.is_real.shape[1], -1)
        if self.config.prefix == "full":
            return sees
        is_before = canvas.positions[:, None, :] <= canvas.positions[..., None]
        is_block = canvas.is_block
        return sees & (is_before | (is_block[..., None] & is_block[:, None, :]))


def load_masked(
    name: str | Path,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
    revision: str | None = None,
    is_shifted: bool | None = None,
) -> MaskedLM:
    """Return the masked-diffusion model in a folder or behind a hub id.

    ``is_shifted`` overrides what its architecture says. Remote code is never run. Raises
    ConfigError, UnsupportedModelError, and ModelMismatchError naming file, key, expected and found
    shape of a tensor that is not as the config says.
    """
    place = device or torch.device("cpu")
    checkpoint = open_checkpoint(name, revision=revision)
    config = read_masked_config(checkpoint, is_shifted)
    with quiet():
        module = build_module(config)
    fill(
        module,
        checkpoint,
        names=config.key,
        ignored=_IGNORED if config.is_tied else (),
        dtype=dtype,
        device=place,
    )
    settle(module, place)
    made_for = checkpoint.made_for
    return MaskedLM(
        module,
        config,
        name=str(name),
        tokens=read_tokens(checkpoint.folder),
        tokens_hash=made_for.vocabulary_hash if made_for is not None else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftCheck:
    """How often each reading of a model predicts the masked tokens of a known text.

    Both are right predictions / ``num_tokens``.
    """

    shifted: float
    unshifted: float
    num_tokens: int

    @property
    def is_shifted(self) -> bool | None:
        """What the text says: True, False, or None where neither reading is clearly better.

        Clearly: the rates differ by more than two standard deviations of their difference.
        """
        rates = (self.shifted, self.unshifted)
        spread = sum(rate * (1 - rate) for rate in rates) / max(1, self.num_tokens)
        gap = self.shifted - self.unshifted
        return None if abs(gap) <= 2 * spread**0.5 else gap > 0


def measure_shift(model: MaskedLM, token_ids: Sequence[int], *, every: int = 4) -> ShiftCheck:
    """Return how well a text is predicted read one place to the left, and read in place.

    Every token but the first is masked once, one in ``every`` at a time. Tokens that the model
    cannot say do not count. Raises ConfigError for a text too short to mask.
    """
    text = torch.tensor(list(token_ids), dtype=torch.int64, device=model.device)
    if len(text) <= every:
        raise ConfigError(
            f"Expected a text of more than {every} tokens to measure the shift with, got "
            f"{len(text)}. Give a paragraph the model should know how to continue."
        )
    forbidden = torch.tensor(sorted(model.forbidden_ids), device=model.device)
    places = torch.arange(1, len(text), device=model.device)
    places = places[~torch.isin(text[places], forbidden)]
    right = {True: 0, False: 0}
    for first in range(every):
        masked = places[places % every == first]
        if len(masked):
            canvas = _with_masks(text, masked, model.config.mask_token_id)
            for is_shifted in right:
                logits = model.logits(model.shifted(is_shifted).hidden(canvas)).float()
                best = logits.index_fill(-1, forbidden, -torch.inf).argmax(-1)[0]
                right[is_shifted] += int((best == text[masked]).sum())
    count = max(1, len(places))
    return ShiftCheck(
        shifted=right[True] / count, unshifted=right[False] / count, num_tokens=len(places)
    )


def _with_masks(text: Int[Tensor, " T"], masked: Int[Tensor, " N"], mask_token_id: int) -> Canvas:
    return Canvas(
        token_ids=text.index_fill(0, masked, mask_token_id)[None],
        positions=torch.arange(len(text), device=text.device)[None],
        is_real=torch.ones_like(text, dtype=torch.bool)[None],
        columns=masked[None],
        is_slot=torch.ones_like(masked, dtype=torch.bool)[None],
    )


def read_tokens(folder: Path) -> dict[int, str] | None:
    """Return the token of every id from a folder's tokenizer files; None without such files.

    Only JSON is read: some of these models have a tokenizer that is remote code. Raises
    ConfigError.
    """
    whole, table = folder / "tokenizer.json", folder / "vocab.json"
    if whole.is_file():
        found = read_json(whole)
        vocab = found.get("model", {}).get("vocab", {})
        pairs = [(entry[0], index) for index, entry in enumerate(vocab)]
        named = vocab if isinstance(vocab, dict) else dict(pairs)
        added = {entry["content"]: entry["id"] for entry in found.get("added_tokens", ())}
    elif table.is_file():
        named, more = read_json(table), folder / "added_tokens.json"
        added = read_json(more) if more.is_file() else {}
    else:
        return None
    return {int(index): str(token) for token, index in {**named, **added}.items()}


def compare_tokens(target: LanguageModel, drafter: MaskedLM) -> None:
    """Check that an id means the same to both wherever both have a token for it.

    Ids that only one of them knows are never drafted; a mask is one of them in most models. Merge
    rules are not compared: a drafter is given ids. Without a tokenizer file the hash that lenity's
    training leaves is compared, or else sizes. Raises ModelMismatchError.
    """
    ours = getattr(target.tokenizer, "vocabulary", None)
    if ours is not None and drafter.tokens is not None:
        for index in sorted(ours.keys() & drafter.tokens.keys()):
            if ours[index] != drafter.tokens[index]:
                raise ModelMismatchError(
                    f"Expected {target.name} and {drafter.name} to have the same tokens, but id "
                    f"{index} is {ours[index]!r} in {target.name} and {drafter.tokens[index]!r} "
                    f"in {drafter.name}. Use a drafter made for this target's tokenizer."
                )
        return
    trained, given = drafter.tokens_hash, vocabulary_hash(target.tokenizer)
    if trained is not None and given is not None:
        if trained != given:
            raise ModelMismatchError(
                f"Expected {drafter.name} to be trained with the tokens of {target.name} (hash "
                f"{given}), got a drafter trained with others (hash {trained}). Use a drafter "
                f"made for this target's tokenizer."
            )
        return
    check_vocabulary(drafter.name, drafter.vocab_size, target)
