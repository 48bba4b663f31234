"""What an EAGLE-3 config says, in one form whoever wrote it.

Three dialects share the tensors and differ in words: SafeAILab and SpecForge (flat), speculators
(nested ``transformer_layer_config``), DeepSpec (flat, ``target_layer_ids``). The trap is which
layers of the target are read, since the same key is published in two countings:

* a *layer* id, whose output is taken: our tap as it is, -1 the embeddings;
* an index into the list of hidden states, in which 0 is the embeddings: one more than our tap.

Nothing fails when this is wrong; acceptance is just low. So the rule is written down in
``find_taps``, it can be overridden, and what it found is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.heads.blocks import BlockShape, read_shape
from lenity.models.heads.checkpoint import Checkpoint
from lenity.models.heads.formats import Format, format_of

logger = logging.getLogger(__name__)

FORMATS = (
    Format.EAGLE3_SAFEAI,
    Format.EAGLE3_SPECULATORS,
    Format.EAGLE3_DEEPSPEC,
    Format.PEAGLE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Config:
    """The shape of an EAGLE-3 head and how it is wired.

    ``taps`` are layer indices of the target as LanguageModel counts them. ``draft_vocab_size``
    counts rows of the head's own LM head, ``vocab_size`` of its own embedding or of what the
    config says it was trained with (None: not said). ``mask_token_id`` is set for P-EAGLE, which
    drafts all tokens in one pass. ``draft_length`` is what it was trained or published for.
    """

    format: Format
    shape: BlockShape
    taps: tuple[int, ...]
    tap_size: int
    draft_vocab_size: int
    vocab_size: int | None = None
    has_embedding: bool = False
    is_first_residual_normed: bool = False
    is_input_normed: bool = False
    is_tap_normed: bool = False
    is_output_normed: bool = False
    mask_token_id: int | None = None
    draft_length: int | None = None

    @property
    def is_parallel(self) -> bool:
        """Whether all draft tokens come from one pass (P-EAGLE)."""
        return self.mask_token_id is not None


def read_config(
    checkpoint: Checkpoint,
    *,
    num_target_layers: int,
    target_hidden_size: int,
    taps: Sequence[int] | None = None,
    norm_output: bool | None = None,
) -> Eagle3Config:
    """Return what a checkpoint says about itself, for a target of this depth and width.

    ``taps`` (in LanguageModel's counting) and ``norm_output`` override the config. Raises
    ModelMismatchError for another target's drafter, UnsupportedModelError, ConfigError.
    """
    found = format_of(checkpoint, *FORMATS)
    config, keys = checkpoint.config, Keys(checkpoint)
    layers = config.get("transformer_layer_config") or config
    shape = read_shape(checkpoint, layers, keys.first)
    num_taps = _count_taps(checkpoint, keys, shape.hidden_size, target_hidden_size)
    embedding = keys("embed_tokens.weight")
    is_own = checkpoint.has(embedding)
    return Eagle3Config(
        format=found,
        shape=shape,
        taps=find_taps(found, config, num_taps, num_target_layers, taps),
        tap_size=target_hidden_size,
        draft_vocab_size=checkpoint.shape(keys("lm_head.weight"))[0],
        vocab_size=checkpoint.shape(embedding)[0] if is_own else layers.get("vocab_size"),
        has_embedding=is_own,
        is_first_residual_normed=_residual_flag(found, config),
        is_input_normed=checkpoint.has(keys("input_norm.weight")),
        is_tap_normed=checkpoint.has(keys("fc_norm.0.weight")),
        is_output_normed=_output_flag(config, norm_output),
        mask_token_id=_mask_token(checkpoint) if found is Format.PEAGLE else None,
        draft_length=_draft_length(config),
    )


class Keys:
    """Where a checkpoint keeps the parameters of an Eagle3Head; call it with a parameter's name.

    Layer 0 is called ``midlayer`` by some; some put ``model.`` in front of everything.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Look at the names once."""
        self._checkpoint = checkpoint
        has = checkpoint.has
        self._prefix = "model." if has("model.fc.weight") else ""
        is_mid = has(f"{self._prefix}midlayer.hidden_norm.weight")
        self.first = f"{self._prefix}{'midlayer' if is_mid else 'layers.0'}."

    def __call__(self, name: str) -> str:
        """Return the key of a parameter."""
        if name.startswith("layers.0."):
            return self.first + name.removeprefix("layers.0.")
        return name if self._checkpoint.has(name) else self._prefix + name


def find_taps(
    found: Format,
    config: Mapping[str, Any],
    num_taps: int,
    num_target_layers: int,
    override: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Return the taps of a drafter, as LanguageModel counts layers, and log them with their rule.

    The first that applies: the override; DeepSpec's ids are layers; speculators' ids are indices
    of hidden states; ids of others that begin with 1 are layers, other ones indices; without ids,
    the indices 2, n // 2 and n - 3. Raises ModelMismatchError, ConfigError.
    """
    nested = config.get("eagle_config") or {}
    written = config.get("eagle_aux_hidden_state_layer_ids") or nested.get(
        "eagle_aux_hidden_state_layer_ids"
    )
    if override is not None:
        taps, rule = tuple(override), "as given"
    elif found is Format.EAGLE3_DEEPSPEC:
        taps, rule = tuple(config["target_layer_ids"]), "target_layer_ids name layers"
    elif not written:
        indices = (2, num_target_layers // 2, num_target_layers - 3)
        taps, rule = tuple(i - 1 for i in indices), "no ids in the config: early, middle, late"
    elif found is Format.EAGLE3_SAFEAI and written[0] == 1:
        taps, rule = tuple(written), f"the ids {list(written)} begin with 1, so they name layers"
    else:
        taps = tuple(i - 1 for i in written)
        rule = f"the ids {list(written)} count the embeddings as 0"
    _check_taps(taps, rule, num_taps, num_target_layers)
    logger.info("The drafter reads the outputs of the target's layers %s (%s).", taps, rule)
    return taps


def _check_taps(taps: tuple[int, ...], rule: str, num_taps: int, num_target_layers: int) -> None:
    if len(taps) != num_taps:
        raise ConfigError(
            f"Expected {num_taps} taps, which is what the drafter's fc.weight takes, got "
            f"{list(taps)} ({rule}). Give the layers with taps=."
        )
    if not all(-1 <= tap < num_target_layers for tap in taps):
        raise ModelMismatchError(
            f"Expected taps between -1 (the embeddings) and {num_target_layers - 1}, the target's "
            f"last layer, got {list(taps)} ({rule}). The drafter was trained for a target of "
            f"another depth: use its own, or correct taps=."
        )


def _count_taps(checkpoint: Checkpoint, keys: Keys, hidden_size: int, target_size: int) -> int:
    """Return how many target states fc reads. Raises ModelMismatchError."""
    rows, columns = (*checkpoint.shape(keys("fc.weight")), 0)[:2]
    stated = checkpoint.config.get("target_hidden_size") or target_size
    if rows == hidden_size and columns and columns % target_size == 0 and stated == target_size:
        return columns // target_size
    raise checkpoint.wrong_shape(
        keys("fc.weight"),
        (hidden_size, max(1, round(columns / target_size)) * target_size),
        f"rows: the drafter's hidden size {hidden_size}; columns: a multiple of the target's "
        f"hidden size {target_size}"
        + (f"; the config says target_hidden_size {stated}" if stated != target_size else ""),
    )


def _residual_flag(found: Format, config: Mapping[str, Any]) -> bool:
    written = config.get("norm_before_residual")
    if written is None and found in (Format.EAGLE3_SPECULATORS, Format.PEAGLE):
        logger.info(
            "The drafter's config has no norm_before_residual: False is taken, its writer's "
            "default; some readers take True. Write it into config.json if acceptance is low."
        )
    return bool(written)


def _output_flag(config: Mapping[str, Any], override: bool | None) -> bool:
    written = bool(config.get("norm_output"))
    if written and override is None and not config.get("fc_norm"):
        logger.info(
            "The drafter's config says norm_output without fc_norm: its normed state is fed back "
            "(EAGLE-3.1). SpecForge before September 2026 wrote this for plain EAGLE-3: give "
            "norm_output=false if acceptance falls off after the first token."
        )
    return written if override is None else override


def _mask_token(checkpoint: Checkpoint) -> int:
    value = checkpoint.config.get("mask_token_id")
    if not isinstance(value, int):
        raise ConfigError(
            f"Expected mask_token_id in {checkpoint.folder / 'config.json'}, got {value!r}: a "
            f"drafter with mask_hidden fills its slots with it. Take the config that belongs to "
            f"the weights."
        )
    return value


def _draft_length(config: Mapping[str, Any]) -> int | None:
    spec: Mapping[str, Any] = config.get("speculators_config") or {}
    methods: Sequence[Mapping[str, Any]] = spec.get("proposal_methods") or ({},)
    found = methods[0].get("speculative_tokens") or config.get("ttt_length")
    return int(found) if found else None
