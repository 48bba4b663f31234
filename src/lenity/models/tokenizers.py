"""Tokenizers of transformers behind the Tokenizer face, and whether two of them are the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.base import LanguageModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What a tokenizer is, apart from its name: tokens, special ids, merges.

    ``digest`` covers all three; padding rows of a model's head are no part of it.
    """

    tokens: Mapping[int, str]
    special_ids: frozenset[int]
    merges_hash: str

    @property
    def digest(self) -> str:
        """Return a SHA-256 over the content."""
        content = [sorted(self.tokens.items()), sorted(self.special_ids), self.merges_hash]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


class HFTokenizer:
    """A transformers tokenizer as the Tokenizer face.

    ``special_ids`` are no text: bos, eos, padding, turn markers.
    """

    def __init__(self, tokenizer: Any) -> None:
        """Wrap a loaded tokenizer; vocabulary and chat template are read when needed."""
        self.tokenizer = tokenizer
        added = getattr(tokenizer, "added_tokens_decoder", {})
        marked = {index for index, token in added.items() if token.special}
        self.special_ids: frozenset[int] = frozenset(marked | set(tokenizer.all_special_ids))

    @cached_property
    def vocabulary(self) -> dict[int, str]:
        """Return the token of every id, added tokens included."""
        return {index: token for token, index in self.tokenizer.get_vocab().items()}

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Return the end-of-sequence id, if the tokenizer has one."""
        eos = self.tokenizer.eos_token_id
        return frozenset() if eos is None else frozenset({int(eos)})

    def encode(self, text: str) -> list[int]:
        """Return the ids of a raw prompt, with the special tokens the tokenizer adds itself."""
        _check_unicode(text)
        return list(self.tokenizer(text, verbose=False)["input_ids"])

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the ids of a conversation, ready for the assistant's reply.

        Raises ConfigError when the tokenizer has no chat template, or the template refuses.
        """
        if not self.tokenizer.chat_template:
            raise ConfigError(
                "Expected a tokenizer with a chat template, got one without. Use the plain-text "
                "prompt form, or a target that was trained to chat."
            )
        for message in messages:
            _check_unicode(str(message.get("content", "")))
        try:
            encoded = self.tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, tokenize=True, return_dict=True
            )
        except Exception as error:  # a template is a program of its own, and raises what it likes
            raise ConfigError(
                f"Expected messages the chat template takes, got {type(error).__name__} from it: "
                f"{error}. Change the roles or their order, or use the plain-text prompt form."
            ) from None
        return list(encoded["input_ids"])

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Return the text of ids; incomplete UTF-8 shows as U+FFFD."""
        return self.tokenizer.decode(
            list(token_ids),
            skip_special_tokens=skip_special,
            clean_up_tokenization_spaces=False,
        )

    def fingerprint(self) -> Fingerprint:
        """Return the content of the tokenizer, for comparing it with another."""
        return Fingerprint(
            tokens=self.vocabulary, special_ids=self.special_ids, merges_hash=self._merges_hash()
        )

    def _merges_hash(self) -> str:
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        model = json.loads(backend.to_str())["model"] if backend is not None else {}
        return hashlib.sha256(json.dumps(model.get("merges")).encode()).hexdigest()


def vocabulary_hash(tokenizer: Any) -> str | None:
    """Return 16 hex digits of the SHA-256 of every id's token, None where tokens are not known."""
    tokens = getattr(tokenizer, "vocabulary", None)
    return None if tokens is None else _short_hash(json.dumps(sorted(tokens.items())))


def template_hash(tokenizer: Any) -> str | None:
    """Return 16 hex digits of the SHA-256 of the chat template's text, None where there is none.

    ``tokenizer`` is a HFTokenizer or what it wraps. Of several named templates all count, as JSON.
    """
    template = getattr(getattr(tokenizer, "tokenizer", tokenizer), "chat_template", None)
    if not template:
        return None
    is_text = isinstance(template, str)
    return _short_hash(template if is_text else json.dumps(template, sort_keys=True))


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def compare_vocabularies(target: LanguageModel, drafter: LanguageModel) -> None:
    """Check that ids mean the same to both models. Raises ModelMismatchError.

    Tokens are compared id by id, so equal sizes prove nothing and unequal padding does no harm.
    Where a model has no tokenizer only the sizes can be compared.
    """
    ours, theirs = _fingerprint(target), _fingerprint(drafter)
    if ours is None or theirs is None:
        _compare_sizes(target, drafter)
        return
    _compare_tokens(ours, theirs, target.name, drafter.name)
    if ours.special_ids != theirs.special_ids:
        index = min(ours.special_ids ^ theirs.special_ids)
        owner = target.name if index in ours.special_ids else drafter.name
        raise ModelMismatchError(
            f"Expected the same special tokens in {target.name} and {drafter.name}, but id {index} "
            f"({ours.tokens.get(index)!r}) is special only in {owner}. Use a drafter made for this "
            f"target."
        )
    if ours.merges_hash != theirs.merges_hash:
        raise ModelMismatchError(
            f"Expected {target.name} and {drafter.name} to split text alike; their tokens are "
            f"equal, their merge rules are not. Use a drafter made for this target."
        )


def _fingerprint(model: LanguageModel) -> Fingerprint | None:
    make = getattr(model.tokenizer, "fingerprint", None)
    return make() if make is not None else None


def _compare_sizes(target: LanguageModel, drafter: LanguageModel) -> None:
    if target.vocab_size != drafter.vocab_size:
        raise ModelMismatchError(
            f"Expected equal vocabularies where tokenizers are missing, got {target.vocab_size} in "
            f"{target.name} and {drafter.vocab_size} in {drafter.name}. Load both with their "
            f"tokenizers, or use a drafter made for this target."
        )


def _compare_tokens(ours: Fingerprint, theirs: Fingerprint, target: str, drafter: str) -> None:
    for index in sorted(ours.tokens.keys() | theirs.tokens.keys()):
        mine, other = ours.tokens.get(index), theirs.tokens.get(index)
        if mine != other:
            raise ModelMismatchError(
                f"Expected {target} and {drafter} to have the same tokens, but id {index} is "
                f"{mine!r} in {target} and {other!r} in {drafter}. Use a drafter made for this "
                f"target."
            )


def _check_unicode(text: str) -> None:
    """Refuse lone surrogates: what undecodable bytes become on a command line."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"Expected text in Unicode, got a character that is none at position {error.start}. "
            f"Decode the input as UTF-8 first."
        ) from None
