"""The trainable part of a masked-diffusion drafter, and how it begins: layers of its target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lenity.errors import UnsupportedModelError
from lenity.models.base import LanguageModel
from lenity.models.masked_formats import MaskedConfig, build_module, settle
from lenity.training.recipe import layer_words
from lenity.training.tables import TargetTables


class Denoiser(nn.Module):
    """The layers and final norm of a masked-diffusion model, and the embedding of its mask."""

    def __init__(self, config: MaskedConfig, end_ids: frozenset[int]) -> None:
        """Build the parts without weights, on the meta device; ``end_ids`` end a reply."""
        super().__init__()
        self.config, self.end_ids = config, end_ids
        self._module: tuple[Any] = (build_module(config),)  # in a tuple: no part of this one
        self.layers, self.norm = self._module[0].model.layers, self._module[0].model.norm
        self.mask = nn.Parameter(torch.empty(config.words["hidden_size"], device="meta"))

    def fill(self, state: dict[str, Tensor], device: torch.device) -> Denoiser:
        """Take over weights; return the module, ready to train."""
        self.load_state_dict(state, assign=True)
        settle(self._module[0], device)
        return self.requires_grad_(True)

    def forward(
        self,
        x: Float[Tensor, "B T H"],
        places: Int[Tensor, "B T"],
        sees: Bool[Tensor, "B T T"],
    ) -> Float[Tensor, "B T H"]:
        """Return what enters the LM head, for tokens at ``places`` that see what ``sees`` says."""
        decoder = self._module[0].model
        return decoder(
            inputs_embeds=x, attention_mask=sees[:, None], position_ids=places, use_cache=False
        ).last_hidden_state


def stock_words(target: LanguageModel, num_layers: int) -> dict[str, Any]:
    """Return the arguments of Qwen2's config for layers shaped as the target's."""
    module: Any = getattr(target, "module", None)
    config = getattr(module, "config", None)
    rope = dict(getattr(config, "rope_parameters", None) or {})
    words = layer_words(target, num_layers, None)
    is_tied = bool(getattr(config, "tie_word_embeddings", False))
    kept = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "max_position_embeddings",
        "hidden_act",
    )
    return {name: words[name] for name in kept} | {
        "rms_norm_eps": float(getattr(config, "rms_norm_eps", 1e-6)),
        "rope_parameters": {"rope_type": "default", "rope_theta": words["rope_theta"], **rope},
        "tie_word_embeddings": is_tied,
        "attn_implementation": "sdpa",
    }


def first_weights(
    head: Denoiser,
    target: LanguageModel,
    chosen: Sequence[int],
    tables: TargetTables,
    seed: int,
) -> dict[str, Tensor]:
    """Return the target's weights under the drafter's names, float32.

    ``chosen[i]`` is the target's layer that layer i begins as. The mask begins near the mean of
    all tokens, a tenth of their spread away. Raises UnsupportedModelError.
    """
    module: Any = getattr(target, "module", None)
    decoder = module.get_decoder() if module is not None else None
    theirs = decoder.state_dict() if decoder is not None else {}
    draw = torch.Generator().manual_seed(seed)
    spread = 0.1 * tables.embedding.std(0)
    noise = torch.randn(len(spread), generator=draw).to(spread.device)
    state, used = {"mask": tables.embedding.mean(0) + spread * noise}, set()
    for name, tensor in head.state_dict().items():
        if name == "mask":
            continue
        first, _, rest = name.removeprefix("layers.").partition(".")
        source = f"layers.{chosen[int(first)]}.{rest}" if name.startswith("layers.") else name
        used.add(source)
        if source in theirs and theirs[source].shape == tensor.shape:
            state[name] = theirs[source].detach().to(torch.float32).clone()
        elif name.endswith("bias") and source not in theirs:
            state[name] = torch.zeros(tensor.shape, device=target.device)
        else:
            found = tuple(theirs[source].shape) if source in theirs else "nothing"
            raise _other_layers(target, f"{source!r} of shape {tuple(tensor.shape)}", found)
    prefixes = tuple(f"layers.{layer}." for layer in chosen)
    unused = [name for name in theirs if name.startswith(prefixes) and name not in used]
    if unused:
        raise _other_layers(target, "nothing else in its layers", repr(unused[0]))
    return state


def _other_layers(target: LanguageModel, expected: str, found: object) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"Expected {expected} in {target.name}, got {found}. A drafter can be made of the layers "
        f"of Llama and Qwen2 only."
    )
