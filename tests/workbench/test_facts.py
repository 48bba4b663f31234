from pathlib import Path

import torch

from lenity.drafters import drafter
from lenity.models.causal import CausalLM
from lenity.workbench.facts import (
    DrafterFacts,
    TargetFacts,
    drafter_facts,
    target_facts,
    without_home,
)
from tests.cases.rig import build, cousin, target
from tests.toys import cycle_model


def test_a_targets_facts_are_the_models_own():
    facts = target_facts(target())
    assert facts == target_facts(target())
    assert (facts.name, facts.dtype, facts.attention) == ("tiny:llama", "float32", "eager")
    assert facts.device == "cpu"
    assert len(facts.fingerprint) == 16
    assert TargetFacts.model_validate_json(facts.model_dump_json()) == facts


def test_one_other_weight_is_another_target():
    module = build("llama")
    same = target_facts(CausalLM(module, name="x")).fingerprint
    assert same == target_facts(target()).fingerprint
    with torch.no_grad():
        module.get_output_embeddings().weight[0, 0] += 1e-3
    assert target_facts(CausalLM(module, name="x")).fingerprint != same
    assert target_facts(CausalLM(build("llama").bfloat16(), name="x")).fingerprint != same


def test_a_target_without_weights_has_no_fingerprint():
    facts = target_facts(cycle_model())
    assert facts == TargetFacts(
        name="toy:table", dtype="float32", cache_dtype="float32", device="cpu"
    )


def test_weights_that_are_no_tensors_have_no_fingerprint():
    class Packed(torch.nn.Module):
        def state_dict(self):
            return {"packed": object()}

    model = cycle_model()
    model.module = Packed()
    assert target_facts(model).fingerprint is None


def test_a_quantised_target_says_by_what():
    model = cycle_model()
    model.module = torch.nn.Linear(1, 1)
    for config in ({"quant_method": "gptq"}, type("Q", (), {"quant_method": "gptq"})()):
        model.module.config = type("C", (), {"quantization_config": config})()
        assert target_facts(model).quantisation == "gptq"


def test_a_drafters_facts_hold_its_own_weights_only():
    ngram = drafter_facts(drafter("ngram:max_match=2"), target())
    assert ngram.spec == "ngram:max_match=2"
    assert ngram.fingerprint is None
    assert "idea" not in ngram.about  # a reworded sentence is no other drafter
    itself = drafter_facts(drafter("autoregressive:model=target"), target())
    assert itself.fingerprint is None  # the target's weights are the target's facts
    other = drafter_facts(drafter("autoregressive", model=cousin()), target())
    assert other.fingerprint == target_facts(cousin()).fingerprint
    assert other.about["layers"] == 2
    assert DrafterFacts.model_validate_json(other.model_dump_json()) == other


def test_a_name_alone_will_do_where_a_person_writes():
    assert TargetFacts.model_validate("m") == TargetFacts(name="m")
    assert DrafterFacts.model_validate("ngram") == DrafterFacts(spec="ngram")


def test_nobody_is_told_where_home_is(monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: Path("/home/somebody"))
    assert without_home("/home/somebody/models/m") == "~/models/m"
    model = cycle_model(name="/home/somebody/m")
    assert target_facts(model).name == "~/m"
    monkeypatch.setattr(Path, "home", lambda: Path("/"))
    assert without_home("/a/b") == "/a/b"
