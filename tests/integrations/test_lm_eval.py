"""The model "lenity" in the real lm-eval, on a task of a few lines, without a network."""

import importlib
import json
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("lm_eval", reason='needs the extra "lm-eval" (CONTRIBUTING.md)')

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
from tokenizers.processors import TemplateProcessing

import lenity
from examples.tiny_model import save_tiny_model
from lenity.errors import ConfigError, MissingExtraError
from lenity.integrations.lm_eval import LenityLM, main
from lenity.workbench.facts import DrafterFacts, target_facts
from lenity.workbench.operating_point import OperatingPoint, save_operating_point

pytestmark = pytest.mark.filterwarnings(
    # lm-eval's and datasets' own, of the version installed: none of ours pass through them
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)

RELAXED = {"drafter": "ngram:max_match=2", "policy": "asd:budget=1e4,gate=1e4,block_cap=4"}
TASK = """
task: tiny_echo
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: {output}
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
{rest}
metadata:
  version: 1
"""
GENERATION = """
generation_kwargs:
  until: ["e"]
  max_gen_toks: 12
  do_sample: false
metric_list:
  - metric: exact_match
"""
CHOICE = """
doc_to_choice: ["a", "b"]
metric_list:
  - metric: acc
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """Keep what datasets writes in the test's folder, and everything off the network."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("datasets.config.HF_DATASETS_OFFLINE", True)


def local_task(tmp_path, output="generate_until", rest=GENERATION):
    rows = [{"question": f"{w} {w} {w} {w}", "answer": "a"} for w in ("one", "two", "tree")]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    folder = tmp_path / "tasks"
    folder.mkdir()
    text = TASK.format(file=tmp_path / "data.jsonl", output=output, rest=rest)
    (folder / "tiny_echo.yaml").write_text(text)
    return TaskManager(include_path=str(folder), include_defaults=False)


def evaluate(tmp_path, model_args, **options):
    return simple_evaluate(
        model="lenity",
        model_args=model_args,
        tasks=["tiny_echo"],
        bootstrap_iters=0,
        log_samples=True,
        **options,
    )


def ask(prompt, **wanted):
    return SimpleNamespace(args=(prompt, wanted))


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("chat", [False, True])
def test_the_harness_evaluates_a_task(tiny, tmp_path, chat):
    manager = local_task(tmp_path)
    found = evaluate(
        tmp_path,
        {"target": tiny, **RELAXED, "gamma": 4},
        task_manager=manager,
        batch_size=2,
        apply_chat_template=chat,
    )
    answers = [sample["resps"][0][0] for sample in found["samples"]["tiny_echo"]]
    assert len(answers) == 3
    assert not any("e" in answer for answer in answers)
    ledger = found["config"]["lenity_ledger"]
    assert ledger["requests"] == 3
    assert ledger["relaxed_share"] > 0
    assert ledger["regret_per_request"] > 0
    assert found["config"]["lenity_policy"].startswith("asd:")
    decoder = lenity.Decoder(target=lenity.load(tiny), **RELAXED)
    prompt = found["samples"]["tiny_echo"][0]["arguments"][0][0]
    assert prompt.startswith("<|user|>") is chat
    own = decoder.generate(prompt, gamma=4, max_new_tokens=12, stop="e")
    assert answers[0] == own.text


@pytest.mark.usefixtures("offline")
def test_the_command_line_knows_the_model(tiny, tmp_path, monkeypatch, capsys):
    local_task(tmp_path)
    words = ["lm_eval", "run", "--model", "lenity", "--model_args", f"target={tiny},drafter=ngram"]
    words += ["--tasks", "tiny_echo", "--include_path", str(tmp_path / "tasks")]
    monkeypatch.setattr("sys.argv", [*words, "--output_path", str(tmp_path / "out")])
    main()
    assert "tiny_echo" in capsys.readouterr().out
    (file,) = (tmp_path / "out").rglob("results*.json")
    config = json.loads(file.read_text())["config"]
    assert config["lenity_ledger"]["requests"] == 3
    assert config["lenity_drafter"] == "ngram"


@pytest.mark.usefixtures("offline")
def test_a_likelihood_task_is_refused_with_a_reason(tiny, tmp_path):
    manager = local_task(tmp_path, "multiple_choice", CHOICE)
    with pytest.raises(ConfigError, match="the target's alone"):
        evaluate(tmp_path, {"target": tiny}, task_manager=manager)


def test_an_operating_point_decides_everything(tiny, tmp_path):
    file = tmp_path / "point.yaml"
    point = OperatingPoint(
        target=target_facts(lenity.load(tiny)),
        drafter=DrafterFacts(spec="ngram"),
        policy="asd:budget=2",
        gamma=3,
        batch_size=2,
    )
    save_operating_point(point, file)
    model = LenityLM(operating_point=str(file), batch_size=1)
    assert (model.gamma, model.decoder.max_batch_size) == (3, 2)
    assert model.decoder.policy.spec.startswith("asd:budget=2")
    with pytest.raises(ConfigError, match="own batch size, 2"):
        LenityLM(operating_point=str(file), batch_size=4)
    with pytest.raises(ConfigError, match="cannot stand beside"):
        LenityLM(operating_point=str(file), policy="strict")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "neither"),
        ({"target": "x", "operating_point": "y"}, "both"),
        ({"target": "x", "batch_size": "auto"}, "'auto'"),
        ({"target": "x", "max_batch_size": 8}, "batch_size alone"),
        ({"target": "x", "polcy": "strict"}, "policy"),
        ({"target": "x", "policy": "asd:budget=8", "gate": 0.25}, "JSON"),
    ],
)
def test_model_args_that_say_nothing_sensible_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        LenityLM(**options)


@pytest.fixture(scope="module")
def model(tiny):
    return LenityLM(target=tiny, **RELAXED, gamma=4, batch_size=2)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"num_beams": 4}, "num_beams=4"),
        ({"do_sample": True}, "temperature above 0"),
        ({"until": [""]}, "empty"),
        ({"temperature": -1.0}, "temperature"),
    ],
)
def test_what_cannot_be_honoured_is_refused(model, wanted, words):
    before = len(model.records)
    with pytest.raises(ConfigError, match=words):
        model.generate_until([ask("abc", max_gen_toks=4), ask("abc", **wanted)], disable_tqdm=True)
    assert len(model.records) == before


def test_settings_are_those_of_the_harness(model):
    own = model._settings({"until": "x", "do_sample": False, "temperature": 0.7}, 2)
    assert (own.stop, own.temperature, own.max_new_tokens, own.seed) == (("x",), 0.0, 256, 2)
    own = model._settings({"max_tokens": 9, "max_gen_toks": 7, "temperature": 0.5, "top_k": 3}, 0)
    assert (own.max_new_tokens, own.temperature, own.top_k, own.gamma) == (7, 0.5, 3, 4)
    own = model._settings({"until": ["</s>", "y"]}, 0)  # a special token, which no text shows
    assert (own.stop, own.stop_token_ids) == (("y",), (1,))


def test_a_rendered_prompt_gets_no_opening_but_its_own(tiny):
    model = LenityLM(target=tiny)
    opening = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    model.tokenizer.backend_tokenizer.post_processor = opening
    plain = model._encode("a")
    assert plain[0] == 0
    assert model._encode("<s>a") == plain
    text = model.apply_chat_template([{"role": "user", "content": "a"}])
    assert model._encode(text)[0] != 0


def test_a_conversation_is_rendered_by_the_target(model):
    text = model.apply_chat_template([{"role": "user", "content": "a"}])
    assert text == "<|user|>a\n<|assistant|>"
    assert model.chat_template(True) == model.tokenizer.chat_template
    assert model.chat_template(False) is None
    assert "/" not in model.tokenizer_name


def test_the_device_lm_eval_names_unasked_is_no_wish(tiny):
    model = LenityLM(target=tiny, device="cuda:0", batch_size=1)
    assert model.decoder.target.device == lenity.load(tiny).device
    with pytest.raises(ConfigError, match="device"):
        LenityLM(target=tiny, device="cuda:99")


def test_a_prompt_that_does_not_fit_is_refused_not_cut(model):
    with pytest.raises(ConfigError, match="1024"):
        model.generate_until([ask("a" * 2000, max_gen_toks=4)], disable_tqdm=True)


def test_a_missing_harness_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "lenity.integrations.lm_eval")
    with pytest.raises(MissingExtraError, match=r"lenity\[lm-eval\]"):
        importlib.import_module("lenity.integrations.lm_eval")


def test_nothing_asked_is_nothing_answered(model):
    assert model.generate_until([], disable_tqdm=True) == []


def test_strict_gives_nothing_away_and_relaxed_says_what(tiny):
    strict = LenityLM(target=tiny, drafter="ngram", gamma=4)
    assert strict.summary["relaxed_share"] is None
    strict.generate_until([ask("abab" * 4, max_gen_toks=10)], disable_tqdm=True)
    assert strict.summary["relaxed_share"] == 0
    assert strict.summary["regret_per_request"] == 0
    assert strict.summary["tokens_per_target_pass"] >= 1
    assert strict.get_model_info()["lenity_policy"] == "strict"
