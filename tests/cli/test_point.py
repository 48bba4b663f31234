import pytest

from lenity.models.loading import load
from lenity.policies import policy
from lenity.tasks.base import Item, user
from lenity.tasks.chat import render
from lenity.workbench.facts import target_facts
from lenity.workbench.operating_point import OperatingPoint, save_operating_point

PROMPT = "One fish, two fish, red fish, blue fish."


@pytest.fixture
def point(tiny):
    """A point on the tiny model, audited with chats."""
    target = load(tiny, device="cpu")
    rendered = render(Item(id="1", messages=(user("x"),)), target.tokenizer)
    return OperatingPoint(
        target=target_facts(target),
        drafter="self_speculative:skip=1",
        policy="asd:budget=0.5,gate=inf",
        gamma=3,
        template_hash=rendered.template_hash,
    ).judged("accepted", "audit-1")


@pytest.fixture
def file(point, tmp_path):
    save_operating_point(point, tmp_path / "point.yaml")
    return str(tmp_path / "point.yaml")


def test_a_point_takes_the_place_of_the_options_it_decides(run_json, file, tiny):
    frozen = run_json("generate", PROMPT, "--chat", "-n", "30", "--operating-point", file)
    options = run_json(
        "generate", PROMPT, "--chat", "-n", "30", "-m", tiny, "--gamma", "3",
        "--drafter", "self_speculative:skip=1", "--policy", "asd:budget=0.5,gate=inf",
    )  # fmt: skip
    (ours,), (theirs,) = frozen["generations"], options["generations"]
    assert ours["token_ids"] == theirs["token_ids"]
    assert ours["requested_policy"] == policy("asd:budget=0.5,gate=inf").spec
    assert frozen["settings"]["gamma"] == 3
    assert ours["totals"]["relaxed"] > 0


def test_prompts_of_another_form_void_the_verdict_aloud(run, file):
    chat = run("generate", PROMPT, "--chat", "-n", "4", "--operating-point", file)
    plain = run("generate", PROMPT, "-n", "4", "--operating-point", file)
    assert (chat.exit_code, chat.stderr) == (0, "")
    assert plain.exit_code == 0
    assert "'accepted', does not hold here" in plain.stderr
    assert "template_hash" in plain.stderr
    assert "accepted" not in plain.stdout


def refused(done, *words):
    assert (done.exit_code, done.stdout) == (2, "")
    for word in words:
        assert word in done.stderr
    return True


def test_a_point_and_an_option_it_decides_are_refused(run, file, tiny):
    for options in (("-m", tiny), ("--gamma", "2"), ("--policy", "top_k:k=2"), ("--dtype", "auto")):
        done = run("generate", PROMPT, *options, "--operating-point", file)
        assert refused(done, "nothing beside --operating-point")


def test_another_target_is_refused(run, point, tmp_path):
    other = point.target.model_copy(update={"fingerprint": "0" * 16})
    changed = point.model_copy(update={"target": other}).judged("accepted", "audit-1")
    save_operating_point(changed, tmp_path / "p.json")
    done = run("generate", PROMPT, "--operating-point", str(tmp_path / "p.json"))
    assert refused(done, "target.fingerprint", "'accepted', does not hold")


def test_a_file_that_is_no_point_is_refused(run, write):
    done = run("generate", PROMPT, "--operating-point", write("p.yaml", "[]"))
    assert refused(done, "Expected an operating point")
