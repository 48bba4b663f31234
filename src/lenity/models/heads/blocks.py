"""The parts that drafter heads are built of: norm, rotary positions, gated MLP, attention.

Parameters carry the published names, so that a module's ``state_dict`` is a checkpoint's. A forward
runs on a SlotCache (committed positions, one slot per row) or, in training, without a cache.

A forward on a cache is three steps::

    positions = place(cache, T, device, offset)       # (B, T), row b from lengths[b] + offset
    masks = layer_masks(shape.windows, positions, cache.slots.width)
    x = layer(x, shape.rotary(positions, x.dtype), masks[i], cache, i)

It writes behind ``cache.lengths`` and moves nothing; ``cache.commit`` makes positions count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lenity.errors import ConfigError, UnsupportedModelError
from lenity.models.cache import SlotCache
from lenity.models.heads.checkpoint import Checkpoint
from lenity.models.masks import Reach, causal_mask

Turn = tuple[Tensor, Tensor]
"""Cosine and sine of every position, (B, 1, T, rotated dims), in the dtype of what they turn."""

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}
SCALED_ROPE = ("linear", "llama3", "yarn")
"""Rotary variants whose frequencies do not depend on the length of the text."""


class Rotary:
    """Rotary positions: frequencies, and the factor that some variants scale cos and sin with."""

    def __init__(self, frequencies: Float[Tensor, " D"], factor: float = 1.0) -> None:
        """Take D = half as many frequencies as dimensions are rotated, float32."""
        self._frequencies, self._factor = frequencies, factor

    def __call__(self, positions: Int[Tensor, "B T"], dtype: torch.dtype) -> Turn:
        """Return cosine and sine of these positions, computed in float32."""
        if self._frequencies.device != positions.device:
            self._frequencies = self._frequencies.to(positions.device)
        angles = positions[:, None, :, None].to(torch.float32) * self._frequencies
        angles = torch.cat([angles, angles], dim=-1)
        cos, sin = angles.cos() * self._factor, angles.sin() * self._factor
        return cos.to(dtype), sin.to(dtype)


def rotate(x: Float[Tensor, "B heads T dim"], turn: Turn) -> Float[Tensor, "B heads T dim"]:
    """Turn queries or keys; dimension i goes with i + D, dimensions beyond 2 D stay."""
    cos, sin = turn
    size = cos.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cos + torch.cat([-second, first], dim=-1) * sin
    return torch.cat([turned, rest], dim=-1) if rest.shape[-1] else turned


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape:
    """Sizes and variants of a head's layers.

    ``windows`` has one entry a layer: how many positions it sees, the query included; None is all.
    ``max_positions`` is None where the config does not say.
    """

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    windows: tuple[int | None, ...]
    rotary: Rotary = field(repr=False)
    norm_eps: float = 1e-6
    activation: str = "silu"
    max_positions: int | None = None
    has_qk_norm: bool = False
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    has_mlp_bias: bool = False

    @property
    def num_layers(self) -> int:
        """Layers of the head."""
        return len(self.windows)

    def describe(self) -> dict[str, Any]:
        """Return the sizes that people compare, as plain values."""
        windows = sorted({window for window in self.windows if window is not None})
        return {
            "layers": self.num_layers,
            "hidden_size": self.hidden_size,
            "attention": f"{self.num_heads} heads of {self.head_dim}, {self.num_kv_heads} of keys",
            "sliding_windows": windows or "none",
            "max_positions": self.max_positions,
        }


class RMSNorm(nn.Module):
    """Root mean square norm, computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        """Norm the last axis, of this size."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*N H"]) -> Float[Tensor, "*N H"]:
        """Return the normed vectors, in the dtype they came in."""
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class GatedMLP(nn.Module):
    """down(act(gate(x)) * up(x))."""

    def __init__(self, shape: BlockShape) -> None:
        """Build the three projections."""
        super().__init__()
        inner, outer, bias = shape.intermediate_size, shape.hidden_size, shape.has_mlp_bias
        self.gate_proj = nn.Linear(outer, inner, bias=bias)
        self.up_proj = nn.Linear(outer, inner, bias=bias)
        self.down_proj = nn.Linear(inner, outer, bias=bias)
        self._activation = ACTIVATIONS[shape.activation]

    def forward(self, x: Float[Tensor, "*N H"]) -> Float[Tensor, "*N H"]:
        """Return the block's output; the residual is the caller's."""
        return self.down_proj(self._activation(self.gate_proj(x)) * self.up_proj(x))


class Attention(nn.Module):
    """Grouped-query attention with rotary positions, in the parts a drafter composes."""

    def __init__(self, shape: BlockShape, input_size: int | None = None) -> None:
        """Read vectors of ``input_size``, which is the hidden size where it is not given."""
        super().__init__()
        size, dim = input_size or shape.hidden_size, shape.head_dim
        inner, kv = shape.num_heads * dim, shape.num_kv_heads * dim
        self.q_proj = nn.Linear(size, inner, bias=shape.has_qkv_bias)
        self.k_proj = nn.Linear(size, kv, bias=shape.has_qkv_bias)
        self.v_proj = nn.Linear(size, kv, bias=shape.has_qkv_bias)
        self.o_proj = nn.Linear(inner, shape.hidden_size, bias=shape.has_output_bias)
        self.q_norm = RMSNorm(dim, shape.norm_eps) if shape.has_qk_norm else None
        self.k_norm = RMSNorm(dim, shape.norm_eps) if shape.has_qk_norm else None
        self._dim, self._is_grouped = dim, shape.num_kv_heads != shape.num_heads

    def queries(self, x: Float[Tensor, "B T I"], turn: Turn) -> Float[Tensor, "B heads T dim"]:
        """Return normed, turned queries."""
        heads = self.q_proj(x).unflatten(-1, (-1, self._dim))
        heads = heads if self.q_norm is None else self.q_norm(heads)
        return rotate(heads.transpose(1, 2), turn)

    def keys_values(self, x: Float[Tensor, "B T I"], turn: Turn) -> tuple[Tensor, Tensor]:
        """Return normed, turned keys, and values, each (B, kv heads, T, dim)."""
        keys = self.k_proj(x).unflatten(-1, (-1, self._dim))
        keys = keys if self.k_norm is None else self.k_norm(keys)
        values = self.v_proj(x).unflatten(-1, (-1, self._dim))
        return rotate(keys.transpose(1, 2), turn), values.transpose(1, 2)

    def attend(
        self,
        queries: Float[Tensor, "B heads T dim"],
        keys: Float[Tensor, "B kv S dim"],
        values: Float[Tensor, "B kv S dim"],
        mask: Bool[Tensor, "#B 1 T S"] | None,
    ) -> Float[Tensor, "B T H"]:
        """Return the projected mixture of values; None as a mask shows every column."""
        mixed = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, enable_gqa=self._is_grouped
        )
        return self.o_proj(mixed.transpose(1, 2).flatten(2))

    def forward(
        self,
        x: Float[Tensor, "B T I"],
        turn: Turn,
        mask: Bool[Tensor, "#B 1 T S"] | None,
        cache: SlotCache | None = None,
        layer: int = 0,
    ) -> Float[Tensor, "B T H"]:
        """Write keys and values where the cache was placed, and attend to all its columns."""
        queries = self.queries(x, turn)
        keys, values = self.keys_values(x, turn)
        if cache is not None:
            keys, values = cache.update(keys, values, layer)
        return self.attend(queries, keys, values, mask)


class Layer(nn.Module):
    """An ordinary pre-norm decoder layer."""

    def __init__(self, shape: BlockShape) -> None:
        """Build norms, attention and MLP."""
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.norm_eps)
        self.mlp = GatedMLP(shape)

    def forward(
        self,
        x: Float[Tensor, "B T H"],
        turn: Turn,
        mask: Bool[Tensor, "#B 1 T S"] | None,
        cache: SlotCache | None = None,
        layer: int = 0,
    ) -> Float[Tensor, "B T H"]:
        """Return the residual stream after this layer; see Attention.forward."""
        x = x + self.self_attn(self.input_layernorm(x), turn, mask, cache, layer)
        return x + self.mlp(self.post_attention_layernorm(x))


def place(
    cache: SlotCache, count: int, device: torch.device, offset: int = 0
) -> Int[Tensor, "B T"]:
    """Let the next forward write ``count`` tokens per row; return their positions.

    Row b's stand at ``lengths[b] + offset`` and on. Raises CacheError.
    """
    cache.place(count, offset)
    return cache.slots.indices(device)[1]


def layer_masks(
    windows: Sequence[int | None], positions: Int[Tensor, "B T"], width: int
) -> list[Bool[Tensor, "B 1 T width"]]:
    """Return one causal mask per layer; layers of one window share theirs."""
    masks = {window: causal_mask(positions, width, Reach(window=window)) for window in set(windows)}
    return [masks[window] for window in windows]


def read_shape(checkpoint: Checkpoint, config: Mapping[str, Any], first: str) -> BlockShape:
    """Return the shape of a head's layers.

    Numbers come from ``config`` (the part of the checkpoint's config that describes the layers),
    variants from which tensors there are. ``first`` is the prefix of layer 0's keys, such as
    ``"midlayer."``. Raises ConfigError, ModelMismatchError, UnsupportedModelError.
    """
    num_heads = _count(checkpoint, config, "num_attention_heads")
    num_kv_heads = num_heads
    if config.get("num_key_value_heads") is not None:
        num_kv_heads = _count(checkpoint, config, "num_key_value_heads")
    # Not always hidden size / heads, and not always written.
    head_dim = config.get("head_dim") or checkpoint.shape(f"{first}self_attn.q_proj.weight")[0] // (
        num_heads
    )
    activation = str(config.get("hidden_act") or config.get("hidden_activation") or "silu")
    kind = str(config.get("model_type", "llama"))
    if activation not in ACTIVATIONS or kind.startswith("gemma"):
        raise UnsupportedModelError(
            f"Expected a drafter with llama- or qwen-like layers in {checkpoint.folder}, got "
            f"model_type {kind!r} with hidden_act {activation!r}. lenity knows "
            f"{', '.join(ACTIVATIONS)} and plain RMS norms."
        )
    limit = config.get("max_position_embeddings")
    return BlockShape(
        hidden_size=_count(checkpoint, config, "hidden_size"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=_count(checkpoint, config, "intermediate_size"),
        windows=read_windows(config, _count(checkpoint, config, "num_hidden_layers")),
        rotary=read_rotary(config, head_dim),
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        activation=activation,
        max_positions=int(limit) if limit else None,
        has_qk_norm=checkpoint.has(f"{first}self_attn.q_norm.weight"),
        has_qkv_bias=checkpoint.has(f"{first}self_attn.q_proj.bias"),
        has_output_bias=checkpoint.has(f"{first}self_attn.o_proj.bias"),
        has_mlp_bias=checkpoint.has(f"{first}mlp.gate_proj.bias"),
    )


def read_windows(config: Mapping[str, Any], num_layers: int) -> tuple[int | None, ...]:
    """Return each layer's window.

    ``layer_types`` decides where it is written; then ``use_sliding_window``; of models that have
    neither, only Mistral's layers look at ``sliding_window``.
    """
    window = config.get("sliding_window")
    kinds = config.get("layer_types")
    if kinds:
        is_sliding = [kind == "sliding_attention" for kind in kinds][:num_layers]
        is_sliding += [is_sliding[-1]] * (num_layers - len(is_sliding))
    else:
        slides = config.get("use_sliding_window", config.get("model_type") == "mistral")
        is_sliding = [bool(slides)] * num_layers
    return tuple(int(window) if window and slides else None for slides in is_sliding)


def read_rotary(config: Mapping[str, Any], head_dim: int) -> Rotary:
    """Return the rotary positions a config describes, wherever it keeps theta.

    ``rope_parameters``, ``rope_scaling`` or the config itself hold theta; the kind is written as
    ``rope_type`` or ``type``. Raises UnsupportedModelError.
    """
    written = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    if isinstance(written.get("full_attention"), Mapping):  # one entry per kind of layer
        written = dict(written["full_attention"])
    theta = float(written.get("rope_theta") or config.get("rope_theta") or 10000.0)
    kind = str(written.get("rope_type") or written.get("type") or "default")
    part = float(written.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)))
    size = int(head_dim * part)
    if kind in ("default", "mrope"):  # of text alone, mrope's three positions are one
        exponents = torch.arange(0, size, 2, dtype=torch.float32) / size
        return Rotary(1.0 / theta**exponents)
    if kind not in SCALED_ROPE:
        raise UnsupportedModelError(
            f"Expected rotary positions of kind default, {', '.join(SCALED_ROPE)}, got {kind!r}. "
            f"This drafter cannot be read yet."
        )
    return _scaled_rotary(config, written | {"rope_theta": theta, "rope_type": kind}, head_dim)


def _scaled_rotary(config: Mapping[str, Any], rope: dict[str, Any], head_dim: int) -> Rotary:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope.pop("type", None)
    described = LlamaConfig(
        hidden_size=config.get("hidden_size", head_dim),
        num_attention_heads=config.get("num_attention_heads", 1),
        head_dim=head_dim,
        max_position_embeddings=config.get("max_position_embeddings") or 2048,
        rope_parameters=rope,
    )
    frequencies, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](described, torch.device("cpu"))
    return Rotary(frequencies.to(torch.float32), float(factor))


def _count(checkpoint: Checkpoint, config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(
            f"Expected {key!r} to be a whole number of at least 1 in "
            f"{checkpoint.folder / 'config.json'}, got {value!r}. Take the config that belongs to "
            f"the weights."
        )
    return value
