"""What docs/reproduce/skipping.md rests on: nothing remembered is another thing, sums by hand."""

import json

import numpy as np
import pytest

from lenity.drafters import drafter
from lenity.engine.decode import Decoder
from lenity.workbench.diagnostics import LoggedBlocks
from scripts.remembering_drafter import remembering_drafter
from scripts.remembering_target import RememberingTarget
from scripts.reproduce_skipping_page import fill, tables
from scripts.reproduce_skipping_predicted import Setting, at_agreement, predicted
from scripts.reproduce_skipping_summary import is_right
from tests.drafters.rig import tiny_llama
from tests.models.masked_tiny import masked_folder
from tests.test_layers import ROOT

TARGET = tiny_llama(1, words=120, name="tiny:target")
PROMPTS = [[5, 6, 7, 8, 9, 10], [5, 6, 7, 9], [15, 16, 17], [5, 6, 7, 8]]
ARMS = [
    {},
    {"skip": "periodic:period=2,count=2", "shadow": True},
    {"skip": "raw:local=0,prefix=0,min_prefix=1", "shadow": True},
    {"policy": "lenience:ratio=0.3"},
    {"policy": "top_k:k=40"},
]


def told(generations):
    return [
        (
            g.token_ids,
            [(r.drafted, r.accepted, r.skipped, r.shadow_accepted) for r in g.rounds],
            g.num_target_passes,
        )
        for g in generations
    ]


@pytest.mark.parametrize("prefix", ["causal", "full"])
def test_what_is_remembered_is_what_is_computed(tmp_path, prefix):
    # a drafted id 0 looks like padding, which a remembering target refuses to commit
    folder = masked_folder(tmp_path, "dream", prefix_attention=prefix, pad_token_id=0)
    plain = drafter("masked_diffusion", model=str(folder), steps=3)
    quick = remembering_drafter(folder, steps=3, dtype="float32")
    remembering = RememberingTarget(TARGET)
    relaxed = 0
    for arm in ARMS:
        one = Decoder(target=TARGET, drafter=plain, max_batch_size=3, **arm)
        other = Decoder(target=remembering, drafter=quick, max_batch_size=3, **arm)
        expected = one.generate(PROMPTS, gamma=5, max_new_tokens=12)
        for _ in range(2):  # computed, then looked up
            found = other.generate(PROMPTS, gamma=5, max_new_tokens=12)
            assert told(found) == told(expected), arm
            mine, theirs = (
                [t.logprob for g in made for t in g.receipt] for made in (found, expected)
            )
            np.testing.assert_allclose(mine, theirs, atol=1e-4)
        relaxed += sum(r.relaxed for g in expected for r in g.rounds)
    assert relaxed, "no arm left strict's text"


def test_a_spec_is_masked_diffusions(tmp_path):
    folder = masked_folder(tmp_path, "dream")
    plain = drafter("masked_diffusion", model=str(folder), steps=3, dtype="float32")
    assert str(remembering_drafter(folder, steps=3, dtype="float32")) == str(plain)


def test_predicted_calls_by_hand():
    log = LoggedBlocks.of("raw", [[0.99, 0.5], [0.99, 0.99], [0.1, 0.9]], [1, 1, 2])
    settings = {
        "raw 0.9 0.9": Setting(signal="raw", local=0.9, prefix=0.9, least=1),
        "raw 0.9 2": Setting(signal="raw", local=0.9, prefix=0.9, least=2),
        "raw 2 2": Setting(signal="raw", local=2.0, prefix=2.0, least=1),
    }
    rows = predicted({"raw": log}, ["a", "b", "c"], settings)
    # strict: 3 calls for 2 + 2 + 3 tokens; skipping 1 and 2 of the first two: 1 call for 1 + 2 + 3
    assert rows["raw 0.9 0.9"]["calls"][0] == pytest.approx(1 / 6 / (3 / 7))
    assert rows["raw 0.9 0.9"]["blocks"] == pytest.approx(3 / 6 / (3 / 7))
    # of 1, 2 and 2 committed draft tokens strict accepts 1, 1 and 2
    assert rows["raw 0.9 0.9"]["strict_token"] == pytest.approx(4 / 5)
    assert rows["raw 0.9 0.9"]["full_prefix"] == pytest.approx(2 / 3)
    assert rows["raw 0.9 2"]["calls"][0] == pytest.approx(2 / 7 / (3 / 7))
    assert rows["raw 2 2"]["calls"] == [1, 1, 1]
    assert at_agreement(rows)["raw"]["0.98"][0] == "raw 2 2"


@pytest.mark.parametrize(
    ("prompt", "answer", "expected"),
    [
        ("Count from 3 to 5, one number per line.", "3\n4\n5", True),
        ("Count from 3 to 5, one number per line.", "3\n4\n5\n6", False),
        ("Repeat this sentence three times: A b.", "A b.\nA b.\n\nA b.", True),
        ("Repeat this sentence three times: A b.", "A b. A b.", False),
        (
            "Write a JSON object with the fields age, job and pet for a person called Zoe.",
            'Here:\n{"Age": 3, "job": "x", "pet": null}',
            True,
        ),
        (
            "Write a JSON object with the fields age, job and pet for a person called Zoe.",
            '{"age": 3, "job": "x"}',
            False,
        ),
        ("Make a table with the columns a, b and c and three rows.", "x", None),
    ],
)
def test_answers_are_judged(prompt, answer, expected):
    assert is_right(prompt, answer) is expected


def test_the_page_says_what_the_summary_says():
    page = ROOT / "docs" / "reproduce"
    text = (page / "skipping.md").read_text()
    assert fill(text, tables(json.loads((page / "skipping.json").read_text()))) == text
