import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from lenity.cli.draft_check import _other_readings, known_target, stated_target
from lenity.models.heads.checkpoint import open_checkpoint
from lenity.models.heads.formats import detect_format
from lenity.models.heads.made_for import FILE, MadeFor
from lenity.models.loading import load
from tests.models.heads.golden import FOLDER

UNDERSTOOD = {
    "eagle3-safeai-a": {"taps": [1, 2, 3], "vocabulary_rows": 56, "vocabulary_map": "d2t / t2d"},
    "eagle3-speculators-a": {"taps": [0, 2, 3], "norm_before_residual": True, "draft_length": 3},
    "eagle3-deepspec-a": {"taps": [0, 1, 2, 3, 4], "vocabulary_map": "identity"},
    "peagle-a": {"drafting": "all tokens in one pass", "layers": 2},
    "dflash-zlab-a": {"slots": "fill_in", "block_size": 6, "draft_length": 5},
    "dflash-speculators-a": {"slots": "fill_in", "taps": [0, 2, 3], "embedding": "the target's"},
    "dflash-deepspec-a": {"slots": "anchor_first", "draft_length": 5, "lm_head": "its own"},
    "dspark-deepspec-a": {"markov_head": "vanilla, rank 8", "confidence_head": True},
    "medusa-a": {"heads": 3, "lm_head": "one a head"},
}
SHORT = ("--prompts", "4", "-n", "40")


def places(name):
    return str(FOLDER / name / "target"), str(FOLDER / name / "drafter")


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_published_format_is_recognised_understood_and_looks_right(run_json, name):
    target, drafter = places(name)
    found = run_json("draft-check", target, drafter, *SHORT)
    checkpoint = open_checkpoint(drafter)
    said = found["drafter"]
    assert said["format"] == detect_format(checkpoint.config, checkpoint.keys)
    assert said["spec"] == f"{said['family']}:model={drafter}"
    assert said["parameters"] > 1000
    assert UNDERSTOOD[name].items() <= said.items()
    assert found["looks_right"]
    assert found["diagnosis"]["shape"] in ("fine", "too few rounds")
    assert found["same_tokens"] == {"equal": 4, "of": 4}
    assert "random token ids" in found["prompts"]
    assert found["another_reading"] is None
    ours = found["arms"]["drafter"]
    assert ours["tokens_per_target_pass"] == ours["emitted"] / ours["target_passes"] > 1
    for row in ours["positions"]:
        assert row["conditional"] == (row["reached"] and row["accepted"] / row["reached"])
        assert row["interval"][0] <= row["conditional"] <= row["interval"][1]


def test_the_number_of_draft_tokens_is_the_drafters_own(run_json):
    def gamma(*options):
        return run_json("draft-check", *options, *SHORT)["settings"]["gamma"]

    assert gamma(*places("medusa-a")) == 3
    assert gamma(*places("dflash-zlab-a")) == 5
    assert gamma(*places("medusa-a"), "--gamma", "2") == 2


def test_wrong_slots_look_wrong_and_the_right_ones_are_named(run, run_json):
    target, drafter = places("dflash-deepspec-a")
    spec = f"dflash:model={drafter},slots=fill_in"
    found = run_json("draft-check", target, spec, *SHORT, exit_code=1)
    assert not found["looks_right"]
    assert found["diagnosis"]["shape"] in ("low from the first position", "low throughout")
    assert found["another_reading"]["change"] == {"slots": "anchor_first"}
    assert any("does not earn its cost" in line for line in found["says"])
    done = run("draft-check", target, spec, *SHORT)
    assert done.exit_code == 1
    said = " ".join(done.stdout.split())
    assert "Looks wrong." in said
    assert "Read with slots=anchor_first the same weights" in said


def test_weights_that_learnt_nothing_have_no_better_reading(run_json, tmp_path):
    target, drafter = places("dflash-zlab-a")
    shutil.copytree(drafter, tmp_path / "noise")
    (file,) = (tmp_path / "noise").glob("*.safetensors")
    weights = load_file(file)
    weights["fc.weight"] = -weights["fc.weight"].flip(0)
    save_file(weights, file, metadata={"format": "pt"})
    found = run_json("draft-check", target, str(tmp_path / "noise"), *SHORT, exit_code=1)
    assert found["diagnosis"]["causes"]
    assert found["another_reading"] is None


def test_what_people_read(run):
    target, drafter = places("eagle3-speculators-a")
    done = run("draft-check", target, drafter, *SHORT)
    assert done.exit_code == 0
    said = " ".join(done.stdout.split())
    assert "taps 0, 2, 3 (0 = output of the first layer)" in said
    assert "trained for ../target is for this target not known" in said
    assert "Looks right." in said
    assert "ngram:" in said
    assert "lenity doctor --curves" in said


def test_drafters_without_a_checkpoint_are_checked_too(run, run_json, tiny):
    found = run_json("draft-check", tiny, "autoregressive:model=target", *SHORT)
    assert found["drafter"]["layers"] == 4
    assert found["drafter"]["model"] == found["target"]["name"] == tiny
    assert found["arms"]["drafter"]["positions"][0]["conditional"] == 1
    assert "chat template" in found["prompts"]
    done = run("draft-check", tiny, "self_speculative:skip=0+2", *SHORT, "--json")
    found = json.loads(done.stdout)
    assert found["drafter"]["layers_kept"] == "2 of 4"
    assert found["drafter"]["layers_skipped"] == [0, 2]
    assert done.exit_code == (not found["looks_right"])


def test_a_dflash_layout_with_a_confidence_head_is_run_as_dspark(run, tmp_path):
    target, drafter = places("dspark-deepspec-a")
    shutil.copytree(drafter, tmp_path / "bare")
    config = json.loads((tmp_path / "bare" / "config.json").read_text())
    config |= {"markov_rank": 0, "confidence_head_with_markov": False}
    (tmp_path / "bare" / "config.json").write_text(json.dumps(config))
    (file,) = (tmp_path / "bare").glob("*.safetensors")
    weights = {k: v for k, v in load_file(file).items() if not k.startswith("markov_head")}
    key, size = "confidence_head.proj.weight", config["hidden_size"]
    weights[key] = weights[key][:, :size].clone()
    save_file(weights, file, metadata={"format": "pt"})
    done = run("draft-check", target, str(tmp_path / "bare"), *SHORT)
    assert "family dspark" in " ".join(done.stdout.split())
    assert done.exit_code in (0, 1), done.stderr


@pytest.mark.parametrize(
    ("target", "drafter", "said"),
    [
        (places("medusa-a")[0], "medussa", "Did you mean 'medusa'?"),
        (places("medusa-a")[0], "no/such/place/here", "does not exist"),
        (places("medusa-a")[0], places("medusa-a")[0], "autoregressive"),
        (places("eagle3-safeai-a")[0], places("medusa-a")[1], r"numbers"),
        (places("medusa-a")[0], places("eagle3-safeai-a")[1], "fc.weight"),
        ("no/such/place/here", places("medusa-a")[1], "does not exist"),
        (places("medusa-a")[0], "~nouser", "a home here, got '~nouser'"),
    ],
    ids=["name", "path", "whole model", "another target", "another size", "target", "home"],
)
def test_what_cannot_be_loaded_is_exit_2(run, target, drafter, said):
    done = run("draft-check", target, drafter, *SHORT)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert said in done.stderr


def test_a_cut_off_checkpoint_is_exit_2(run, tmp_path):
    target, drafter = places("dflash-zlab-a")
    shutil.copytree(drafter, tmp_path / "cut")
    (file,) = (tmp_path / "cut").glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-100])
    done = run("draft-check", target, str(tmp_path / "cut"))
    assert done.exit_code == 2
    assert "damaged" in " ".join(done.stderr.split())


def test_other_readings_stay_within_the_target():
    target = load(places("medusa-a")[0])
    last = target.num_layers - 1
    said = {"taps": [-1, last - 1], "norm_output": False}
    assert list(_other_readings(said, target)) == [
        {"taps": f"0+{last}"},
        {"norm_output": "true"},
    ]
    said = {"taps": [0, last], "slots": "fill_in"}
    assert list(_other_readings(said, target)) == [
        {"slots": "anchor_first"},
        {"taps": f"-1+{last - 1}"},
    ]
    assert list(_other_readings({"heads": 3}, target)) == []


def test_what_a_checkpoint_says_of_its_target():
    assert stated_target({}) is None
    assert stated_target({"base_model_name_or_path": "org/base"}) == "org/base"
    verifier = {"verifier": {"name_or_path": "org/model"}}
    assert stated_target({"speculators_config": verifier}) == "org/model"
    assert stated_target({"speculators_config": None}) is None


def test_what_is_known_of_the_target_is_said(run, run_json, tmp_path):
    target, drafter = places("eagle3-safeai-a")
    found = run_json("draft-check", target, drafter, *SHORT)
    assert found["drafter"]["trained_for"] is None
    assert found["drafter"]["is_for_this_target"] is None
    assert any("which target and chat template" in line for line in found["says"])
    shutil.copytree(drafter, tmp_path / "marked")
    made_for = MadeFor.of(load(target))  # it has no tokenizer, so sizes are all that is known
    (tmp_path / "marked" / FILE).write_text(made_for.model_dump_json())
    found = run_json("draft-check", target, str(tmp_path / "marked"), *SHORT)
    assert found["drafter"]["trained_for"] == target
    assert found["drafter"]["is_for_this_target"] is None
    assert any("fits in its sizes" in line for line in found["says"])
    other = made_for.model_copy(update={"hidden_size": 8, "target": "org/other"})
    (tmp_path / "marked" / FILE).write_text(other.model_dump_json())
    done = run("draft-check", target, str(tmp_path / "marked"), *SHORT)
    assert done.exit_code == 2
    assert "org/other: hidden_size 8" in " ".join(done.stderr.split())


def test_tokens_and_template_tell_that_a_drafter_is_for_this_target(tiny, tmp_path):
    shutil.copytree(places("eagle3-safeai-a")[1], tmp_path / "marked")
    model = load(tiny)
    (tmp_path / "marked" / FILE).write_text(MadeFor.of(model).model_dump_json())
    known = known_target(open_checkpoint(tmp_path / "marked", target=model), model)
    assert (known.name, known.is_this, known.says) == (tiny, True, [])


@pytest.mark.parametrize(
    ("name", "said"),
    [("org/base", "may or may not be"), (None, "Nothing in the checkpoint")],
)
def test_a_name_in_the_config_proves_nothing(name, said, tmp_path):
    shutil.copytree(places("medusa-a")[1], tmp_path / "named")
    file = tmp_path / "named" / "config.json"
    config = json.loads(file.read_text()) | {"base_model_name_or_path": name}
    file.write_text(json.dumps(config))
    known = known_target(open_checkpoint(tmp_path / "named"), load(places("medusa-a")[0]))
    assert (known.name, known.is_this) == (name, None)
    assert said in known.says[0]
