from examples.tiny_model import save_tiny_model
from lenity.cli.own_prompts import RANDOM_LENGTH, has_chat, own_prompts
from lenity.models.loading import load
from lenity.training.prompts import is_held_out
from tests.drafters.rig import Words, tiny_llama


def test_held_out_prompts_go_through_the_chat_template(tmp_path):
    target = load(save_tiny_model(tmp_path / "model"))
    assert has_chat(target)
    found, words = own_prompts(target, 5)
    assert len(found) == 5
    assert all(is_held_out(message["content"]) for (message,) in found)
    assert "chat template" in words


def test_without_a_template_they_are_plain_text(tmp_path):
    target = load(save_tiny_model(tmp_path / "model"))
    target.tokenizer.tokenizer.chat_template = None
    assert not has_chat(target)
    found, words = own_prompts(target, 3)
    assert all(isinstance(text, str) and is_held_out(text) for text in found)
    assert "plain text" in words


def test_without_a_tokenizer_they_are_random_ids_and_it_is_said():
    target = tiny_llama(0, vocab_size=128)
    target.tokenizer, target.eos_token_ids = None, frozenset({7})
    found, words = own_prompts(target, 40)
    assert found == own_prompts(target, 40)[0]
    assert found[0] != found[1]
    assert {len(ids) for ids in found} == {RANDOM_LENGTH}
    used = {i for ids in found for i in ids}
    assert 7 not in used, "an end-of-sequence id is no text"
    assert "random token ids" in words


def test_random_ids_are_ids_the_target_knows():
    target = tiny_llama(0, vocab_size=128, words=100)
    assert isinstance(target.tokenizer, Words)
    target.tokenizer = None
    assert max(i for ids in own_prompts(target, 40)[0] for i in ids) < 100
