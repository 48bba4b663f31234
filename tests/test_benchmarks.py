import sys

import pytest

from benchmarks import loop_overhead, measure, verify_overhead
from examples.tiny_model import save_tiny_model


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


def test_the_machine_is_stated():
    assert "threads" in measure.machine()
    assert measure.spread([0.001, 0.002, 0.003]).split()[0] == "2.000"
