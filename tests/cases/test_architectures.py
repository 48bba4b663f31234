"""A layer that keeps a state instead of tokens cannot forget a rejected draft: refused, by name.

Seen in vllm#52942 and #39273 and mlx-lm#1111: on hybrids of recurrent and
full attention the rollback was a no-op and outputs drifted in silence, most of all where a round
without any draft follows one that kept several.
"""

import pytest
import torch
import transformers

import lenity.models.probe as probing
from lenity.engine.decode import Decoder
from lenity.errors import UnsupportedModelError
from lenity.models.causal import CausalLM
from tests.cases.rig import (
    PROMPTS,
    SHAPE,
    VARIANTS,
    hf_greedy,
    pattern,
    reference,
    scripted,
    target,
)

SMALL = {name: SHAPE[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers")}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64}
NO_IDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}

STATEFUL = {
    "qwen3_next": (
        lambda: transformers.Qwen3NextConfig(
            **SMALL,
            **HEADS,
            **NO_IDS,
            head_dim=16,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
            linear_num_value_heads=4,
            linear_num_key_heads=2,
            linear_key_head_dim=16,
            linear_value_head_dim=16,
            layer_types=["linear_attention", "full_attention"],
        ),
        "linear_attention",
    ),
    "lfm2": (
        lambda: transformers.Lfm2Config(
            **SMALL, **HEADS, **NO_IDS, layer_types=["conv", "full_attention"]
        ),
        "conv",
    ),
    "bamba": (
        lambda: transformers.BambaConfig(
            **SMALL,
            **HEADS,
            **NO_IDS,
            attn_layer_indices=[1],
            mamba_n_heads=4,
            mamba_d_head=32,
            mamba_d_state=16,
            mamba_n_groups=1,
        ),
        "BambaMixer",
    ),
    "falcon_h1": (
        lambda: transformers.FalconH1Config(
            **SMALL,
            **HEADS,
            **NO_IDS,
            head_dim=16,
            mamba_n_heads=4,
            mamba_d_head=32,
            mamba_d_ssm=128,
            mamba_d_state=16,
            mamba_n_groups=1,
        ),
        "FalconH1Mixer",
    ),
    "mamba2": (
        lambda: transformers.Mamba2Config(
            **SMALL, **NO_IDS, num_heads=8, head_dim=16, state_size=16, n_groups=1
        ),
        "Mamba2Mixer",
    ),
    "mamba": (lambda: transformers.MambaConfig(**SMALL, **NO_IDS, state_size=8), "MambaMixer"),
}


def random_model(config):
    with torch.random.fork_rng(devices=[]):
        return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize("family", STATEFUL)
def test_layers_with_a_state_are_refused_by_name(family):
    """When the model is wrapped, before a token is decoded; the message says what to do."""
    config, layer = STATEFUL[family]
    with pytest.raises(UnsupportedModelError, match=layer) as refusal:
        CausalLM(random_model(config()))
    assert config().model_type in str(refusal.value)
    assert "Choose a target" in str(refusal.value)


@pytest.mark.parametrize("family", ["qwen3_next", "lfm2", "bamba"])
def test_the_refusal_does_not_hang_on_a_list_of_names(family, monkeypatch):
    """Without it the models fail in the probe or at the cache: never silent drift."""
    monkeypatch.setattr(probing, "_refuse_recurrent", lambda module: None)
    monkeypatch.setattr(probing, "_VERDICTS", {})
    with pytest.raises(UnsupportedModelError):
        CausalLM(random_model(STATEFUL[family][0]()))


@pytest.mark.parametrize(("family", "attn"), VARIANTS)
def test_attention_survives_a_round_without_a_draft(family, attn):
    """Three kept, none drafted, in turn, for 40 tokens: what hybrids fail is right here."""
    model, known = target(family, attn), reference(family, attn)
    results = Decoder(
        target=model, drafter=scripted(pattern(known, 3, None)), max_batch_size=2
    ).generate(PROMPTS[:3], max_new_tokens=40, gamma=5)
    for prompt, result in zip(PROMPTS, results, strict=False):
        assert list(result.token_ids) == hf_greedy(model, prompt, 40)
        assert [r.accepted for r in result.rounds[:4]] == [3, 0, 3, 0]
        assert [r.drafted for r in result.rounds[:4]] == [5, 0, 5, 0]
