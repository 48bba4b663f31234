"""Items to prompt ids, with a hash of everything that shaped them.

Two arms that differ in the template, or in an option that changes ids, have different hashes and
are not compared. Where a tokenizer has no chat template the plain text of an item is used; the
hash then stands for that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict

from lenity.errors import ConfigError, ProtocolError
from lenity.tasks.base import Item, Message
from lenity.tasks.sources import hash_text


@runtime_checkable
class TextEncoder(Protocol):
    """What rendering needs of every tokenizer: raw text to ids."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a raw prompt, with the special tokens the tokenizer adds itself."""
        ...


@runtime_checkable
class ChatTemplate(Protocol):
    """What rendering a conversation needs: a transformers tokenizer, or what behaves like one."""

    chat_template: Any

    def apply_chat_template(self, conversation: list[Message], **options: Any) -> Any:
        """Return the text of a conversation."""
        ...


class RenderOptions(BaseModel):
    """How items are rendered; frozen, for run directories and operating points keep it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    form: Literal["auto", "chat", "text"] = "auto"
    """chat: through the chat template; text: the plain prompt; auto: chat where both item and
    tokenizer can"""
    system: str | None = None
    """System prompt put before every item; none leaves it to the template"""
    add_generation_prompt: bool = True
    """Whether the prompt ends with the opening of the assistant's turn"""
    enable_thinking: bool | None = None
    """Switch of templates that have one; none leaves it to the template"""
    template_arguments: dict[str, str | bool | int] = {}
    """More names that the template reads, such as date_string"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A prompt, and what it was made by: ``template_hash`` stands for template and options."""

    prompt_ids: tuple[int, ...]
    template_hash: str
    options: RenderOptions
    is_chat: bool


def render(item: Item, tokenizer: TextEncoder, options: RenderOptions | None = None) -> Rendered:
    """Return the prompt ids of an item.

    ``tokenizer`` is one of lenity's or one of transformers. Raises ConfigError when a chat is asked
    for that the item or tokenizer cannot give, and when the template has no such switch.
    """
    options = options or RenderOptions()
    engine = _template_engine(tokenizer)
    if not _is_chat(item, engine, options):
        text = _plain_text(item)
        if options.system:
            text = f"{options.system}\n\n{text}"
        prompt_ids = tuple(tokenizer.encode(text))
        digest = text_hash(options)
        return Rendered(prompt_ids=prompt_ids, template_hash=digest, options=options, is_chat=False)
    assert engine is not None
    template = _template_text(engine)
    _check_switches(template, options)
    return Rendered(
        prompt_ids=_apply(engine, _conversation(item, options), options),
        template_hash=template_hash(template, options),
        options=options,
        is_chat=True,
    )


def template_hash(template: str, options: RenderOptions) -> str:
    """Return 16 hex digits of a chat template and the options that change ids."""
    shaping = options.model_dump(exclude={"form"})
    return hash_text(json.dumps(["chat", template, shaping], sort_keys=True))


def text_hash(options: RenderOptions) -> str:
    """Return 16 hex digits that stand for plain text: only a system prompt can change it."""
    return hash_text(json.dumps(["text", options.system]))


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Return the first position at which two prompts differ, the shorter one's end included."""
    for position, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return position
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


def check_same(item_id: str, ours: Rendered, theirs: Rendered) -> None:
    """Raise ProtocolError when two arms did not ask the same, with hashes, options and first id."""
    position = first_difference(ours.prompt_ids, theirs.prompt_ids)
    if ours.template_hash == theirs.template_hash and position is None:
        return
    raise ProtocolError(
        f"Expected both arms to render {item_id} alike, got template hash {ours.template_hash} and "
        f"{theirs.template_hash}{_option_gap(ours, theirs)}; "
        f"{_id_gap(ours.prompt_ids, theirs.prompt_ids, position)}. Render both arms with the same "
        f"template and options."
    )


def _option_gap(ours: Rendered, theirs: Rendered) -> str:
    if ours.is_chat != theirs.is_chat:
        return " (one is plain text)"
    mine, other = ours.options.model_dump(), theirs.options.model_dump()
    gaps = [f"{name} {mine[name]} and {other[name]}" for name in mine if mine[name] != other[name]]
    return f" ({', '.join(gaps)})" if gaps else ""


def _id_gap(ours: Sequence[int], theirs: Sequence[int], position: int | None) -> str:
    if position is None:
        return "the prompt ids are equal"
    mine, other = (
        str(ids[position]) if position < len(ids) else "the end" for ids in (ours, theirs)
    )
    return f"first differing prompt id at position {position}: {mine} and {other}"


def _template_engine(tokenizer: Any) -> ChatTemplate | None:
    """Return whatever renders conversations, behind a face of ours or bare; None without one."""
    engine = getattr(tokenizer, "tokenizer", tokenizer)
    if isinstance(engine, ChatTemplate) and engine.chat_template:
        return engine
    return None


def _is_chat(item: Item, engine: ChatTemplate | None, options: RenderOptions) -> bool:
    if options.form == "text":
        return False
    if options.form == "auto":
        return engine is not None and bool(item.messages)
    if engine is None:
        raise ConfigError(
            "Expected a tokenizer with a chat template, got one without. Use form=text or auto, or "
            "a target that was trained to chat."
        )
    if not item.messages:
        raise ConfigError(
            f"Expected messages in item {item.id!r}, got a plain prompt. Use form=text or auto."
        )
    return True


def _plain_text(item: Item) -> str:
    """Return the item's prompt, or its conversation as plain text, turns named if several."""
    if item.prompt is not None:
        return item.prompt
    if len(item.messages) == 1:
        return item.messages[0]["content"]
    turns = [f"{m['role'].capitalize()}: {m['content']}" for m in item.messages]
    return "\n\n".join([*turns, "Assistant:"])


def _conversation(item: Item, options: RenderOptions) -> list[Message]:
    messages = [dict(message) for message in item.messages]
    if options.system is None:
        return messages
    if messages[0]["role"] == "system":
        raise ConfigError(
            f"Expected no system prompt in item {item.id!r}, for one was given in the options. "
            f"Leave one out."
        )
    return [{"role": "system", "content": options.system}, *messages]


def _template_text(engine: Any) -> str:
    """Return the template that a conversation without tools goes through."""
    choose = getattr(engine, "get_chat_template", None)
    return str(choose() if choose is not None else engine.chat_template)


def _check_switches(template: str, options: RenderOptions) -> None:
    """Refuse a switch the template never reads: it would change nothing and be recorded."""
    asked = list(options.template_arguments)
    if options.enable_thinking is not None:
        asked.append("enable_thinking")
    for name in asked:
        if name not in template:
            raise ConfigError(
                f"Expected a chat template that reads {name}, got one that does not. Leave "
                f"{name} unset for this target."
            )


def _apply(
    engine: ChatTemplate, messages: list[Message], options: RenderOptions
) -> tuple[int, ...]:
    arguments = dict(options.template_arguments)
    if options.enable_thinking is not None:
        arguments["enable_thinking"] = options.enable_thinking
    try:
        encoded = engine.apply_chat_template(
            messages,
            add_generation_prompt=options.add_generation_prompt,
            tokenize=True,
            return_dict=True,
            **arguments,
        )
    except Exception as error:  # templates raise what their authors liked, jinja2's types included
        raise ConfigError(
            f"Expected a conversation this chat template takes, got roles "
            f"{[message['role'] for message in messages]}: {error}. Leave out the system prompt, "
            f"or use form=text."
        ) from None
    return tuple(int(index) for index in encoded["input_ids"])
