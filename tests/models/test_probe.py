import pytest
import torch

from lenity.errors import UnsupportedModelError
from lenity.models import probe as probing
from lenity.models.masks import MaskForm, Reach
from lenity.models.probe import build_twin, measure, probe
from tests.models.families import ATTENTION, RECURRENT, build, build_fresh

FORMS = {
    "llama": "bool tensor",
    "gpt2": "bool tensor",
    "qwen2": "bool tensor",
    "qwen3": "bool tensor",
    "mistral-window": "bool tensor",
    "gemma2": "dict of additive float",
    "gemma3": "dict of bool",
    "gpt-oss": "dict of additive float",
    "mixtral": "bool tensor",
    "qwen3-moe": "bool tensor",
}


@pytest.mark.parametrize("family", sorted(ATTENTION))
def test_attention_families_are_found_exact(family: str):
    verdict = probe(build(family))
    assert verdict.mask_form.name == FORMS[family]
    assert verdict.error < 1e-5
    assert verdict.sensitivity > 0.05
    assert verdict.on_twin
    assert verdict.seconds < 1


@pytest.mark.parametrize("family", sorted(RECURRENT))
def test_recurrent_families_are_refused_by_layer(family: str):
    with pytest.raises(UnsupportedModelError) as caught:
        probe(build_fresh(family))
    message = str(caught.value)
    kinds = {"lfm2": ("'conv'", "ShortConv"), "falcon-h1": ("'hybrid'", "Mixer")}
    for named in kinds.get(family, ("'linear_attention'",)):
        assert named in message
    assert "all attention" in message


def test_windows_are_part_of_the_test():
    module = build("mistral-window")
    full = MaskForm(reaches={"sliding_attention": Reach()})
    short = MaskForm(reaches={"sliding_attention": Reach(window=8)})
    assert measure(module, full)[0] > 1e-2
    assert measure(module, short)[0] < 1e-5


def test_bool_masks_are_caught_under_eager_attention():
    module = build("gemma2")
    reaches = probe(module).mask_form.reaches
    assert measure(module, MaskForm(reaches=reaches, is_mapping=True))[0] > 1e-2


def test_the_twin_has_every_kind_of_layer_and_is_small():
    module = build_fresh(
        "gemma3",
        num_hidden_layers=6,
        sliding_window=32,
        layer_types=["sliding_attention"] * 5 + ["full_attention"],
    )
    twin = build_twin(module)
    assert twin is not None
    assert set(twin.config.layer_types) == {"sliding_attention", "full_attention"}
    assert twin.config.sliding_window == 8
    assert len(twin.model.layers) == 3
    assert module.config.num_hidden_layers == 6
    assert probe(module).mask_form.reaches["sliding_attention"] == Reach(window=32)


def test_a_probe_leaves_the_random_state_alone():
    before = torch.random.get_rng_state()
    build_twin(build("llama"))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_verdict_is_kept_per_config(monkeypatch: pytest.MonkeyPatch):
    verdict = probe(build_fresh("llama"))
    monkeypatch.setattr(probing, "_examine", None)
    assert probe(build_fresh("llama")) is verdict


def test_without_a_twin_the_model_itself_is_tried(monkeypatch: pytest.MonkeyPatch):
    def fail(module: object) -> None:
        raise ValueError("heads do not divide the hidden size")

    monkeypatch.setattr(probing, "build_twin", fail)
    monkeypatch.setattr(probing, "_VERDICTS", {})
    for dtype, bound in ((torch.float32, 1e-5), (torch.bfloat16, 5e-2)):
        verdict = probe(build_fresh("qwen3", vocab_size=97).to(dtype))
        assert not verdict.on_twin
        assert verdict.error < bound
        probing._VERDICTS.clear()


def test_a_model_that_does_not_agree_with_itself_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probing, "_VERDICTS", {})
    monkeypatch.setattr(probing, "measure", lambda module, form: (0.5, 0.9))
    with pytest.raises(UnsupportedModelError, match=r"bool tensor: logits off by 0\.5"):
        probe(build_fresh("llama"))


def test_a_probe_that_cannot_tell_is_no_proof(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probing, "_VERDICTS", {})
    monkeypatch.setattr(probing, "measure", lambda module, form: (0.0, 0.0))
    with pytest.raises(UnsupportedModelError):
        probe(build_fresh("llama"))
