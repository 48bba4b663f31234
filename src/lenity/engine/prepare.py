"""From what a person asks for to rows that can run; everything that can be refused is, here."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from typing import Any

from lenity.errors import ConfigError
from lenity.models.base import LanguageModel, Tokenizer
from lenity.policies import Policy, policy
from lenity.policies.base import TokenPolicy
from lenity.processors import CountPenalty, MinNewTokens, Processor, RepetitionPenalty
from lenity.requests import GenerationSettings, Request
from lenity.sequences import Sequence


def as_requests(prompts: object) -> tuple[list[Request], bool]:
    """Return the requests of what ``generate`` was given, and whether it was a single one.

    One prompt is a string, token ids, chat messages or a Request; several are a list of those.
    Token ids are integers, Python's, numpy's or of a tensor, in a list, an array or a tensor.
    """
    prompts = _listed(prompts)
    if isinstance(prompts, Request):
        return [prompts], True
    if isinstance(prompts, str) or _is_flat(prompts):
        return [Request(prompt=prompts)], True  # type: ignore[arg-type]  # checked when encoded
    if not isinstance(prompts, SequenceOf) or isinstance(prompts, bytes | bytearray):
        raise ConfigError(
            f"Expected a prompt (text, token ids or chat messages) or a list of them, got "
            f"{type(prompts).__name__}."
        )
    return [_as_request(_listed(prompt)) for prompt in prompts], False


def _listed(value: Any) -> Any:
    """Return tensors and arrays of ids, or of rows of ids, as lists, and their scalars as numbers.

    Everything else is returned as it is, a list with its items.
    """
    if isinstance(value, list | tuple):
        return [_listed(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _as_request(prompt: Any) -> Request:
    if not isinstance(prompt, Request | SequenceOf) or isinstance(prompt, bytes | bytearray):
        raise ConfigError(
            f"Expected a text, token ids or chat messages as a prompt, got {prompt!r}. Several "
            f"prompts are a list of those."
        )
    return prompt if isinstance(prompt, Request) else Request(prompt=prompt)


def _is_flat(prompts: object) -> bool:
    return (
        isinstance(prompts, SequenceOf)
        and not isinstance(prompts, bytes | bytearray)
        and bool(prompts)
        and (
            all(isinstance(item, int) for item in prompts)
            or all(isinstance(item, Mapping) for item in prompts)
        )
    )


def make_sequence(
    request: Request,
    index: int,
    target: LanguageModel,
    default_policy: Policy,
    settings: GenerationSettings,
) -> Sequence:
    """Return the row of a request. Raises ConfigError for anything that cannot run."""
    shared, settings = settings, _own_settings(request, settings)
    rule = default_policy if request.policy is None else policy(request.policy)
    name = request.name or str(index)
    if not settings.sampling.is_greedy and not isinstance(rule, TokenPolicy):
        raise ConfigError(
            f"Request {name}: {rule} is defined for greedy decoding, got temperature "
            f"{settings.temperature:g}. Use temperature=0, or policy 'strict', which is exact at "
            f"any temperature."
        )
    token_ids = encode(_listed(request.prompt), target, name)
    _check_ids(settings.stop_token_ids, target.vocab_size, f"Request {name}: stop_token_ids")
    _check_ids(settings.strict_after, target.vocab_size, f"Request {name}: strict_after")
    if settings.stop and target.tokenizer is None:
        raise ConfigError(
            f"Request {name}: stop strings need a tokenizer, and {target.name} has none. Use "
            f"stop_token_ids, or load the model with its tokenizer."
        )
    limit = target.max_positions
    if limit is not None and len(token_ids) >= limit:
        raise ConfigError(
            f"Request {name}: expected a prompt shorter than the context of {target.name}, "
            f"{limit} tokens, got {len(token_ids)}. Shorten the prompt."
        )
    ending = set(settings.stop_token_ids)
    if not settings.ignore_eos:
        ending |= {i for i in target.eos_token_ids if i < target.vocab_size}
    special = target.tokenizer.special_ids if target.tokenizer is not None else frozenset()
    longest = len(token_ids) + settings.max_new_tokens
    return Sequence(
        index=index,
        name=name,
        token_ids=list(token_ids),
        prompt_length=len(token_ids),
        settings=settings,
        policy=rule,
        requested_policy=rule.spec,
        seed=settings.seed + (index if settings is shared else 0),
        ending_ids=frozenset(ending),
        guarded_ids=frozenset(ending) | target.eos_token_ids | special,
        max_length=longest if limit is None else min(longest, limit),
        processors=_processors(settings, frozenset(ending)),
    )


def check_skippable(row: Sequence) -> None:
    """Refuse what verifier skipping is not defined for. Raises ConfigError."""
    if not row.sampling.is_greedy:
        raise ConfigError(
            f"Request {row.name}: verifier skipping is defined for greedy decoding, got "
            f"temperature {row.settings.temperature:g}. Use temperature=0, or decode without a "
            f"skip rule."
        )
    if row.processors:
        names = ", ".join(type(processor).__name__ for processor in row.processors)
        raise ConfigError(
            f"Request {row.name}: expected no logits processors under a skip rule, got {names}. A "
            f"skipped token never meets them: leave penalties, min_new_tokens and processors out, "
            f"or decode without a skip rule."
        )


def _own_settings(request: Request, shared: GenerationSettings) -> GenerationSettings:
    """Return a request's settings: its own in place of the shared ones, or changes to them."""
    own = request.settings
    if own is None:
        return shared
    return GenerationSettings.of(shared, own) if isinstance(own, Mapping) else own


def encode(prompt: Any, target: LanguageModel, name: str) -> list[int]:
    """Return the token ids of a prompt.

    Raises ConfigError for what is no prompt, an empty one, or ids outside the model.
    """
    token_ids = _encode(prompt, target, name)
    if not token_ids:
        raise ConfigError(
            f"Request {name}: expected at least one prompt token, got an empty prompt. Begin with "
            f"the model's begin-of-sequence id, or write something."
        )
    _check_ids(token_ids, target.vocab_size, f"Request {name}: prompt")
    return token_ids


def _encode(prompt: Any, target: LanguageModel, name: str) -> list[int]:
    if isinstance(prompt, str):
        return _tokenizer(target, name).encode(prompt)
    if not isinstance(prompt, SequenceOf) or isinstance(prompt, bytes | bytearray):
        raise ConfigError(
            f"Request {name}: expected a text, token ids or chat messages as a prompt, got "
            f"{prompt!r}. Give one of them."
        )
    if prompt and isinstance(prompt[0], Mapping):
        return _tokenizer(target, name).encode_chat(prompt)
    token_ids: list[int] = []
    for position, item in enumerate(prompt):
        if isinstance(item, bool) or not isinstance(item, int):
            raise ConfigError(
                f"Request {name}: expected integer token ids, got {item!r} at position "
                f"{position}. A prompt is a text, token ids or chat messages."
            )
        token_ids.append(item)
    return token_ids


def _tokenizer(target: LanguageModel, name: str) -> Tokenizer:
    if target.tokenizer is None:
        raise ConfigError(
            f"Request {name}: text needs a tokenizer, and {target.name} has none. Give token ids, "
            f"or load the model with its tokenizer."
        )
    return target.tokenizer


def _check_ids(token_ids: SequenceOf[int], vocab_size: int, what: str) -> None:
    for position, token_id in enumerate(token_ids):
        if not 0 <= token_id < vocab_size:
            raise ConfigError(
                f"{what}: expected ids in [0, {vocab_size}), got {token_id} at position "
                f"{position}. The ids belong to another tokenizer."
            )


def _processors(settings: GenerationSettings, ending: frozenset[int]) -> tuple[Processor, ...]:
    out: list[Any] = []
    if settings.repetition_penalty != 1:
        out.append(RepetitionPenalty(penalty=settings.repetition_penalty))
    if settings.presence_penalty or settings.frequency_penalty:
        out.append(
            CountPenalty(presence=settings.presence_penalty, frequency=settings.frequency_penalty)
        )
    if settings.min_new_tokens:
        out.append(MinNewTokens(count=settings.min_new_tokens, ending_ids=ending))
    return (*out, *settings.processors)
