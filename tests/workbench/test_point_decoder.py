import pytest

from lenity.drafters import drafter
from lenity.errors import ModelMismatchError
from lenity.models.causal import CausalLM
from lenity.policies import policy
from lenity.workbench.facts import drafter_facts, target_facts
from lenity.workbench.operating_point import OperatingPoint, freeze, generation_changes
from lenity.workbench.point_decoder import decoder_at
from lenity.workbench.provenance import collect
from tests.cases.rig import PROMPTS, build, target

NGRAM = "ngram:max_match=3"


def point_of(**changes):
    facts = drafter_facts(drafter(NGRAM), target())
    provenance = collect(target=target_facts(target()), drafters=[facts], argv=())
    return freeze(provenance, policy("asd:budget=3"), drafter=NGRAM, **{"gamma": 4, **changes})


def test_a_point_decodes_as_it_says():
    point = point_of(batch_size=2)
    decoder = decoder_at(point, target=target())
    assert (decoder.policy.spec, decoder.max_batch_size) == ("asd:budget=3", 2)
    result = decoder.generate(PROMPTS[2], max_new_tokens=5, **generation_changes(point))
    assert (result.drafter, result.gamma) == (NGRAM, 4)


def test_plain_decoding_is_a_point_too():
    decoder = decoder_at(OperatingPoint(target="tiny:llama", gamma=0), target=target())
    assert decoder.drafter is None


def test_a_point_loads_its_own_target(tmp_path):
    build("llama").save_pretrained(tmp_path / "m")
    point = OperatingPoint(target={"name": str(tmp_path / "m"), "dtype": "bfloat16"})
    decoder = decoder_at(point, device="cpu")
    assert str(decoder.target.dtype) == "torch.bfloat16"
    assert decoder.target.name == str(tmp_path / "m")


def test_other_weights_under_the_same_name_are_refused():
    changed = CausalLM(build("llama", seed=1), name="tiny:llama")
    with pytest.raises(ModelMismatchError, match=r"target\.fingerprint"):
        decoder_at(point_of(), target=changed)


def test_a_drafter_that_is_no_longer_what_it_was_is_refused():
    point = point_of()
    facts = point.drafter.model_copy(update={"about": {"layers": 9}, "fingerprint": "0" * 16})
    decoder_at(point.model_copy(update={"drafter": facts}), target=target())  # nothing to compare
    itself = drafter_facts(drafter("self_speculative:skip=1"), target())
    other = itself.model_copy(update={"about": {**itself.about, "layers_skipped": [0]}})
    with pytest.raises(ModelMismatchError, match=r"drafter\.about"):
        decoder_at(point.model_copy(update={"drafter": other}), target=target())
