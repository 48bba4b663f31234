import json
import math
import subprocess
import sys

import pytest
import yaml

from lenity.drafters import drafter
from lenity.engine.decode import Decoder
from lenity.errors import ConfigError, ModelMismatchError
from lenity.policies import policy
from lenity.workbench.facts import DrafterFacts, drafter_facts, target_facts
from lenity.workbench.operating_point import (
    Choice,
    DataSplit,
    OperatingPoint,
    decoder_arguments,
    freeze,
    generation_changes,
    load_arguments,
    load_operating_point,
    save_operating_point,
)
from lenity.workbench.provenance import collect
from tests.cases.rig import PROMPTS, target

RULE = "asd:budget=inf,gate=0.5,block_cap=none"


def frozen(**changes):
    drafts = drafter("ngram:max_match=3")
    provenance = collect(
        target=target_facts(target()),
        drafters=[drafter_facts(drafts, target())],
        template_hash="f" * 16,
        argv=(),
    )
    data = DataSplit(tasks=("toy@1",), seed=3, share=0.5, num_prompts=7, digest="d" * 16)
    chosen = Choice(rule="highest gain within 1 pp", numbers={"gain": 0.2}, run_id="tune-1")
    more = {"data": data, "chosen_by": chosen, "gamma": 4, "drafter": drafts.spec, **changes}
    return freeze(provenance, policy(RULE), **more)


@pytest.mark.parametrize("name", ["point.yaml", "point.yml", "deep/point.json"])
def test_a_point_reads_back_as_it_was(tmp_path, name):
    point = frozen().judged("non-inferior", "audit-1", {"gain": [0.1, 0.2]})
    save_operating_point(point, tmp_path / name)
    again = load_operating_point(tmp_path / name)
    assert again == point
    assert again.digest == point.digest
    text = (tmp_path / name).read_text()
    assert (yaml.safe_load if name[-1] == "l" else json.loads)(text)["gamma"] == 4
    assert [p.name for p in (tmp_path / name).parent.iterdir()] == [name.rpartition("/")[2]]


def test_the_point_decodes_as_its_policy_does():
    point = frozen()
    made = decoder_arguments(point)
    assert made["policy"] == policy(RULE)
    assert made["policy"].budget == math.inf
    assert made["policy"].block_cap is None
    assert generation_changes(point) == {"gamma": 4}
    assert load_arguments(point) == {
        "name": "tiny:llama",
        "dtype": "float32",
        "attn_implementation": "eager",
    }
    result = Decoder(target=target(), **made).generate(
        PROMPTS[2], max_new_tokens=9, **generation_changes(point)
    )
    assert (result.requested_policy, result.gamma) == (policy(RULE).spec, 4)
    assert result.drafter == "ngram:max_match=3"


def test_an_infinite_knob_is_the_same_however_it_is_written(tmp_path):
    """YAML has .inf, JSON only a string."""
    point = frozen()
    (tmp_path / "p.yaml").write_text(
        "target: m\ndrafter: ngram\npolicy: asd\nknobs: {budget: .inf, gate: .inf}\n"
    )
    by_hand = load_operating_point(tmp_path / "p.yaml")
    assert by_hand.knobs == {"budget": "Infinity", "gate": "Infinity"}
    assert point.knobs["budget"] == "Infinity"
    assert decoder_arguments(by_hand)["policy"] == policy("asd:budget=inf,gate=inf")
    save_operating_point(by_hand, tmp_path / "p.json")
    assert load_operating_point(tmp_path / "p.json") == by_hand


def test_knobs_outlive_the_defaults_of_another_version():
    point = frozen().model_copy(update={"policy": "asd", "knobs": {"budget": 3.0, "gate": 0.1}})
    assert decoder_arguments(point)["policy"] == policy("asd:budget=3,gate=0.1")
    assert decoder_arguments(point.model_copy(update={"knobs": None}))["policy"] == policy("asd")


def test_a_policy_and_knobs_that_disagree_are_refused():
    point = frozen().model_copy(update={"policy": "asd:budget=7"})
    with pytest.raises(ConfigError, match=r"budget=7\.0 in 'asd:budget=7' and inf"):
        decoder_arguments(point)


def test_a_person_may_write_the_least(tmp_path):
    (tmp_path / "p.yaml").write_text("target: demo:smollm2\ndrafter: ngram\npolicy: asd:budget=4\n")
    point = load_operating_point(tmp_path / "p.yaml")
    assert load_arguments(point) == {"name": "demo:smollm2"}
    assert decoder_arguments(point) == {
        "drafter": "ngram",
        "policy": policy("asd:budget=4"),
        "skip": None,
        "max_batch_size": 1,
    }
    assert not point.is_off
    point.check_against(target=target_facts(target()).model_copy(update={"name": "demo:smollm2"}))


def test_off_is_plain_decoding():
    off = OperatingPoint(target="m")
    assert off.is_off
    assert decoder_arguments(off)["drafter"] is None
    assert OperatingPoint(target="m", drafter="ngram", gamma=0).is_off


def test_a_skip_rule_goes_with_the_point():
    point = frozen(skipping="periodic:period=3,count=2")
    assert decoder_arguments(point)["skip"] == "periodic:period=3,count=2"
    assert Decoder(target=target(), **decoder_arguments(point)).skip.period == 3
    assert point.digest != frozen().digest


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"target": {"fingerprint": "0" * 16}}, r"target\.fingerprint"),
        ({"target": {"name": "other"}}, r"target\.name: 'tiny:llama' there, 'other' here"),
        ({"target": {"dtype": "bfloat16"}}, r"target\.dtype"),
        ({"target": {"attention": "sdpa"}}, r"target\.attention"),
        ({"drafter": DrafterFacts(spec="ngram")}, r"drafter\.spec: 'ngram:max_match=3' there"),
        ({"template_hash": "0" * 16}, "template_hash"),
    ],
)
def test_what_changed_voids_the_verdict_by_name(change, named):
    point = frozen().judged("non-inferior", "audit-1")
    facts = target_facts(target()).model_copy(update=change.pop("target", {}))
    with pytest.raises(ModelMismatchError, match=named + "(?s:.*)'non-inferior', does not hold"):
        point.check_against(target=facts, **change)
    with pytest.raises(ModelMismatchError, match=named) as without:
        frozen().check_against(target=facts, **change)
    assert "verdict" not in str(without.value)


def test_what_is_the_same_or_unknown_changes_nothing():
    point = frozen()
    facts = target_facts(target())
    drafts = drafter_facts(drafter("ngram:max_match=3"), target())
    point.check_against(target=facts, drafter=drafts, template_hash="f" * 16)
    point.check_against(target=facts.model_copy(update={"device": "cuda", "fingerprint": None}))
    point.check_against()
    off = OperatingPoint(target="tiny:llama")
    assert off.differences(drafter=drafts) == (
        "drafter.spec: 'none' there, 'ngram:max_match=3' here",
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"gamma": 7}, "gamma=4, got 7"),
        ({"drafter": "ngram:max_match=2"}, r"drafter\..*"),
        ({"template_hash": None}, "template_hash"),
        ({"batch_size": 2}, "batch_size=1, got 2"),
        ({"knobs": {"budget": 9.0}}, r"policy\..*"),
    ],
)
def test_a_point_changed_by_hand_loses_its_verdict_loudly(tmp_path, change, named):
    path = tmp_path / "p.yaml"
    save_operating_point(frozen().judged("non-inferior", "audit-1"), path)
    values = {**yaml.safe_load(path.read_text()), **change}
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError, match=rf"audit-1 audited, with {named}(?s:.*)audit the new"):
        load_operating_point(path)
    path.write_text(yaml.safe_dump({**values, "audit": None}))
    assert load_operating_point(path).audit is None


def test_what_does_not_decide_may_change():
    point = frozen().judged("inconclusive", "audit-1")
    assert point.without_verdict().digest == point.digest == frozen(chosen_by=None).digest
    assert frozen(gamma=5).digest != point.digest
    elsewhere = point.model_copy(
        update={"target": point.target.model_copy(update={"device": "cuda"})}
    )
    assert elsewhere.digest == point.digest


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1, 2]", r"got \[1, 2\]"),
        ("target: m\ngama: 4\n", r"p\.yaml: gama: .*Did you mean 'gamma'"),
        ("target: m\ngamma: -1\n", "gamma: expected at least 0, got -1"),
        ("policy: strict\n", "needs the field target"),
        ("schema_version: 9\ntarget: m\nnovel: 1\n", "version 1 or older.*got 9"),
        ("target: [\n", "got: "),
    ],
)
def test_what_is_no_point_is_refused(tmp_path, text, says):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="(?s)" + says):
        load_operating_point(path)
    with pytest.raises(ConfigError, match="No such file"):
        load_operating_point(tmp_path / "none.json")


def test_a_point_is_frozen_from_the_run_that_measured_it():
    with pytest.raises(ConfigError, match="drafters none"):
        freeze(collect(target=target_facts(target())), policy("asd"), drafter="ngram", gamma=3)
    with pytest.raises(ConfigError, match="target None"):
        freeze(collect(), policy("strict"), drafter=None, gamma=0)
    assert frozen(drafter="ngram:max_match=3,min_match=2").drafter.spec == "ngram:max_match=3"
    plain = freeze(collect(target=target_facts(target())), policy("strict"), drafter=None, gamma=0)
    assert plain.is_off


def test_a_point_is_read_without_torch(tmp_path):
    save_operating_point(frozen().judged("non-inferior", "audit-1"), tmp_path / "p.yaml")
    code = (
        "import sys\n"
        "from lenity.workbench.operating_point import load_operating_point\n"
        "assert load_operating_point(sys.argv[1]).audit.verdict == 'non-inferior'\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "p.yaml")], check=True)
