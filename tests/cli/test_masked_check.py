import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from lenity.cli.masked_check import check_shift, is_contradicted, is_masked, shift_words
from lenity.drafters import drafter
from lenity.engine.decode import Decoder
from lenity.models.loading import load
from tests.drafters.rig import tiny_llama
from tests.models.masked_tiny import masked_config, masked_folder, write

SIZE, WORDS, MASK = 64, 60, 63
SHORT = ("--prompts", "4", "-n", "40", "--gamma", "1")


def next_word():
    """Return the head that says (i + 1) mod WORDS behind the one-hot state of i."""
    head = torch.zeros(SIZE, SIZE)
    head[(torch.arange(WORDS) + 1) % WORDS, torch.arange(WORDS)] = 1
    return head


def blind(tensors):
    """Leave only embedding and head of a model: what is said depends on one token alone."""
    return {
        key: torch.ones_like(value) if value.ndim == 1 and "norm" in key else value * 0
        for key, value in tensors.items()
    } | {"model.embed_tokens.weight": torch.eye(SIZE), "lm_head.weight": next_word()}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A target that counts, and a Dream checkpoint that counts where it is read to the left."""
    sizes = {
        "vocab_size": SIZE,
        "hidden_size": SIZE,
        "intermediate_size": SIZE,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    }
    target, masked = (tmp_path_factory.mktemp(name) for name in ("target", "masked"))
    module = LlamaForCausalLM(LlamaConfig(**sizes, eos_token_id=None, bos_token_id=None))
    tensors = blind(module.state_dict())
    module.load_state_dict(tensors)
    module.save_pretrained(target)
    for part in "qkv":
        tensors[f"model.layers.0.self_attn.{part}_proj.bias"] = torch.zeros(SIZE)
    write(masked, masked_config("dream", SIZE, MASK) | sizes, tensors)
    return str(target), str(masked)


def test_a_checkpoint_is_recognised_and_said_to_be_read_rightly(run_json, places):
    found = run_json("draft-check", *places, *SHORT)
    assert found["drafter"]["family"] == "masked_diffusion"
    understood = {
        "format": "dream",
        "shifted_logits": True,
        "mask_token_id": MASK,
        "schedule": "dream",
        "steps": 2,
    }
    assert understood.items() <= found["drafter"].items()
    shift = found["shift"]
    assert shift["used"] is shift["measured"] is True
    assert shift["shifted"] > 0.5 > shift["unshifted"]
    assert shift["num_tokens"] == 4 * (16 + 40 - 1)
    assert found["looks_right"]
    assert any("which is right" in line for line in found["says"])
    assert found["arms"]["ngram"]["positions"] is not None


def test_the_wrong_reading_is_named(run, run_json, places):
    target, masked = places
    spec = f"masked_diffusion:model={masked},shift=false"
    found = run_json("draft-check", target, spec, *SHORT, exit_code=1)
    assert found["shift"]["used"] is False
    assert found["shift"]["measured"] is True
    assert found["another_reading"]["change"] == {"shift": "true"}
    done = run("draft-check", target, spec, *SHORT)
    said = " ".join(done.stdout.split())
    assert done.exit_code == 1
    assert "but it is read in place: set shift=true." in said
    assert "Read with shift=true the same weights" in said


def test_random_weights_do_not_say(tmp_path):
    target = tiny_llama(0, words=120)
    made = drafter("masked_diffusion", model=str(masked_folder(tmp_path, "llada")))
    generations = Decoder(target=target, drafter=made).generate([[5, 6, 7]], max_new_tokens=9)
    found = check_shift(made, target, generations)
    assert found["measured"] is None
    assert found["num_tokens"] == 11
    assert not is_contradicted(found)
    assert shift_words(found)[0].endswith("neither is surely right. It is read in place.")


def test_texts_that_cannot_be_read_are_left_out(places):
    target = load(places[0])
    made = drafter("masked_diffusion", model=places[1])
    short = Decoder(target=target, drafter=made).generate([[5]], max_new_tokens=2)
    found = check_shift(made, target, short)
    assert (found["num_tokens"], found["measured"]) == (0, None)


def test_other_drafters_have_no_shift():
    assert check_shift(drafter("ngram"), tiny_llama(0), []) is None
    assert shift_words(None) == []
    assert not is_contradicted(None)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"model_type": "Dream"}, True),
        ({"model_type": "llada"}, True),
        ({"model_type": "qwen2"}, False),
        ({}, False),
    ],
)
def test_a_masked_model_is_told_by_its_config(config, told):
    assert is_masked(config) is told
