"""What is disclosed, row by row."""

from lenity.workbench.report.data import Disclosure
from lenity.workbench.report.disclosure import facts_of, point_facts
from tests.workbench.report.sample import provenance, report


def told(disclosure):
    return {fact.name: fact.values for fact in facts_of(disclosure)}


def test_everything_a_number_needs_is_told():
    facts = told(report().disclosure)
    assert facts["Hardware"] == ("Intel(R) Xeon(R) Platinum, 2 cores",)
    assert facts["Command"] == ("lenity audit point.yaml --task gsm8k --prompts 256",)
    assert facts["Commit"] == ("0f3c1d2e4b5a69788796a5b4c3d2e1f00f3c1d2e with local changes",)
    assert facts["Target"] == (
        "SmolLM2-135M-Instruct",
        "dtype float32",
        "attention sdpa",
        "device cpu",
    )
    assert facts["Drafters"] == ("eagle3:model=demo",)
    assert facts["Template hash"] == ("5f1d0b7c2a9e4d83",)
    assert facts["Data"][0] == "gsm8k@1 at sha256:9d2f6c11"
    assert facts["Environment"] == ("OMP_WAIT_POLICY=PASSIVE",)
    assert facts["Versions"] == ("lenity 0.1.0, python 3.12.3, torch 2.13.0, transformers 5.19.0",)
    assert facts["First divergences from strict"][1] == "policy: 241"
    assert facts["Failed samples"] == ("math500@1 311, relaxed: out of memory",)


def test_none_and_not_recorded_are_not_the_same():
    facts = told(Disclosure(exclusions=(), dropped_triplets=None, divergences={}))
    assert facts == {"Exclusions": ("none",), "First divergences from strict": ("none",)}
    assert told(Disclosure()) == {}


def test_what_a_machine_lacks_is_left_out():
    bare = provenance().model_copy(
        update={"git": None, "threads": None, "argv": (), "target": None, "environment": {}}
    )
    facts = told(Disclosure(provenance=bare))
    assert not {"Commit", "Threads", "Command", "Target", "Environment"} & set(facts)
    clean = provenance().git.model_copy(update={"is_dirty": False})
    facts = told(Disclosure(provenance=provenance().model_copy(update={"git": clean})))
    assert facts["Commit"] == (clean.sha,)


def test_arguments_with_spaces_can_be_typed_again():
    origin = provenance().model_copy(update={"argv": ("lenity", "audit", "my point.yaml")})
    assert told(Disclosure(provenance=origin))["Command"] == ("lenity audit 'my point.yaml'",)


def test_notes_come_last():
    assert facts_of(Disclosure(notes=("A served engine keeps no ledger.",)))[-1].name == "Notes"


def test_an_operating_point_is_told_as_it_is_written():
    facts = point_facts({"policy": "asd:budget=8", "gamma": 7, "skip": None, "stop_ids": [2, 3]})
    assert [(fact.name, fact.values[0]) for fact in facts] == [
        ("policy", "asd:budget=8"),
        ("gamma", "7"),
        ("stop ids", "[2, 3]"),
    ]
    assert all(fact.is_code for fact in facts)
