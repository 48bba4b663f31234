import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from typing import ClassVar, Literal

import pytest

from lenity.models.loading import MODELS
from lenity.models.packaged import PackagedModel
from lenity.policies import POLICIES
from lenity.policies.strict import Strict

PROMPT = "One fish, two fish, red fish, blue fish."


def test_strict_speculation_says_what_plain_decoding_says(run_json, tiny):
    plain = run_json("generate", PROMPT, "-m", tiny, "-n", "24")
    drafted = run_json("generate", PROMPT, "-m", tiny, "-n", "24", "--drafter", "ngram")
    (ours,), (theirs,) = drafted["generations"], plain["generations"]
    assert ours["token_ids"] == theirs["token_ids"]
    assert ours["totals"]["target_passes"] < theirs["totals"]["target_passes"] == 24
    assert {t["kind"] for t in theirs["receipt"]} == {"plain"}
    assert plain["settings"]["max_new_tokens"] == 24
    assert (plain["dtype"], plain["device"]) == ("float32", "cpu")


def test_a_relaxed_policy_spends_within_its_budget(run_json, tiny):
    document = run_json(
        "generate", PROMPT, "-m", tiny, "-n", "40", "--gamma", "4",
        "--drafter", "self_speculative:skip=1", "--policy", "asd:budget=0.5,gate=inf",
    )  # fmt: skip
    (found,) = document["generations"]
    assert 0 < found["totals"]["regret_spent_nats"] <= found["totals"]["budget_nats"] == 0.5
    assert found["totals"]["relaxed"] > 0
    relaxed = [t for t in found["receipt"] if t["kind"] == "relaxed"]
    assert all(t["strict_token_id"] not in (None, t["token_id"]) for t in relaxed)


def test_an_infinite_budget_is_still_json(run_json, tiny):
    document = run_json(
        "generate", PROMPT, "-m", tiny, "-n", "3", "--drafter", "ngram", "--policy",
        "asd:budget=inf",
    )  # fmt: skip
    assert document["generations"][0]["totals"]["budget_nats"] == "inf"


def test_streamed_text_is_the_text(run, run_json, tiny):
    arguments = ("generate", PROMPT, "-m", tiny, "-n", "16")
    text = run_json(*arguments)["generations"][0]["text"]
    assert run(*arguments).stdout == text + "\n"
    assert run(*arguments, "--no-stream").stdout == text + "\n"


def test_a_receipt_is_printed_when_asked_for(run, tiny):
    done = run("generate", PROMPT, "-m", tiny, "-n", "16", "--drafter", "ngram", "--receipt")
    assert "tokens per target pass" in " ".join(done.stdout.split())
    assert "accepted" in done.stdout
    assert done.stderr == ""


def test_standard_input_is_a_prompt(run_json, tiny):
    arguments = ("-m", tiny, "-n", "8")
    piped = run_json("generate", *arguments, stdin=PROMPT + "\n")
    named = run_json("generate", "--file", "-", *arguments, stdin=PROMPT)
    written = run_json("generate", PROMPT, *arguments)
    ids = [d["generations"][0]["token_ids"] for d in (piped, named, written)]
    assert ids[0] == ids[1] == ids[2]


def test_a_file_of_prompts_is_decoded_as_one_batch(run, run_json, tiny, write):
    lines = [f'{{"prompt": "{"fish " * n}"}}' for n in (1, 5, 2)]
    file = write("prompts.jsonl", "\n".join(lines))
    document = run_json("generate", "-f", file, "-m", tiny, "-n", "8", "--drafter", "ngram")
    alone = [
        run_json("generate", "fish " * n, "-m", tiny, "-n", "8")["generations"][0]["token_ids"]
        for n in (1, 5, 2)
    ]
    assert [g["token_ids"] for g in document["generations"]] == alone
    assert "prompt 3 of 3" in run("generate", "-f", file, "-m", tiny, "-n", "2").stdout


def test_chat_uses_the_template(run_json, tiny):
    lengths = [
        run_json("generate", "hi", "-m", tiny, "-n", "1", *options)["generations"][0][
            "prompt_tokens"
        ]
        for options in ((), ("--chat",), ("--system", "Be brief."))
    ]
    assert lengths[0] == 2 < lengths[1] < lengths[2]


def test_a_seed_decides_what_is_drawn(run_json, tiny):
    def ids(seed: str) -> list[int]:
        arguments = ("generate", PROMPT, "-m", tiny, "-n", "12", "--temperature", "1.5")
        return run_json(*arguments, "--seed", seed)["generations"][0]["token_ids"]

    assert ids("1") == ids("1") != ids("2")


def test_a_stop_string_ends_the_text(run_json, tiny):
    arguments = ("generate", PROMPT, "-m", tiny, "-n", "24")
    text = run_json(*arguments)["generations"][0]["text"]
    stop = text[4]
    (found,) = run_json(*arguments, "--stop", "§", "--stop", stop)["generations"]
    assert found["text"] == text[: text.index(stop)]
    assert (found["finish_reason"], found["stop_match"]) == ("stop", stop)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (("--policy", "asd:bugdet=3", "--drafter", "ngram"), "Did you mean 'budget'?"),
        (("--policy", "asd:budget=-1", "--drafter", "ngram"), "got '-1'"),
        (("--policy", "asd:budget", "--drafter", "ngram"), "Expected knob=value"),
        (("--drafter", "ngrm"), "Did you mean 'ngram'?"),
        (("--drafter", "autoregressive"), "model"),
        (("--drafter", "self_speculative"), "skip"),
        (("--drafter", "ngram", "--skip", "raw"), "gamma 5: nothing would ever be skipped"),
        (("--gamma", "-1"), "gamma"),
        (("--top-p", "2"), "top_p"),
        (("--policy", "asd"), "Name a drafter"),
        (("--policy", "asd", "--drafter", "ngram", "--gamma", "0"), "Name a drafter"),
        (("--policy", "asd", "--drafter", "ngram", "--temperature", "1"), "temperature"),
        (("--dtype", "float33"), "Did you mean 'float32'"),
        (("--file", "x.txt"), "got both"),
        (("-n", "0"), "max_new_tokens: expected at least 1, got 0"),
        (("-n", "many"), "expected an integer, got 'many'"),
        (("--temperature", "nan"), "temperature: expected a finite number, got nan"),
        (("--top-k", "0"), "top_k: expected at least 1, got 0"),
        (("--seed", "-1"), "seed: expected at least 0, got -1"),
        (("--stop", ""), "got an empty one"),
        (("--device", "gpu"), "Expected a device of this machine, got 'gpu'"),
        (("--dtype", "int8"), "Expected a dtype, got 'int8'"),
        (("--policy", "ASD", "--drafter", "ngram"), "Did you mean 'asd'?"),
        (("--policy", "strict:budget=3"), "has no knob 'budget'"),
        (("--policy", "asd:gate=1,gate=2", "--drafter", "ngram"), "stands twice"),
        (("--policy", "top_k:k=1e3", "--drafter", "ngram"), "expected an integer, got '1e3'"),
        (("--drafter", "ngram:min_match=9"), "min_match must not exceed max_match"),
        (("--drafter", "autoregressive"), "Write for example autoregressive:model=demo:smollm2"),
        (("--drafter", "autoregressive:model=/no/where"), "does not exist"),
        (("--drafter", "autoregressive:model=no/such"), "'no/such' in the hub's cache"),
        (("--drafter", "self_speculative:skip=99"), "got [99]"),
        (("--drafter", "self_speculative:skip=/no.json"), "could not read /no.json"),
        (("--model", ""), "without a config.json"),
        (("--model", "demo:smolm"), "Did you mean 'demo:smollm2'?"),
    ],
)
def test_what_cannot_run_is_refused_with_the_nearest_name(run, tiny, options, hint):
    done = run("generate", PROMPT, "-m", tiny, *options)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert hint in " ".join(done.stderr.replace("│", "").split())
    assert "Traceback" not in done.stderr


def test_an_empty_prompt_is_refused(run, tiny):
    done = run("generate", "", "-m", tiny)
    assert done.exit_code == 2
    assert "empty prompt" in done.stderr


def test_a_prompt_beyond_the_context_is_refused(run, tiny):
    done = run("generate", "x" * 1100, "-m", tiny)
    assert done.exit_code == 2
    assert "1024" in done.stderr


NOWHERE = PackagedModel(
    name="demo:nowhere",
    distribution="no-such-package",
    package="no_such_package",
    extra="demo",
    about="not installed",
)


def test_a_missing_extra_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(MODELS._table, "demo:nowhere", f"{__name__}:NOWHERE")
    done = run("generate", PROMPT, "-m", "demo:nowhere")
    assert done.exit_code == 2
    assert "pip install 'lenity[demo]'" in done.stderr
    assert "pip install 'lenity[demo]'" in " ".join(run("list", "models").stdout.split())


class Interrupting(Strict):
    """Strict until its fourth round, in which somebody presses Ctrl-C."""

    is_strict: ClassVar = False  # a rule that is has no say
    type: Literal["interrupting"] = "interrupting"
    rounds: ClassVar = itertools.count(1)

    def accepts(self, draft, scores):
        if next(self.rounds) == 4:
            raise KeyboardInterrupt
        return super().accepts(draft, scores)


@pytest.fixture
def interrupted(monkeypatch, run, tiny):
    monkeypatch.setattr(Interrupting, "rounds", itertools.count(1))
    monkeypatch.setitem(POLICIES._table, "interrupting", f"{__name__}:Interrupting")

    def generate(*options: str):
        return run(
            "generate", PROMPT, "-m", tiny, "--drafter", "ngram", "--policy", "interrupting",
            *options,
        )  # fmt: skip

    return generate


@pytest.mark.parametrize("options", [(), ("--no-stream",), ("--receipt",)])
def test_ctrl_c_prints_what_was_committed_and_exits_130(interrupted, run_json, tiny, options):
    whole = run_json("generate", PROMPT, "-m", tiny, "-n", "24")["generations"][0]["text"]
    done = interrupted(*options)
    assert done.exit_code == 130
    written = done.stdout.splitlines()[0]
    assert written
    assert whole.startswith(written)


def test_ctrl_c_leaves_a_whole_document(interrupted):
    done = interrupted("--json")
    assert done.exit_code == 130
    (found,) = json.loads(done.stdout)["generations"]
    assert found["finish_reason"] == "interrupted"
    assert found["totals"]["rounds"] == 3
    assert len(found["token_ids"]) == len(found["receipt"]) > 0


def test_a_real_ctrl_c_leaves_no_traceback(tiny):
    command = "from lenity.cli.main import app; app()"
    child = subprocess.Popen(
        [sys.executable, "-c", command, "generate", PROMPT, "-m", tiny, "-n", "900"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    first = child.stdout.read(1)  # something was committed
    child.send_signal(signal.SIGINT)
    rest, errors = child.communicate(timeout=60)
    assert first + rest
    assert child.returncode == 130, errors.decode()
    assert b"Traceback" not in errors


def test_the_document_holds_every_knob_and_counter(run_json, tiny):
    (found,) = run_json(
        "generate", PROMPT, "-m", tiny, "-n", "8", "--drafter", "ngram", "--policy", "asd:budget=2"
    )["generations"]
    assert found["effective_policy"] == "asd:budget=2"
    assert found["policy_knobs"]["budget"] == 2
    assert found["policy_knobs"]["gate"] == 0.25
    totals = found["totals"]
    assert totals["drafted"] >= totals["evaluated"] >= totals["accepted"] >= totals["relaxed"]
    assert totals["emitted"] == 8 >= totals["rounds"]


def test_the_receipt_begins_with_every_knob(run, tiny):
    done = run("generate", PROMPT, "-m", tiny, "-n", "4", "--receipt")
    assert "policy strict" in done.stdout
    drafted = ("--drafter", "ngram", "--policy", "asd:budget=2")
    said = "".join(
        run("generate", PROMPT, "-m", tiny, "-n", "4", "--receipt", *drafted).stdout.split()
    )
    assert "policyasd:relax_special=false,budget=2,gate=0.25,block_cap=2," in said


@pytest.mark.parametrize("command", ["generate", "generate --json"])
def test_a_template_that_fails_is_a_message(run, tiny, tmp_path, command):
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no system here') }}")
    done = run(*command.split(), "hi", "--chat", "-m", str(folder))
    assert done.exit_code == 2
    assert "no system here" in done.stderr


def test_a_skip_rule_commits_unasked_and_says_so(run_json, tiny):
    words = ("generate", "hello hello hello hello", "-m", tiny, "-n", "40", "--gamma", "4")
    rule = "raw:local=0,prefix=0,min_prefix=1,repetition_guard=false"
    document = run_json(*words, "--drafter", "autoregressive:model=target", "--skip", rule)
    (generation,) = document["generations"]
    assert "skipped" in {token["kind"] for token in generation["receipt"]}
    plain = run_json(*words)["generations"][0]
    assert generation["text"] == plain["text"], "the target itself drafted"


def test_a_skip_rule_without_such_a_drafter_is_refused(run, tiny):
    done = run("generate", "hello", "-m", tiny, "--skip", "raw:min_prefix=2")
    assert done.exit_code == 2
    assert "a drafter that drafts from tokens alone" in done.stderr
