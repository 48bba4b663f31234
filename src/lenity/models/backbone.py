"""A transformers causal LM seen as two parts, backbone and head, without changing it.

Both parts are views: shallow copies that share every weight with the module they came from. A model
file is never copied; what its own forward does (scales, soft caps, norms) is what happens here.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from lenity.errors import ConfigError, UnsupportedModelError
from lenity.models.base import HiddenStates
from lenity.models.cache import SlotCache
from lenity.models.hidden import tapped
from lenity.models.masks import MaskForm, build_masks


def text_config(config: Any) -> Any:
    """Return the part of a model config that describes its text decoder."""
    return config.get_text_config(decoder=True)


def positions_limit(config: Any) -> int | None:
    """Return how many positions a model was made for; None where it does not say.

    A longrope model counts as made for its original length: transformers rotates a whole forward
    by the longest position in it, so past that length cached keys would be of another rotation,
    and one long row would change the others.
    """
    text = text_config(config)
    limit = getattr(text, "max_position_embeddings", None) or getattr(text, "max_seq_len", None)
    rope = getattr(text, "rope_parameters", None) or {}
    for part in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        original = part.get("original_max_position_embeddings")
        if part.get("rope_type") == "longrope" and original:
            limit = min(limit or original, original)
    return int(limit) if limit else None


def keep_layers(config: Any, layers: Sequence[int]) -> Any:
    """Return a copy of a text config that describes only these layers, in this order.

    Every list with one entry per layer is cut the same way, whatever it is called.
    """
    kept, num_layers = copy.deepcopy(config), config.num_hidden_layers
    for name, value in vars(config).items():
        if isinstance(value, list | tuple) and len(value) == num_layers and name != "architectures":
            setattr(kept, name, type(value)([value[i] for i in layers]))
    kept.num_hidden_layers = len(layers)
    return kept


class Backbone:
    """The layers of a causal LM, run on a slot cache in the mask form it was found to want."""

    def __init__(self, module: PreTrainedModel, form: MaskForm) -> None:
        """Find the decoder and its layers. Raises UnsupportedModelError."""
        self.form = form
        self.config = text_config(module.config)
        self.decoder, self.layers_name = find_decoder(module)
        self.layers: list[nn.Module] = list(getattr(self.decoder, self.layers_name))
        self.dtype: torch.dtype = module.dtype
        self.limit = positions_limit(module.config)
        parameters = inspect.signature(type(self.decoder).forward).parameters
        # transformers 5.19 knows past_key_values only and swallows cache=; 5.24 deprecates it.
        self.cache_name = "cache" if "cache" in parameters else "past_key_values"
        self.is_unwindowed = not form.is_mapping and all(r.is_full for r in form.reaches.values())
        self._views: dict[tuple[int, ...], nn.Module] = {}

    def run(
        self,
        token_ids: Int[Tensor, "B T"],
        cache: SlotCache,
        *,
        offset: int = 0,
        taps: tuple[int, ...] = (),
        layers: tuple[int, ...] | None = None,
    ) -> HiddenStates:
        """Return the hidden states of T tokens per row at ``lengths[b] + offset + t``."""
        if token_ids.shape[0] != len(cache.lengths):
            raise ConfigError(
                f"Expected token ids for the {len(cache.lengths)} rows of the cache, got "
                f"{token_ids.shape[0]} rows. Make the cache with new_cache(batch_size)."
            )
        decoder = self.decoder if layers is None else self.view(layers)
        starts = cache.place(token_ids.shape[1], offset)
        positions = self._positions(starts, cache, token_ids.device)
        arguments: dict[str, Any] = {
            "input_ids": token_ids,
            "attention_mask": self._masks(starts, positions, cache),
            "position_ids": self._within_limit(positions, cache),
            self.cache_name: cache,
            "use_cache": True,
        }
        if not taps:
            return HiddenStates(last=decoder(**arguments)[0])
        self._check_taps(taps, layers)
        with tapped(self.layers, taps) as found:
            last = decoder(**arguments)[0]
        found.record(len(self.layers), last)
        return HiddenStates(last=last, features=found.features())

    def view(self, layers: tuple[int, ...]) -> nn.Module:
        """Return the decoder with only these layers, sharing all weights; made once."""
        if layers not in self._views:
            self._check_layers(layers)
            view = copy.copy(self.decoder)
            view._modules = dict(self.decoder._modules)
            view._modules[self.layers_name] = nn.ModuleList([self.layers[i] for i in layers])
            view.config = keep_layers(self.decoder.config, layers)
            self._views[layers] = view
        return self._views[layers]

    def _positions(self, starts: list[int], cache: SlotCache, device: torch.device) -> Tensor:
        slots = cache.slots
        if slots.start is None:
            return slots.indices(device)[1]
        return torch.arange(slots.start, slots.width, device=device)[None]

    def _within_limit(self, positions: Tensor, cache: SlotCache) -> Tensor:
        # Only padding lies beyond the limit; a table of learned positions has no row for it.
        if self.limit is not None and cache.slots.width > self.limit:
            return positions.clamp(max=self.limit - 1)
        return positions

    def _masks(self, starts: list[int], positions: Tensor, cache: SlotCache) -> Any:
        slots = cache.slots
        is_plain = slots.start == 0 or (slots.start is not None and slots.count == 1)
        if is_plain and self.form.takes_none and self.is_unwindowed:
            return None
        return build_masks(self.form, positions, slots.width, self.dtype)

    def _check_taps(self, taps: tuple[int, ...], layers: tuple[int, ...] | None) -> None:
        if layers is not None and not set(taps) <= {*layers, len(self.layers)}:
            raise ConfigError(
                f"Expected taps among the layers that run, {layers}, got {taps}. Tap layers that "
                f"run, or run more of them."
            )

    def _check_layers(self, layers: tuple[int, ...]) -> None:
        in_range = all(0 <= i < len(self.layers) for i in layers)
        if not layers or not in_range or list(layers) != sorted(set(layers)):
            raise ConfigError(
                f"Expected layer indices between 0 and {len(self.layers) - 1}, rising, got "
                f"{layers}. Name the layers to run, such as (0, 1, 2)."
            )


class Head:
    """What a causal LM does after its layers: LM head, and scales and soft caps around it."""

    def __init__(self, module: PreTrainedModel) -> None:
        """Use the bare LM head where that is bit for bit what the model computes."""
        self._view = copy.copy(module)
        self._view._modules = dict(module._modules)
        self._view._modules[_child_around(module, find_decoder(module)[0])] = _Given()
        self._bare: nn.Module | None = None
        embeddings = module.get_output_embeddings()
        self.hidden_size, self.vocab_size = _head_shape(embeddings, module)
        if embeddings is not None and self._agrees(embeddings, module):
            self._bare = embeddings

    def __call__(self, hidden: Float[Tensor, "*N H"]) -> Float[Tensor, "*N V"]:
        """Return the logits of hidden states, unknown ids included."""
        if self._bare is not None:
            return self._bare(hidden)
        rows = hidden.reshape(1, -1, hidden.shape[-1])
        logits = self._view(inputs_embeds=rows, use_cache=False).logits
        return logits.reshape(*hidden.shape[:-1], logits.shape[-1])

    def _agrees(self, embeddings: nn.Module, module: PreTrainedModel) -> bool:
        generator = torch.Generator().manual_seed(0)
        hidden = torch.randn(1, 4, self.hidden_size, generator=generator)
        # Soft caps hardly bend small logits, so some rows are large.
        hidden = hidden * torch.tensor([0.1, 1.0, 10.0, 100.0])[:, None]
        with torch.no_grad():
            hidden = hidden.to(device=module.device, dtype=module.dtype)
            return torch.equal(self(hidden), embeddings(hidden))


class _Given(nn.Module):
    """Stands in for the backbone and returns the hidden states it is given."""

    @property
    def decoder(self) -> _Given:
        return self  # some models call model.decoder instead of model

    def forward(self, *args: Any, **kwargs: Any) -> _GivenOutput:
        return _GivenOutput(kwargs["inputs_embeds"])


class _GivenOutput:
    """A model output of which only the last hidden state is known."""

    def __init__(self, hidden: Tensor) -> None:
        self.last_hidden_state = hidden

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)

    def __getitem__(self, index: int) -> Tensor | None:
        return self.last_hidden_state if index == 0 else None


def find_decoder(module: PreTrainedModel) -> tuple[nn.Module, str]:
    """Return the decoder of a causal LM and the name of its list of layers.

    Raises UnsupportedModelError.
    """
    count = text_config(module.config).num_hidden_layers
    for decoder in (module.get_decoder(), *module.children()):
        for name, child in decoder.named_children():
            if isinstance(child, nn.ModuleList) and len(child) == count:
                return decoder, name
    raise UnsupportedModelError(
        f"Expected a decoder with a list of {count} layers, found none in "
        f"{type(module).__name__}. Use a decoder-only language model."
    )


def _child_around(module: nn.Module, decoder: nn.Module) -> str:
    for name, child in module.named_children():
        if any(inner is decoder for inner in child.modules()):
            return name
    raise UnsupportedModelError(
        f"Expected a language model whose decoder is one of its parts, got "
        f"{type(module).__name__}. Load it with AutoModelForCausalLM."
    )


def _head_shape(embeddings: nn.Module | None, module: PreTrainedModel) -> tuple[int, int]:
    config = text_config(module.config)
    weight = getattr(embeddings, "weight", None)
    if weight is not None and weight.ndim == 2:
        return weight.shape[1], weight.shape[0]
    return config.hidden_size, config.vocab_size


def layer_kinds(config: Any) -> tuple[str, ...]:
    """Return the kinds of layers a text config names, in order of first appearance."""
    named = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    return tuple(dict.fromkeys(named))
