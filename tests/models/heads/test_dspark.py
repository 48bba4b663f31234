import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from lenity.errors import ModelMismatchError
from lenity.models.heads.checkpoint import open_checkpoint
from lenity.models.heads.dflash_config import MARKOV_KINDS, read_config
from lenity.models.heads.dspark import DSpark, MarkovHead, read_dspark
from tests.drafters.heads import tiny_config, tiny_dspark
from tests.drafters.rig import tiny_llama
from tests.models.heads.golden import ATOL, FOLDER, golden, largest_difference

NAME = "dspark-deepspec-a"
TARGET = tiny_llama(0)


def read(folder):
    target = golden(NAME).target
    checkpoint = open_checkpoint(folder)
    config = read_config(checkpoint, num_target_layers=target.num_layers)
    return read_dspark(checkpoint, config, target, torch.float32)


@pytest.mark.parametrize("prompt", [0, 1])
@torch.no_grad()
def test_the_golden_states(prompt):
    case, head = golden(NAME), read(FOLDER / NAME / "drafter")
    fused = head.fuse(case.array(prompt, "taps")[None])[0]
    assert largest_difference(fused, case.array(prompt, "fused")) < ATOL
    ids = case.committed(prompt)
    for r, turn in enumerate(case.rounds(prompt)):
        cache, start = head.new_cache(1), turn["start"]
        head.remember(case.features(ids[:start])[None], cache)
        cache.commit([start])
        hidden = head.run_block(torch.tensor([turn["anchor"]]), cache)
        assert largest_difference(hidden[0], case.array(prompt, "hidden")[r]) < ATOL
        previous = torch.tensor([[turn["anchor"], *turn["draft"][:-1]]])
        bias, _ = head.markov_head(previous, hidden)
        logits = (head.logits(hidden, case.target.logits) + bias)[0]
        assert largest_difference(logits, case.array(prompt, "logits")[r]) < ATOL
        assert logits.argmax(-1).tolist() == turn["draft"]
        trust = head.confidence_logits(previous, hidden)[0]
        assert largest_difference(trust, case.array(prompt, "confidence_logits")[r]) < ATOL


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def scalar_biases(weights, kind, tokens, hidden):
    """The loop of the module's docstring, in Python floats."""
    w1, w2 = weights["markov_w1.weight"], weights["markov_w2.weight"]
    state, out = [0.0] * len(w1[0]), []
    for token, h in zip(tokens, hidden, strict=True):
        e = w1[token]
        if kind == "gated":
            rows = zip(weights["gate_proj.weight"], weights["gate_proj.bias"], strict=True)
            gates = [
                sigmoid(sum(a * b for a, b in zip(w, h + e, strict=True)) + c) for w, c in rows
            ]
            e = [g * x for g, x in zip(gates, e, strict=True)]
        if kind == "rnn":
            rows = zip(weights["joint_proj.weight"], weights["joint_proj.bias"], strict=True)
            x = state + e + h
            joint = [dot(w, x) + c for w, c in rows]
            r = len(e)
            gates = [sigmoid(g) for g in joint[:r]]
            news = [math.tanh(c) for c in joint[r : 2 * r]]
            state = [g * s + (1 - g) * c for g, s, c in zip(gates, state, news, strict=True)]
            e = [math.tanh(o) for o in joint[2 * r :]]
        out.append([dot(w, e) for w in w2])
    return out


@pytest.mark.parametrize("kind", MARKOV_KINDS)
@torch.no_grad()
def test_the_correction_against_its_scalar_twin(kind):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        head = MarkovHead(kind, num_embeddings=11, head_rows=7, rank=3, hidden_size=5).double()
        hidden = torch.randn(4, 5, dtype=torch.float64)
    tokens, state, found = [2, 10, 0, 2], None, []
    for token, h in zip(tokens, hidden, strict=True):
        bias, state = head(torch.tensor([token]), h[None], state)
        found.append(bias[0].tolist())
    weights = {k: v.tolist() for k, v in head.state_dict().items()}
    expected = scalar_biases(weights, kind, tokens, hidden.tolist())
    assert torch.allclose(torch.tensor(found), torch.tensor(expected), atol=1e-6)
    assert (state is not None) == (kind == "rnn")


def test_only_rnn_remembers_earlier_tokens():
    for kind in MARKOV_KINDS:
        head = tiny_dspark(TARGET, kind).markov_head
        hidden = torch.randn(1, TARGET.hidden_size)
        biases = []
        for first in (1, 2):
            _, state = head(torch.tensor([first]), hidden)
            biases.append(head(torch.tensor([5]), hidden, state)[0])
        assert torch.equal(*biases) == (kind != "rnn")


def test_confidence_looks_at_the_token_before_where_it_was_trained_to():
    hidden = torch.randn(1, 2, TARGET.hidden_size)
    for is_markov in (True, False):
        head = tiny_dspark(TARGET, is_confidence_markov=is_markov)
        one, other = (head.confidence_logits(torch.tensor([[4, t]]), hidden) for t in (1, 2))
        assert one.shape == (1, 2)
        assert one[0, 0] == other[0, 0]
        assert (one[0, 1] == other[0, 1]) == (not is_markov)


def test_both_heads_are_optional():
    plain = tiny_dspark(TARGET, markov_rank=0, has_confidence=True, is_confidence_markov=False)
    assert plain.markov_head is None
    hidden = torch.randn(1, 1, TARGET.hidden_size)
    assert plain.confidence_logits(torch.tensor([[1]]), hidden).shape == (1, 1)
    bare = tiny_dspark(TARGET, has_confidence=False)
    assert bare.confidence_logits(torch.tensor([[1]]), hidden) is None


@pytest.mark.parametrize("kind", MARKOV_KINDS)
def test_parameters_have_published_names(kind):
    config = tiny_config(TARGET, markov_rank=6, markov_kind=kind, has_confidence=True)
    names = set(DSpark(config, TARGET.hidden_size, vocab_size=128).state_dict())
    extra = {"gated": "gate_proj", "rnn": "joint_proj"}.get(kind)
    expected = {"markov_w1.weight", "markov_w2.weight"}
    expected |= {f"{extra}.weight", f"{extra}.bias"} if extra else set()
    found = {n.removeprefix("markov_head.") for n in names if n.startswith("markov_head.")}
    assert found == expected
    assert {"confidence_head.proj.weight", "confidence_head.proj.bias"} <= names


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t, c: t.pop("confidence_head.proj.bias"), ["confidence_head.proj.bias", "(1,)"]),
        (lambda t, c: c.update(confidence_head_with_markov=False), ["proj.weight", "(1, 48)"]),
        (lambda t, c: c.update(markov_rank=4), ["markov_w1.weight", "(92, 4)", "(92, 8)"]),
        (lambda t, c: c.update(markov_head_type="rnn"), ["joint_proj.weight", "(24, 64)"]),
        (lambda t, c: c.update(enable_confidence_head=False), ["confidence_head", "to none"]),
    ],
    ids=["missing", "markov", "rank", "kind", "unused"],
)
def test_config_and_weights_have_to_agree(tmp_path, change, words):
    shutil.copytree(FOLDER / NAME / "drafter", tmp_path / "drafter")
    file = tmp_path / "drafter" / "config.json"
    weights = tmp_path / "drafter" / "model.safetensors"
    tensors, config = load_file(weights), json.loads(file.read_text())
    change(tensors, config)
    save_file(tensors, weights)
    file.write_text(json.dumps(config))
    with pytest.raises(ModelMismatchError) as caught:
        read(tmp_path / "drafter")
    assert all(word in str(caught.value) for word in [*words, "model.safetensors"])
