"""What a person asks for: settings of a generation, and a prompt with its own settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, SupportsIndex, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, field_validator

from lenity.processors import check_processors
from lenity.registry import build_knobs
from lenity.sampling import Sampling


@runtime_checkable
class IdArray(Protocol):
    """Token ids in a tensor or an array of one axis."""

    def tolist(self) -> Any:
        """Return the ids as Python's integers, in a list."""
        ...


Prompt = str | Sequence[SupportsIndex] | IdArray | Sequence[Mapping[str, str]]
"""A raw text, token ids (integers of any kind, or a tensor or array of them), or chat messages."""


class GenerationSettings(BaseModel):
    """How much to generate, how to choose tokens, when to stop, what to report."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, arbitrary_types_allowed=True
    )

    gamma: int = Field(default=5, ge=0, le=1024)
    """Draft tokens asked for per round; 0 is plain decoding"""
    max_new_tokens: int = Field(default=128, ge=1)
    """New tokens at most, the one that ends the request included"""
    min_new_tokens: int = Field(default=0, ge=0)
    """New tokens before an end-of-sequence or stop id may be chosen"""
    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Divides the logits; 0 chooses the argmax"""
    top_k: int | None = Field(default=None, ge=1)
    """Keep the k largest logits; none keeps all"""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Keep the most likely tokens with this mass; none keeps all"""
    min_p: float | None = Field(default=None, ge=0, le=1)
    """Keep tokens with this share of the best one's probability; none keeps all"""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the request's coins; request i of a batch that shares settings uses seed + i"""
    repetition_penalty: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Damps tokens already in prompt or text; 1 is off"""
    presence_penalty: float = Field(default=0.0, allow_inf_nan=False)
    """Nats taken from tokens already in the new text; 0 is off"""
    frequency_penalty: float = Field(default=0.0, allow_inf_nan=False)
    """Nats taken per occurrence in the new text; 0 is off"""
    processors: tuple[Any, ...] = ()
    """Further logits processors (lenity.processors.Processor), applied in order"""
    stop: tuple[str, ...] = ()
    """Strings that end the request; its text ends before them"""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end the request, beside the model's end-of-sequence ids"""
    include_stop: bool = False
    """Whether the text keeps the stop string"""
    ignore_eos: bool = False
    """Whether the model's end-of-sequence ids are ordinary tokens (fixed work)"""
    strict_after: tuple[int, ...] = ()
    """Ids in the new text after which a relaxed policy turns strict, and nothing is skipped, for
    the rest of the request, e.g. the end-of-thinking id; one in the prompt ends nothing"""
    top_logprobs: int = Field(default=0, ge=0, le=100)
    """Most likely tokens reported beside each emitted one"""
    logprobs: Literal["raw", "processed"] = "raw"
    """Log-probabilities before or after logits processors; never after temperature or filters"""

    @field_validator("stop", mode="before")
    @classmethod
    def _one_string_is_one_stop(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("stop")
    @classmethod
    def _no_empty_stop(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "" in value:
            raise ValueError(
                "expected strings that can end a text, got an empty one, which would end every "
                "request at once; leave it out"
            )
        return value

    @field_validator("processors")
    @classmethod
    def _are_processors(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        check_processors(value)
        return value

    @classmethod
    def of(cls, base: Self | None, changes: Mapping[str, Any]) -> Self:
        """Return ``base`` with changes; an unknown name is refused with the nearest one."""
        kept = {} if base is None else {k: getattr(base, k) for k in base.model_fields_set}
        built: Self = build_knobs(cls, {**kept, **changes}, "generation")
        return built

    @property
    def sampling(self) -> Sampling:
        """Return how tokens are chosen."""
        return Sampling(
            temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A prompt that wants settings or a policy of its own within a batch."""

    prompt: Prompt
    settings: GenerationSettings | Mapping[str, Any] | None = None
    policy: Any = None
    name: str | None = None
