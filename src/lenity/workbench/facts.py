"""What a target and a drafter are, as a run remembers them: names, dtypes, and a weights' hash.

The classes are read without torch; ``target_facts`` and ``drafter_facts`` look at loaded models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue, model_validator

from lenity.workbench.records import Frozen

_SAMPLED = 64
"""Values of each weight tensor that enter the fingerprint; a checkpoint's other half is names."""


class TargetFacts(Frozen):
    """The model whose output is wanted. None: not known, and then not compared."""

    name: str
    """As it was asked for"""
    revision: str | None = None
    """Commit on the hub it came from"""
    fingerprint: str | None = None
    """Hash over names, shapes and sampled values of the weights"""
    tokenizer: str | None = None
    """Hash over the tokenizer's tokens, special ids and merges"""
    dtype: str | None = None
    """Of the weights"""
    cache_dtype: str | None = None
    """Of keys and values"""
    quantisation: str | None = None
    """Method, where the weights are quantised"""
    attention: str | None = None
    """Attention implementation"""
    device: str | None = None
    """Kind of device"""

    @model_validator(mode="before")
    @classmethod
    def _a_name_will_do(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value


class DrafterFacts(Frozen):
    """Whatever proposed the draft tokens."""

    spec: str
    """In the spelling of the command line"""
    about: dict[str, JsonValue] = Field(default_factory=dict)
    """What the drafter says of itself for this target"""
    fingerprint: str | None = None
    """Hash over its own weights, where it has some"""

    @model_validator(mode="before")
    @classmethod
    def _a_spec_will_do(cls, value: object) -> object:
        return {"spec": value} if isinstance(value, str) else value


def target_facts(target: Any) -> TargetFacts:
    """Return the facts of a loaded LanguageModel; what cannot be found out is None."""
    module = getattr(target, "module", None)
    config = getattr(module, "config", None)
    dtype = str(target.dtype).removeprefix("torch.")
    digest = getattr(target.tokenizer, "fingerprint", None)
    return TargetFacts(
        name=without_home(target.name),
        revision=getattr(config, "_commit_hash", None),
        fingerprint=_fingerprint([module]) if module is not None else None,
        tokenizer=digest().digest[:16] if digest is not None else None,
        dtype=dtype,
        cache_dtype=dtype,  # the slot cache keeps what the layers hand it
        quantisation=_quantisation(config),
        attention=getattr(config, "_attn_implementation", None),
        device=target.device.type,
    )


def drafter_facts(drafter: Any, target: Any) -> DrafterFacts:
    """Return the facts of a drafter made for ``target``; loads it if it is not loaded."""
    session = drafter.open(target, target.new_cache())
    modules = list(_modules(session, getattr(target, "module", None)))
    about = {key: value for key, value in drafter.describe(target).items() if key != "idea"}
    return DrafterFacts(
        spec=drafter.spec,
        about={key: _plain(value) for key, value in about.items()},
        fingerprint=_fingerprint(modules) if modules else None,
    )


def without_home(text: str) -> str:
    """Return the text with the user's home folder written ``~``: runs are passed on."""
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text


def _quantisation(config: Any) -> str | None:
    found = getattr(config, "quantization_config", None)
    if found is None:
        return None
    method = found.get("quant_method") if isinstance(found, Mapping) else found.quant_method
    return str(getattr(method, "value", method))


def _modules(session: Any, target_module: Any) -> Iterator[Any]:
    """Yield the weights a draft session holds, the target's own left out."""
    for value in vars(session).values():
        module = getattr(value, "module", value)
        if hasattr(module, "state_dict") and module is not target_module:
            yield module


def _fingerprint(modules: list[Any]) -> str | None:
    import torch  # loaded already: there is a module

    hashed = hashlib.sha256()
    try:
        for module in modules:
            for name, tensor in module.state_dict().items():
                flat = tensor.detach().reshape(-1)
                some = flat[:: max(1, flat.numel() // _SAMPLED)][:_SAMPLED].cpu().contiguous()
                hashed.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
                hashed.update(some.view(torch.uint8).numpy().tobytes())
    except (RuntimeError, NotImplementedError, TypeError, AttributeError):
        return None  # packed weights of some quantisers are no plain tensors
    return hashed.hexdigest()[:16]


def _plain(value: object) -> JsonValue:
    """Return a value as JSON has it, home folders left out."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return without_home(str(value))
