"""Any decoder-only attention model of transformers, behind the LanguageModel face."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from lenity.errors import (
    CacheError,
    LenityError,
    OutOfMemoryError,
    UnsupportedModelError,
    is_out_of_memory,
)
from lenity.models.backbone import Backbone, Head, positions_limit, text_config
from lenity.models.base import HiddenStates, KVCache, Tokenizer
from lenity.models.cache import SlotCache
from lenity.models.probe import ProbeVerdict, probe
from lenity.models.tokenizers import HFTokenizer


class CausalLM:
    """A causal language model of transformers; implements LanguageModel.

    The module is put into eval mode and otherwise left alone. Whether verify-then-rollback equals
    recomputing is tried before the first use (``verdict``); a model for which it does not is
    refused with UnsupportedModelError.
    """

    def __init__(
        self, module: nn.Module, tokenizer: Tokenizer | Any = None, name: str | None = None
    ) -> None:
        """Wrap a module; a transformers tokenizer is wrapped too."""
        if not isinstance(module, PreTrainedModel):
            raise UnsupportedModelError(
                f"Expected a causal language model of transformers, got "
                f"{type(module).__name__}. Load it with lenity.load or AutoModelForCausalLM."
            )
        self.module = module.eval()
        self.name = name or module.config._name_or_path or type(module).__name__
        self.verdict: ProbeVerdict = probe(module)
        self._backbone = Backbone(module, self.verdict.mask_form)
        self._head = Head(module)
        self.tokenizer = _as_tokenizer(tokenizer)
        self.vocab_size = self._head.vocab_size
        self.hidden_size = self._head.hidden_size
        self.num_layers = len(self._backbone.layers)
        self.max_positions = positions_limit(module.config)
        self.device: torch.device = module.device
        self.dtype: torch.dtype = module.dtype
        self.eos_token_ids = _eos_ids(module, self.tokenizer)
        self.unknown_ids = _unknown_ids(self.tokenizer, self.vocab_size).to(self.device)

    def new_cache(self, batch_size: int = 0) -> SlotCache:
        """Return an empty cache of ``batch_size`` rows of length 0."""
        return SlotCache(self.num_layers, batch_size, label=f"{self.name} KV cache")

    @torch.no_grad()
    def hidden_states(
        self,
        token_ids: Int[Tensor, "B T"],
        cache: KVCache,
        *,
        offset: int = 0,
        taps: tuple[int, ...] = (),
        layers: tuple[int, ...] | None = None,
    ) -> HiddenStates:
        """Run the layers over T tokens per row, at positions ``lengths[b] + offset + t``.

        Row b attends to its first ``lengths[b] + offset`` cached tokens and, causally, to its own.
        ``taps`` are layer indices whose output, the residual stream, is returned; -1 is what enters
        the first layer, ``num_layers`` what enters the LM head. ``layers`` runs only these layers
        and leaves the others' caches alone. Raises CacheError, ConfigError, OutOfMemoryError.
        """
        if not isinstance(cache, SlotCache):
            raise CacheError(
                f"Expected a cache made by new_cache() of {self.name}, got "
                f"{type(cache).__name__}. Make one with model.new_cache(batch_size)."
            )
        try:
            return self._backbone.run(token_ids, cache, offset=offset, taps=taps, layers=layers)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, LenityError) or not is_out_of_memory(error):
                raise
            raise self._no_room(token_ids, cache.slots.width) from error

    def _no_room(self, token_ids: Int[Tensor, "B T"], width: int) -> OutOfMemoryError:
        """Return the error of a forward; its size is that of the widest activation of a layer.

        That is the MLP's, or the mask's where the context is longer than the MLP is wide.
        """
        config = text_config(self.module.config)
        mlp = getattr(config, "intermediate_size", None) or 4 * self.hidden_size
        rows, count = token_ids.shape
        size = rows * count * max(mlp, width) * self.dtype.itemsize / 2**30
        return OutOfMemoryError(
            f"The activations of {self.name} need {size:.3g} GiB or more on {self.device} for one "
            f"layer over {rows} rows of {count} tokens, with {width} cached positions, and that "
            f"could not be allocated. Use fewer requests at a time, shorter prompts, or a "
            f"smaller dtype."
        )

    @torch.no_grad()
    def embed(self, token_ids: Int[Tensor, "*N"]) -> Float[Tensor, "*N H"]:
        """Return the input embeddings of tokens, as the table holds them."""
        return self.module.get_input_embeddings()(token_ids)

    @torch.no_grad()
    def logits(self, hidden: Float[Tensor, "*N H"]) -> Float[Tensor, "*N V"]:
        """Return the logits of hidden states, in the model's dtype, unknown ids included."""
        return self._head(hidden)

    def __repr__(self) -> str:
        """Return the name and the sizes that matter."""
        return (
            f"CausalLM({self.name!r}, layers={self.num_layers}, hidden={self.hidden_size}, "
            f"vocabulary={self.vocab_size}, dtype={self.dtype}, device={self.device})"
        )


def _as_tokenizer(tokenizer: Any) -> Tokenizer | None:
    if tokenizer is None or isinstance(tokenizer, Tokenizer):
        return tokenizer
    return HFTokenizer(tokenizer)


def _eos_ids(module: PreTrainedModel, tokenizer: Tokenizer | None) -> frozenset[int]:
    generation = getattr(module, "generation_config", None)
    found: set[int] = set(getattr(tokenizer, "eos_token_ids", ()))
    for config in (generation, module.config):
        named = getattr(config, "eos_token_id", None)
        if named is not None:
            found |= {int(i) for i in (named if isinstance(named, list | tuple) else [named])}
            break
    return frozenset(found)


def _unknown_ids(tokenizer: Tokenizer | None, vocab_size: int) -> Int[Tensor, " U"]:
    vocabulary = getattr(tokenizer, "vocabulary", None)
    if vocabulary is None:
        return torch.empty(0, dtype=torch.int64)
    return torch.tensor([i for i in range(vocab_size) if i not in vocabulary], dtype=torch.int64)
