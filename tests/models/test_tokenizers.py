import hashlib

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.base import Tokenizer
from lenity.models.causal import CausalLM
from lenity.models.tokenizers import (
    HFTokenizer,
    compare_vocabularies,
    template_hash,
    vocabulary_hash,
)
from tests.models.families import build, build_fresh

WORDS = ["<pad>", "<eos>", "<turn>", *(f"w{i}" for i in range(61))]
TEMPLATE = "{% for m in messages %}<turn> {{ m['content'] }} {% endfor %}<turn>"


def words(names: list[str], **changes: object) -> HFTokenizer:
    backend = Backend(models.WordLevel({w: i for i, w in enumerate(names)}, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    settings = {"pad_token": "<pad>", "eos_token": "<eos>", "extra_special_tokens": ["<turn>"]}
    return HFTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, **settings | changes))


def merging(merges: list[tuple[str, str]]) -> HFTokenizer:
    vocab = {token: i for i, token in enumerate(["a", "b", "c", "ab", "bc"])}
    return HFTokenizer(PreTrainedTokenizerFast(tokenizer_object=Backend(models.BPE(vocab, merges))))


def swapped(names: list[str], one: int, other: int) -> list[str]:
    names = list(names)
    names[one], names[other] = names[other], names[one]
    return names


def model(tokenizer: HFTokenizer | None, name: str, vocab_size: int = 96) -> CausalLM:
    module = build("llama") if vocab_size == 96 else build_fresh("llama", vocab_size=vocab_size)
    return CausalLM(module, tokenizer, name=name)


def test_text_to_ids_and_back():
    tokenizer = words(WORDS)
    assert isinstance(tokenizer, Tokenizer)
    ids = tokenizer.encode("w3 w0 <eos> w1")
    assert ids == [6, 3, 1, 4]
    assert tokenizer.decode(ids) == "w3 w0 w1"
    assert tokenizer.decode(ids, skip_special=False) == "w3 w0 <eos> w1"
    assert tokenizer.special_ids == {0, 1, 2}
    assert tokenizer.eos_token_ids == {1}


def test_conversations_end_where_the_assistant_begins():
    tokenizer = words(WORDS, chat_template=TEMPLATE)
    ids = tokenizer.encode_chat([{"role": "user", "content": "w3 w0"}])
    assert ids == [2, 6, 3, 2]


def test_without_a_template_there_is_no_chat():
    with pytest.raises(ConfigError, match="chat template"):
        words(WORDS).encode_chat([{"role": "user", "content": "w3"}])


def test_a_template_is_told_by_its_text():
    expected = hashlib.sha256(TEMPLATE.encode()).hexdigest()[:16]
    chatting = words(WORDS, chat_template=TEMPLATE)
    assert template_hash(chatting) == template_hash(chatting.tokenizer) == expected
    assert template_hash(words(WORDS, chat_template=TEMPLATE + "\n")) != expected
    assert template_hash(words(WORDS)) is None
    assert template_hash(None) is None
    named = words(WORDS, chat_template={"default": TEMPLATE, "tools": "x"})
    assert template_hash(named) not in (None, expected)


def test_a_vocabulary_is_told_by_its_tokens():
    assert vocabulary_hash(words(WORDS)) == vocabulary_hash(words(WORDS, chat_template=TEMPLATE))
    assert vocabulary_hash(words(WORDS)) != vocabulary_hash(words(swapped(WORDS, 10, 11)))
    assert vocabulary_hash(None) is None


def test_ids_no_token_stands_for_are_unknown():
    wrapped = model(words(WORDS), "target")
    assert wrapped.unknown_ids.tolist() == list(range(64, 96))
    assert wrapped.eos_token_ids == {1, 2}  # the tokenizer's and the config's
    assert model(None, "bare").unknown_ids.tolist() == []


def test_a_tokenizer_of_transformers_is_wrapped():
    raw = words(WORDS).tokenizer
    wrapped = CausalLM(build("llama"), raw)
    assert isinstance(wrapped.tokenizer, HFTokenizer)
    assert wrapped.tokenizer.tokenizer is raw


def test_equal_tokens_under_different_padding_agree():
    target, drafter = (
        model(words(WORDS), "target", vocab_size=160),
        model(words(WORDS), "drafter", 128),
    )
    assert target.vocab_size != drafter.vocab_size
    compare_vocabularies(target, drafter)  # raises where they do not agree


def test_two_swapped_ids_are_found_although_sizes_agree():
    drafter = model(words(swapped(WORDS, 40, 17)), "drafter")
    with pytest.raises(ModelMismatchError, match=r"id 17 is 'w14' in target and 'w37' in drafter"):
        compare_vocabularies(model(words(WORDS), "target"), drafter)


def test_a_token_only_one_side_has_is_found():
    drafter = model(words(WORDS[:-1]), "drafter")
    with pytest.raises(ModelMismatchError, match=r"id 63 is 'w60' in target and None in drafter"):
        compare_vocabularies(model(words(WORDS), "target"), drafter)


def test_special_ids_must_agree():
    drafter = model(words(WORDS, extra_special_tokens=[]), "drafter")
    with pytest.raises(ModelMismatchError, match=r"id 2 \('<turn>'\) is special only in target"):
        compare_vocabularies(model(words(WORDS), "target"), drafter)


def test_merges_must_agree():
    target = model(merging([("a", "b"), ("b", "c")]), "target")
    compare_vocabularies(target, model(merging([("a", "b"), ("b", "c")]), "drafter"))
    with pytest.raises(ModelMismatchError, match="merge rules are not"):
        compare_vocabularies(target, model(merging([("b", "c"), ("a", "b")]), "drafter"))


def test_without_tokenizers_only_sizes_are_compared():
    compare_vocabularies(model(None, "target"), model(words(WORDS), "drafter"))
    with pytest.raises(ModelMismatchError, match="96 in target and 128 in drafter"):
        compare_vocabularies(model(None, "target"), model(None, "drafter", 128))


def test_a_digest_is_a_tokenizers_content():
    assert words(WORDS).fingerprint().digest == words(WORDS).fingerprint().digest
    other = words(swapped(WORDS, 40, 17)).fingerprint().digest
    assert words(WORDS).fingerprint().digest != other


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "TemplateError from it: roles must alt"),
        ("{{ messages[7].content.x }}", "UndefinedError from it: "),
        ("{% for %}", "TemplateSyntaxError from it: "),
    ],
    ids=["raises", "undefined", "syntax"],
)
def test_a_template_that_fails_says_why(template, said):
    with pytest.raises(ConfigError, match=f"{said}.*Change the roles"):
        words(WORDS, chat_template=template).encode_chat([{"role": "user", "content": "w1"}])
