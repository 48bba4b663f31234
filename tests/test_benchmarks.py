import json
import sys

import pytest

from benchmarks import (
    compare_drafters,
    demo_drafter,
    loop_overhead,
    masked_drafter,
    measure,
    verify_overhead,
)
from examples.tiny_model import save_tiny_model
from lenity.training.capture import capture
from tests.models.masked_tiny import masked_folder
from tests.training import rig


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


def run(benchmark, monkeypatch, capsys, *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(
        sys, "argv", ["benchmark", *arguments, "--repeats", "1", "--dtypes", "float32"]
    )
    status = benchmark.main()
    return status, capsys.readouterr().out


def test_the_share_of_the_verifier_is_held_to_its_bound(tiny, monkeypatch, capsys):
    # nothing is small beside a pass of a model this small, so the bound must be missed
    status, said = run(verify_overhead, monkeypatch, capsys, "--model", tiny, "--tokens", "12")
    assert status == 1
    assert "ABOVE the bound of 2%" in said
    assert all(rule in said for rule in verify_overhead.POLICIES)


def test_the_loop_stands_beside_generate(tiny, monkeypatch, capsys):
    status, said = run(loop_overhead, monkeypatch, capsys, "--model", tiny, "--tokens", "8")
    assert said.count("same ids in 3 of 3") == 2  # the arms did the same work
    assert status == int("ABOVE" in said)
    assert "ratio lenity / generate" in said


def test_drafters_are_compared_on_equal_budgets(tmp_path, monkeypatch, capsys):
    model = rig.target(layers=4)
    monkeypatch.setattr("lenity.load", lambda name, **options: model)
    replies = tmp_path / "replies.jsonl"
    replies.write_text("".join(json.dumps(reply) + "\n" for reply in rig.replies()[4:]))
    capture(model, rig.replies(), tmp_path / "features", taps=(1, 2, 3), shard_size=16)
    asked = ["--replies", replies, "--features", tmp_path / "features", "--out", tmp_path / "runs"]
    more = ["--cpu-minutes", 1 / 300, "--depth", 2, "--results", tmp_path / "found.json"]
    monkeypatch.setattr(sys, "argv", ["benchmark", *map(str, [*asked, *more])])
    assert compare_drafters.main() == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["training_replies"] == 19  # 24 are captured, and one is held out
    assert [arm["family"] for arm in found["arms"]] == ["eagle3", "dspark", "medusa"]
    for arm in found["arms"]:
        assert 0.2 <= arm["cpu_seconds"] < 3  # a step may end behind the budget, not far
        assert arm["tokens_per_pass"]["all"] == arm["curve"][-1]["tokens_per_pass"]["all"]
        assert len(arm["acceptance"]) == 2
    assert capsys.readouterr().out.count("eagle3 ") == 2
    assert compare_drafters.main() == 0  # ended runs are only read again
    assert json.loads((tmp_path / "found.json").read_text())["arms"] == found["arms"]


def test_drafters_are_measured_by_family(tiny, monkeypatch, capsys):
    asked = ["--target", tiny, "--drafters", "ngram", "autoregressive:model=target"]
    short = ["--families", "data", "--prompts", "2", "--max-new-tokens", "8", "--gamma", "3"]
    monkeypatch.setattr(sys, "argv", ["benchmark", *asked, *short])
    assert demo_drafter.main() == 0
    said = capsys.readouterr().out
    assert "strict equals plain" in said
    row = next(line for line in said.splitlines() if line.startswith("data   autoregressive"))
    assert row.endswith("; 1.00 1.00 1.00")  # the target agrees with itself


def test_a_masked_drafter_is_measured_by_gamma(tiny, tmp_path, monkeypatch, capsys):
    folder = masked_folder(
        tmp_path, "dream", vocab_size=258, mask=0, max_position_embeddings=512, eos_token_id=1
    )
    short = ["--families", "data", "--prompts", "2", "--max-new-tokens", "6", "--gammas", "2", "3"]
    monkeypatch.setattr(sys, "argv", ["benchmark", str(folder), "--target", tiny, *short])
    assert masked_drafter.main() == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "strict equals plain"
    assert [line.split(":")[0] for line in said[2:4]] == ["data       2", "data       3"]


def test_the_machine_is_stated():
    assert "threads" in measure.machine()
    assert measure.spread([0.001, 0.002, 0.003]).split()[0] == "2.000"
