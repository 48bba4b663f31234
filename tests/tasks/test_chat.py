import re

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lenity.errors import ConfigError, ProtocolError
from lenity.models.tokenizers import HFTokenizer
from lenity.tasks.base import Item, assistant, user
from lenity.tasks.chat import (
    ChatTemplate,
    RenderOptions,
    TextEncoder,
    check_same,
    first_difference,
    render,
    template_hash,
)
from tests.engine.text import byte_tokenizer

WORDS = "<pad> <eos> system user assistant think fast low high hi there be kind Assistant: User: x"
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
    "{% if enable_thinking is defined %}{{ 'think' if enable_thinking else 'fast' }}{% endif %}"
)
ITEM = Item(id="a", messages=(user("hi there"),), prompt="hi x")


def tokenizer(template: str | None = TEMPLATE) -> HFTokenizer:
    vocab = {word: i for i, word in enumerate(WORDS.split())}
    backend = Backend(models.WordLevel(vocab, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return HFTokenizer(
        PreTrainedTokenizerFast(
            tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", chat_template=template
        )
    )


def ids(text: str) -> tuple[int, ...]:
    return tuple(WORDS.split().index(word) for word in text.split())


def test_a_conversation_goes_through_the_template():
    rendered = render(ITEM, tokenizer())
    assert rendered.prompt_ids == ids("user hi there assistant")
    assert rendered.is_chat
    assert rendered.template_hash == template_hash(TEMPLATE, RenderOptions())
    assert re.fullmatch("[0-9a-f]{16}", rendered.template_hash)


def test_ids_are_those_of_lenitys_own_face():
    face = tokenizer()
    assert list(render(ITEM, face).prompt_ids) == face.encode_chat(list(ITEM.messages))
    assert render(ITEM, face.tokenizer).prompt_ids == render(ITEM, face).prompt_ids
    assert isinstance(face, TextEncoder)
    assert isinstance(face.tokenizer, ChatTemplate)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"add_generation_prompt": False}, "user hi there"),
        ({"enable_thinking": False}, "user hi there assistant fast"),
        ({"enable_thinking": True}, "user hi there assistant think"),
        ({"system": "be kind"}, "system be kind user hi there assistant"),
    ],
)
def test_every_option_that_changes_ids_changes_the_hash(options, text):
    rendered, plain = render(ITEM, tokenizer(), RenderOptions(**options)), render(ITEM, tokenizer())
    assert rendered.prompt_ids == ids(text)
    assert rendered.template_hash != plain.template_hash


def test_another_template_is_another_hash():
    other = tokenizer(TEMPLATE + " ")
    assert render(ITEM, other).prompt_ids == render(ITEM, tokenizer()).prompt_ids
    assert render(ITEM, other).template_hash != render(ITEM, tokenizer()).template_hash


def test_arguments_of_the_template_reach_it_and_count():
    dated = tokenizer("{{ mood }} " + TEMPLATE)
    low = render(ITEM, dated, RenderOptions(template_arguments={"mood": "low"}))
    high = render(ITEM, dated, RenderOptions(template_arguments={"mood": "high"}))
    assert low.prompt_ids == ids("low user hi there assistant")
    assert low.template_hash != high.template_hash


def test_a_switch_the_template_does_not_read_is_refused():
    plain = tokenizer("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    with pytest.raises(ConfigError, match="template that reads enable_thinking"):
        render(ITEM, plain, RenderOptions(enable_thinking=False))
    with pytest.raises(ConfigError, match="template that reads mood"):
        render(ITEM, plain, RenderOptions(template_arguments={"mood": "low"}))


def test_without_a_template_the_plain_text_is_asked():
    bare = tokenizer(None)
    rendered = render(ITEM, bare)
    assert rendered.prompt_ids == ids("hi x")
    assert not rendered.is_chat
    system = render(ITEM, bare, RenderOptions(system="be kind"))
    assert system.prompt_ids == ids("be kind hi x")
    assert system.template_hash != rendered.template_hash
    with pytest.raises(ConfigError, match="got one without"):
        render(ITEM, bare, RenderOptions(form="chat"))


def test_plain_text_has_one_hash_whatever_the_tokenizer():
    chat, bare = tokenizer(), tokenizer(None)
    asked = render(ITEM, chat, RenderOptions(form="text"))
    assert asked.prompt_ids == ids("hi x")
    assert asked.template_hash == render(ITEM, bare).template_hash
    assert asked.template_hash != render(ITEM, chat).template_hash


def test_a_prompt_without_messages_is_plain_text_even_where_there_is_a_template():
    item = Item(id="b", prompt="hi there")
    assert render(item, tokenizer()).prompt_ids == ids("hi there")
    with pytest.raises(ConfigError, match="got a plain prompt"):
        render(item, tokenizer(), RenderOptions(form="chat"))


def test_conversations_become_plain_text_with_named_turns():
    item = Item(id="c", messages=(user("hi"), assistant("hi there"), user("x")))
    assert render(item, tokenizer(None)).prompt_ids == ids(
        "User: hi Assistant: hi there User: x Assistant:"
    )
    alone = Item(id="d", messages=(user("hi"),))
    assert render(alone, byte_tokenizer()).prompt_ids == tuple(b"hi")


def test_two_system_prompts_are_refused():
    item = Item(id="e", messages=({"role": "system", "content": "be kind"}, user("hi")))
    assert render(item, tokenizer()).prompt_ids == ids("system be kind user hi assistant")
    with pytest.raises(ConfigError, match="Expected no system prompt in item 'e'"):
        render(item, tokenizer(), RenderOptions(system="x"))


def test_what_a_template_refuses_is_told():
    strict = tokenizer("{{ raise_exception('no system here') }}")
    with pytest.raises(ConfigError, match=r"got roles \['system', 'user'\]: no system here"):
        render(ITEM, strict, RenderOptions(system="x"))


def test_the_template_of_plain_chats_is_taken_of_several():
    several = tokenizer()
    several.tokenizer.chat_template = {"default": TEMPLATE, "tool_use": "{{ 'x' }}"}
    assert render(ITEM, several).template_hash == render(ITEM, tokenizer()).template_hash


@pytest.mark.parametrize(
    ("ours", "theirs", "position"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1], [1, 2], 1), ([], [4], 0), ([], [], None)],
)
def test_the_first_difference(ours, theirs, position):
    assert first_difference(ours, theirs) == position
    assert first_difference(theirs, ours) == position


def test_t12_arms_rendered_differently_are_refused_with_hash_and_first_id():
    """Public reports dflash#133 and EAGLE#5: a bench whose arms differ in the template."""
    plain = render(ITEM, tokenizer())
    check_same("a", plain, render(ITEM, tokenizer()))
    silent = render(ITEM, tokenizer(), RenderOptions(add_generation_prompt=False))
    with pytest.raises(ProtocolError) as raised:
        check_same("a", plain, silent)
    said = str(raised.value)
    assert f"{plain.template_hash} and {silent.template_hash}" in said
    assert "add_generation_prompt True and False" in said
    assert f"at position 3: {ids('assistant')[0]} and the end" in said
    hasty = render(ITEM, tokenizer(), RenderOptions(enable_thinking=False))
    with pytest.raises(ProtocolError, match="enable_thinking None and False"):
        check_same("a", plain, hasty)


def test_arms_of_other_templates_are_refused_even_with_equal_ids():
    other = render(ITEM, tokenizer(TEMPLATE + " "))
    with pytest.raises(ProtocolError, match="the prompt ids are equal"):
        check_same("a", render(ITEM, tokenizer()), other)
    text = render(ITEM, tokenizer(), RenderOptions(form="text"))
    with pytest.raises(ProtocolError, match="one is plain text"):
        check_same("a", render(ITEM, tokenizer()), text)


def test_options_are_kept_as_json():
    options = RenderOptions(system="x", template_arguments={"mood": "low", "n": 3, "b": True})
    assert RenderOptions.model_validate_json(options.model_dump_json()) == options
    with pytest.raises(ValueError, match="thinking"):
        RenderOptions(thinking=True)
