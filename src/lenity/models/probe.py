"""Trying, before a model is used, whether its rejected tokens can be forgotten.

The probe verifies a block, rolls part of it back, goes on, and compares with a forward that never
had a cache. It runs on a twin: the same architecture with few, narrow layers of random weights and
a window of 8, so that every kind of layer and the edge of the window take part. The mask form is
whatever passes; nothing is decided by a model's name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from lenity.errors import UnsupportedModelError
from lenity.models.backbone import Backbone, Head, keep_layers, layer_kinds, text_config
from lenity.models.cache import SlotCache
from lenity.models.masks import MaskForm, Reach

TOLERANCE = 1e-4
"""Largest |logit difference| / largest |logit| that counts as equal in float32."""
HALF_TOLERANCE = 5e-2
"""The same where only the real model in bfloat16 or float16 could be tried."""
TWIN_WINDOW = 8
"""Sliding window of the twin: shorter than its prompts, so that something falls out."""
STATEFUL_KINDS = frozenset({"linear_attention", "conv", "hybrid", "hybrid_sliding", "recurrent"})
"""Layer kinds of transformers whose cache is a state instead of one entry per token."""
STATEFUL_CLASS = re.compile(r"(Mixer|ShortConv|DeltaNet|RecurrentBlock|SelfAttention|LSTMCell)$")
"""Classes that keep such a state, to name them in the refusal."""
SHRUNK = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "ffn_dim": 48,
    "word_embed_proj_dim": 32,
    "head_dim": 8,
    "vocab_size": 64,
    "sliding_window": TWIN_WINDOW,
    "attention_chunk_size": TWIN_WINDOW,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "qk_head_dim": 16,
    "v_head_dim": 8,
}
"""Sizes of a twin, by the names that configs use; only those a config has are set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeVerdict:
    """What the probe found out about a model.

    ``error`` is the largest logit difference relative to the largest logit; ``sensitivity`` the
    same when the rollback is left out, which must be far larger for the test to mean anything.
    ``on_twin`` is False when the real model had to be tried.
    """

    model_type: str
    layer_kinds: tuple[str, ...]
    mask_form: MaskForm
    error: float
    sensitivity: float
    on_twin: bool
    seconds: float


_VERDICTS: dict[str, ProbeVerdict] = {}


def probe(module: PreTrainedModel) -> ProbeVerdict:
    """Return the verdict on a model; once per architecture and config in a process.

    Raises UnsupportedModelError when verify-then-rollback does not equal recomputing.
    """
    key = _key(module)
    if key not in _VERDICTS:
        _refuse_recurrent(module)
        _VERDICTS[key] = _examine(module)
    return _VERDICTS[key]


def _key(module: PreTrainedModel) -> str:
    config = module.config
    return f"{type(module).__name__} {config._attn_implementation} {config.to_json_string()}"


def _refuse_recurrent(module: PreTrainedModel) -> None:
    kinds = layer_kinds(text_config(module.config))
    with_state = [kind for kind in kinds if kind in STATEFUL_KINDS]
    if not with_state and not getattr(module, "_is_stateful", False):
        return
    mixers = {type(m).__name__ for m in module.modules() if STATEFUL_CLASS.search(type(m).__name__)}
    named = ", ".join([*(repr(kind) for kind in with_state), *sorted(mixers)])
    raise UnsupportedModelError(
        f"Expected attention layers only, got {named or 'recurrent'} layers in "
        f"{type(module).__name__} (model type {module.config.model_type!r}). Their state cannot "
        f"forget rejected tokens, so verification would not be exact. Choose a target whose "
        f"layers are all attention."
    )


def _examine(module: PreTrainedModel) -> ProbeVerdict:
    started, failures = time.perf_counter(), []
    for subject, is_twin in _subjects(module):
        half = subject.dtype in (torch.bfloat16, torch.float16)
        bound = HALF_TOLERANCE if half else TOLERANCE
        measured = False
        for form in candidate_forms(subject):
            try:
                error, sensitivity = measure(subject, form)
            except UnsupportedModelError:
                raise
            except Exception as failure:  # any error of any model file means: not in this form
                failures.append(f"{form.name}: {failure}")
                continue
            measured = True
            failures.append(f"{form.name}: logits off by {error:.2g}")
            if error <= bound and sensitivity > max(10 * TOLERANCE, 3 * error):
                return _verdict(module, subject, form, error, sensitivity, is_twin, started)
        if measured and not half:
            break
    raise UnsupportedModelError(
        f"Expected {type(module).__name__} to give the same logits after rejected tokens are "
        f"forgotten as without them (to {TOLERANCE:g}), got: {'; '.join(failures)[:600]}. "
        f"Try attn_implementation='eager' or 'sdpa', or choose another target."
    )


def _verdict(
    module: PreTrainedModel,
    subject: PreTrainedModel,
    form: MaskForm,
    error: float,
    sensitivity: float,
    is_twin: bool,
    started: float,
) -> ProbeVerdict:
    config = text_config(module.config)
    reaches = reaches_of(config)[0]
    if set(reaches) != set(form.reaches):
        reaches = reaches_of(config)[-1]
    real = replace(form, reaches=reaches, takes_none=_takes_none(subject, form))
    return ProbeVerdict(
        model_type=module.config.model_type,
        layer_kinds=tuple(reaches),
        mask_form=real,
        error=error,
        sensitivity=sensitivity,
        on_twin=is_twin,
        seconds=time.perf_counter() - started,
    )


def _subjects(module: PreTrainedModel) -> Iterator[tuple[PreTrainedModel, bool]]:
    """Yield what the probe runs on, with whether it is a twin: the twin, then the model."""
    try:
        subject = build_twin(module)
    except Exception:  # shrinking knows common settings only; the real model always works
        subject = None
    if subject is not None:
        yield subject, True
    yield module, False


def reaches_of(config: Any) -> list[dict[str, Reach]]:
    """Return how far each kind of layer looks; the likeliest reading of a config first."""
    window = getattr(config, "sliding_window", None)
    chunk = getattr(config, "attention_chunk_size", None)
    known = {
        "full_attention": Reach(),
        "sliding_attention": Reach(window=window),
        "chunked_attention": Reach(chunk=chunk),
    }
    kinds = [kind for kind in layer_kinds(config) if kind in known]
    if kinds:
        return [{kind: known[kind] for kind in kinds}]
    full = {"full_attention": Reach()}
    return [full] if window is None else [{"sliding_attention": Reach(window=window)}, full]


def candidate_forms(module: PreTrainedModel) -> Iterator[MaskForm]:
    """Yield the mask forms worth trying, the likeliest first."""
    is_eager = module.config._attn_implementation == "eager"
    for reaches in reaches_of(text_config(module.config)):
        for is_mapping in (True,) if len(reaches) > 1 else (False, True):
            for is_additive in (is_eager, not is_eager):
                yield MaskForm(reaches=reaches, is_mapping=is_mapping, is_additive=is_additive)


def build_twin(module: PreTrainedModel) -> PreTrainedModel | None:
    """Return a small random model of the same class and layer kinds, in float32 on the CPU.

    None for models with more than a text part, whose parts cannot be shrunk one by one.
    """
    config = text_config(module.config)
    if config is not module.config:
        return None
    config = keep_layers(config, _representatives(config))
    config.__dict__.pop("quantization_config", None)
    has_groups = getattr(config, "num_key_value_heads", None) not in (
        None,
        config.num_attention_heads,
    )
    for name, size in SHRUNK.items():
        if isinstance(getattr(config, name, None), int):
            setattr(config, name, min(size, getattr(config, name)))
    config.num_attention_heads = 4
    if getattr(config, "num_key_value_heads", None) is not None:
        config.num_key_value_heads = 2 if has_groups else 4
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        setattr(config, name, None)
    with torch.random.fork_rng(devices=[]):
        twin = type(module)._from_config(
            config, dtype=torch.float32, attn_implementation=config._attn_implementation
        )
    return _randomise(twin.eval())


def _representatives(config: Any) -> list[int]:
    """Return layer indices in which every kind of layer occurs, two at least."""
    count = config.num_hidden_layers
    per_layer = [
        v for v in vars(config).values() if isinstance(v, list | tuple) and len(v) == count
    ]
    first: dict[str, int] = {}
    for i in range(count):
        first.setdefault(repr([values[i] for values in per_layer]), i)
    chosen = set(first.values()) | set(range(min(2, count)))
    return sorted(chosen)


@torch.no_grad()
def _randomise(twin: PreTrainedModel) -> PreTrainedModel:
    # The usual 0.02 makes narrow models deaf to their context, and the probe with them.
    generator = torch.Generator().manual_seed(0)
    for parameter in twin.parameters():
        if parameter.ndim >= 2:
            spread = 1.5 * parameter.shape[-1] ** -0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread)
    return twin


@torch.no_grad()
def measure(module: PreTrainedModel, form: MaskForm) -> tuple[float, float]:
    """Return (error, sensitivity) of verify, rollback and going on, relative to the logits.

    Two rows of different lengths run a prompt with padding, a block of which different numbers of
    tokens are kept, and another block. Its logits are compared with a forward without a cache, and,
    for the sensitivity, with one that still sees the rejected tokens.
    """
    backbone, head = Backbone(module, form), Head(module)
    lengths, kept, tokens = (11, 7), (1, 3), _tokens(module)
    prompt, block, then = tokens[:, :11], tokens[:, 11:15], tokens[:, 15:]
    cache = SlotCache(len(backbone.layers), 2)
    backbone.run(prompt, cache)
    cache.commit(lengths)
    backbone.run(block, cache)
    cache.commit(kept)
    found = head(backbone.run(then, cache).last)
    errors, effects = [], []
    for row in range(2):
        start = prompt[row, : lengths[row]]
        expected = _plain(module, start, block[row, : kept[row]], then[row])
        scale = expected.abs().max()
        forgetful = _plain(module, start, block[row], then[row])
        errors.append(_largest(found[row] - expected, scale))
        effects.append(_largest(forgetful - expected, scale))
    return max(errors), min(effects)


@torch.no_grad()
def _takes_none(module: PreTrainedModel, form: MaskForm) -> bool:
    """Return whether one row without masks gives the logits of a forward without a cache."""
    trial = replace(form, takes_none=True)
    backbone, head = Backbone(module, trial), Head(module)
    if not backbone.is_unwindowed:
        return False
    tokens = _tokens(module)[:1]
    cache = SlotCache(len(backbone.layers), 1)
    backbone.run(tokens[:, :11], cache)
    cache.commit([11])
    backbone.run(tokens[:, 11:15], cache)
    cache.commit([1])
    found = head(backbone.run(tokens[:, 15:16], cache).last)[0]
    expected = _plain(module, tokens[0, :12], tokens[0, 15:16])[-1:]
    return _largest(found - expected, expected.abs().max()) <= TOLERANCE


def _tokens(module: PreTrainedModel) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    vocab_size = text_config(module.config).vocab_size
    return torch.randint(3, vocab_size, (2, 18), generator=generator).to(module.device)


def _plain(module: PreTrainedModel, *parts: Tensor) -> Tensor:
    logits = module(input_ids=torch.cat(parts)[None], use_cache=False).logits[0]
    return logits[-parts[-1].shape[0] :]


def _largest(difference: Tensor, scale: Tensor) -> float:
    worst = (difference.abs().max() / scale).item()
    return worst if worst == worst else float("inf")
