import json
import signal

import pytest
import torch

from lenity.errors import ConfigError
from lenity.training.replies import count_tokens, read_replies, write_replies
from tests.drafters.rig import Words
from tests.training import rig

PAIRS = [("a", f"w{i} w{i + 1} w{2 * i}") for i in range(2, 12)]


def speaker():
    model = rig.target()
    model.tokenizer = Words(rig.VOCABULARY)
    return model


def test_a_stopped_run_goes_on_with_the_prompts_that_are_missing(tmp_path):
    model, whole, parts = speaker(), tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    told = []
    written = write_replies(
        model, PAIRS, whole, max_new_tokens=6, batch_size=4, progress=told.append
    )
    assert written == sum(told) == sum(len(r["token_ids"]) for r in read_replies(whole))
    write_replies(model, PAIRS[:4], parts, max_new_tokens=6, batch_size=4)
    with parts.open("a") as file:
        file.write('{"family":"a","prompt":"w9')  # torn by a kill
    write_replies(model, PAIRS, parts, max_new_tokens=6, batch_size=4)

    def by_prompt(path):
        return {r["prompt"]: r["token_ids"] for r in map(json.loads, path.read_text().splitlines())}

    assert by_prompt(parts) == by_prompt(whole)
    assert len(by_prompt(whole)) == len(PAIRS)
    assert write_replies(model, PAIRS, whole, max_new_tokens=6) == 0


def test_replies_are_the_targets_greedy_text(tmp_path):
    model, file = speaker(), tmp_path / "replies.jsonl"
    write_replies(model, PAIRS[:1], file, max_new_tokens=4)
    [reply] = read_replies(file)
    ids = reply["prompt_ids"] + reply["token_ids"]
    states = model.hidden_states(torch.tensor([ids]), model.new_cache(1)).last
    best = model.logits(states)[0].argmax(-1).tolist()
    assert best[len(reply["prompt_ids"]) - 1 : -1] == reply["token_ids"]


def test_it_ends_when_the_file_holds_enough_tokens(tmp_path):
    model, file = speaker(), tmp_path / "replies.jsonl"
    settings = {"max_new_tokens": 6, "batch_size": 2}
    write_replies(model, PAIRS, file, num_tokens=13, **settings)
    first = read_replies(file)
    assert 13 <= count_tokens(first) < 13 + 6
    assert write_replies(model, PAIRS, file, num_tokens=13, **settings) == 0
    write_replies(model, PAIRS, file, num_tokens=25, **settings)
    assert 25 <= count_tokens(read_replies(file)) < 25 + 6
    assert read_replies(file)[: len(first)] == first


def test_what_an_interruption_cut_short_is_not_recorded(tmp_path, monkeypatch):
    model, file, told = speaker(), tmp_path / "replies.jsonl", []
    forward = model.hidden_states

    def interrupted(*given, **asked):
        if told:
            signal.raise_signal(signal.SIGINT)  # Ctrl-C while the second pair is decoded
        return forward(*given, **asked)

    monkeypatch.setattr(model, "hidden_states", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_replies(model, PAIRS, file, max_new_tokens=6, batch_size=2, progress=told.append)
    recorded = [len(r["token_ids"]) for r in read_replies(file)]
    assert recorded == told == [6, 6]


def test_a_target_without_a_tokenizer_answers_nothing(tmp_path):
    with pytest.raises(ConfigError, match="tokenizer"):
        write_replies(rig.target(), PAIRS, tmp_path / "replies.jsonl")
