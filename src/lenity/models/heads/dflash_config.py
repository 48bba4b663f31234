"""What a DFlash or DSpark config says, in one form whoever wrote it.

Four writers use the same tensors and different words: z-lab and SpecForge (``dflash_config``),
DeepSpec (everything at the top), speculators (a nested ``transformer_layer_config``). Two things no
tensor tells are decided here:

* *taps*. z-lab, SpecForge and DeepSpec name layers whose output is taken, -1 the embeddings: our
  taps as they are. speculators counts the embeddings as 0: one more than ours.
* *slots*. ``fill_in``: slot k predicts the token at its own place and slot 0 is the anchor, so a
  block of B proposes B - 1 tokens. ``anchor_first``: slot k predicts the token after its place, so
  a block of B proposes B.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lenity.errors import ConfigError, UnsupportedModelError
from lenity.models.heads.blocks import BlockShape, read_shape
from lenity.models.heads.checkpoint import Checkpoint
from lenity.models.heads.formats import Format, format_of

Slots = Literal["fill_in", "anchor_first"]

FORMATS = (
    Format.DFLASH_ZLAB,
    Format.DFLASH_SPECULATORS,
    Format.DFLASH_DEEPSPEC,
    Format.DSPARK_DEEPSPEC,
    Format.DSPARK_SPECULATORS,
    Format.DSPARK_SPECFORGE,
)
MARKOV_KINDS = ("vanilla", "gated", "rnn")
SCALES = ("input_embedding_scale", "output_multiplier")
"""Factors of newer z-lab configs that only 1 leaves a plain DFlash."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DFlashConfig:
    """The shape of a block drafter, and how its slots and taps are meant.

    ``taps`` are layer indices of the target, 0 the output of its first layer and -1 its
    embeddings. ``shape.windows[l]`` is how far layer l looks back, None to the first token: from
    each slot, or (``is_window_from_anchor``) that many context positions before the anchor.
    ``is_causal[l]``: a slot of layer l sees only slots up to its own. ``markov_rank`` 0 means no
    Markov head.
    """

    format: Format
    shape: BlockShape
    block_size: int
    mask_token_id: int
    taps: tuple[int, ...]
    slots: Slots
    is_causal: tuple[bool, ...]
    is_window_from_anchor: bool = False
    markov_rank: int = 0
    markov_kind: str = "vanilla"
    has_confidence: bool = False
    is_confidence_markov: bool = False
    is_head_tied: bool = False

    @property
    def first_slot(self) -> int:
        """The first slot that predicts a token to propose."""
        return 1 if self.slots == "fill_in" else 0

    @property
    def max_draft_length(self) -> int:
        """Tokens one block proposes."""
        return self.block_size - self.first_slot


def read_config(
    checkpoint: Checkpoint,
    *,
    num_target_layers: int,
    slots: Slots | None = None,
    taps: tuple[int, ...] | None = None,
) -> DFlashConfig:
    """Return what the checkpoint's ``config.json`` says; ``slots`` and ``taps`` override it.

    Raises ConfigError for what is missing or does not fit the target, UnsupportedModelError for
    variants with another forward.
    """
    words = _Words(checkpoint)
    shape = read_shape(checkpoint, words.layer or checkpoint.config, "layers.0.")
    config = DFlashConfig(
        format=words.format,
        shape=shape,
        block_size=words.count("block_size"),
        mask_token_id=words.count("mask_token_id"),
        taps=taps or _taps(words, shape.num_layers, num_target_layers),
        slots=slots or _slots(words),
        is_causal=_is_causal(words, shape),
        is_window_from_anchor=words.is_speculators,
        markov_rank=_markov_rank(checkpoint, words),
        markov_kind=str(words.get("markov_head_type", "vanilla")).lower(),
        has_confidence=bool(words.get("enable_confidence_head", False)),
        is_confidence_markov=bool(words.get("confidence_head_with_markov", False)),
        is_head_tied=bool(words.get("tie_word_embeddings", False)),
    )
    _check(config, num_target_layers, words.file)
    logger.info(
        "The drafter reads the outputs of the target's layers %s; a block is %d %s slots (%s).",
        config.taps,
        config.block_size,
        config.slots,
        config.format,
    )
    return config


class _Words:
    """Settings of a config wherever their writer put them."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Find the places, and refuse what would change the forward."""
        config = checkpoint.config
        self.file = checkpoint.folder / "config.json"
        self.format = format_of(checkpoint, *FORMATS)
        self.is_speculators = self.format in (
            Format.DFLASH_SPECULATORS,
            Format.DSPARK_SPECULATORS,
        )
        self.layer: Mapping[str, Any] = config.get("transformer_layer_config") or {}
        self._places = (config.get("dflash_config") or {}, config, self.layer)
        names = [self.format, config.get("speculators_model_type"), self.get("projector_type")]
        self.names = [str(name).lower() for name in [*names, *config.get("architectures", ())]]
        changed = [key for key in SCALES if float(self.get(key, 1)) != 1]
        changed += ["shift_label"] if self.get("shift_label") else []
        if changed:
            raise UnsupportedModelError(
                f"Expected a plain DFlash or DSpark drafter, got one with {changed[0]} in "
                f"{self.file}, whose forward is another. Take another drafter for this target."
            )

    def get(self, name: str, default: Any = None) -> Any:
        """Return a setting, of the innermost place that has it; null counts as not set."""
        for place in self._places:
            if place.get(name) is not None:
                return place[name]
        return default

    def need(self, name: str) -> Any:
        """Return a setting that has no default. Raises ConfigError."""
        value = self.get(name)
        if value is None:
            raise ConfigError(
                f"Expected the setting {name!r} in {self.file}, which {self.format} drafters "
                f"have, got none. Take the config that was published with the weights."
            )
        return value

    def count(self, name: str) -> int:
        """Return a setting that has to be a whole number, 0 or more. Raises ConfigError."""
        value = self.need(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ConfigError(
                f"Expected {name!r} to be a whole number in {self.file}, got {value!r}. Take the "
                f"config that was published with the weights."
            )
        return value


def _slots(words: _Words) -> Slots:
    """Return what the config says, or where it says nothing the convention of its writer."""
    stated = words.get("sample_from_anchor")
    if stated is None:
        stated = words.format is Format.DFLASH_DEEPSPEC or any("dspark" in n for n in words.names)
    return "anchor_first" if stated else "fill_in"


def _taps(words: _Words, num_layers: int, num_target_layers: int) -> tuple[int, ...]:
    if words.is_speculators:
        return tuple(int(i) - 1 for i in words.need("aux_hidden_state_layer_ids"))
    ids = words.get("target_layer_ids")
    if ids is None:
        stated = int(words.get("num_target_layers", num_target_layers))
        return default_layer_ids(stated, num_layers)
    return tuple(int(i) for i in ids)


def _markov_rank(checkpoint: Checkpoint, words: _Words) -> int:
    key = "markov_head.markov_w1.weight"
    rank = words.get("markov_rank")
    if rank is None:
        return checkpoint.shape(key)[-1] if checkpoint.has(key) else 0
    return int(rank)


def default_layer_ids(num_target_layers: int, num_draft_layers: int) -> tuple[int, ...]:
    """Return the target's layers that a config without ``target_layer_ids`` means.

    One a draft layer, evenly spaced from layer 1 to the last but two, rounded half to even; of one
    draft layer, the middle.
    """
    if num_draft_layers == 1:
        return (num_target_layers // 2,)
    step = (num_target_layers - 4) / (num_draft_layers - 1)
    return tuple(round(1 + i * step) for i in range(num_draft_layers))


def _is_causal(words: _Words, shape: BlockShape) -> tuple[bool, ...]:
    """Return which layers' blocks are causal: the sliding ones, where nothing else is said."""
    if words.is_speculators:
        is_sliding_causal = not words.get("sliding_window_non_causal", False)
    else:
        stated = words.get("is_causal")
        if stated is not None:
            return (bool(stated),) * shape.num_layers
        is_sliding_causal = True
    return tuple(window is not None and is_sliding_causal for window in shape.windows)


def _check(config: DFlashConfig, num_target_layers: int, file: object) -> None:
    problems = {
        "a block_size of 2 or more": (config.max_draft_length >= 1, config.block_size),
        f"a markov_head_type among {', '.join(MARKOV_KINDS)}": (
            config.markov_rank == 0 or config.markov_kind in MARKOV_KINDS,
            config.markov_kind,
        ),
        f"taps that are layers of a target which has {num_target_layers}": (
            bool(config.taps) and all(-1 <= tap < num_target_layers for tap in config.taps),
            f"{list(config.taps)} (0 = the output of the first layer)",
        ),
    }
    for expected, (holds, got) in problems.items():
        if not holds:
            raise ConfigError(
                f"Expected {expected} in {file}, got {got}. Use a drafter made for this target, "
                f"or give slots= and taps= where the config is wrong."
            )
