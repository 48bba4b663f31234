import math

import pytest
import torch

from lenity.engine.decode import Decoder
from lenity.errors import ConfigError
from lenity.models.base import HiddenStates
from lenity.models.causal import CausalLM
from lenity.workbench import rescore
from lenity.workbench.arms import to_record
from lenity.workbench.divergence import Label, label_divergence
from lenity.workbench.jobs import Job
from lenity.workbench.pairing import Pairs
from lenity.workbench.rescore import (
    Continuation,
    Rescorer,
    in_float32,
    mean_logprobs,
    teacher_forced_logprobs,
)
from tests.cases.rig import PROMPTS, build, pattern, plain, reference, scripted, target
from tests.toys import ScriptedDrafter, TableModel, cycle_model, oracle

NOISE = 1e-4
"""Nats by which float32 logits of some tens differ between products of different shapes."""
JOB = Job(task="toy@1", item_id="q0", prompt_ids=(1,))


def record_of(generation, arm="arm"):
    return to_record(generation, arm, JOB)


def decode(model, prompt, drafter=None, policy="strict", **settings):
    made = Decoder(target=model, drafter=drafter, policy=policy)
    return record_of(made.generate(prompt, **{"gamma": 4, "max_new_tokens": 12, **settings}))


def texts_of(generations):
    return [Continuation(prompt_ids=g.prompt_ids, token_ids=g.token_ids) for g in generations]


# ------------------------------------------------------------------------------- teacher forcing


@pytest.mark.parametrize("chunk", [512, 7, 1])
@pytest.mark.parametrize("batch_size", [8, 2, 1])
def test_teacher_forced_text_is_as_likely_as_when_it_was_decoded(monkeypatch, chunk, batch_size):
    monkeypatch.setattr(rescore, "CHUNK", chunk)
    generations = plain(target(), PROMPTS, max_new_tokens=9)
    rows = teacher_forced_logprobs(target(), texts_of(generations), batch_size=batch_size)
    for row, generation in zip(rows, generations, strict=True):
        assert row == pytest.approx(list(generation.logprobs), abs=NOISE)


def test_memory_for_logits_changes_nothing():
    (generation,) = plain(target(), PROMPTS[3:], max_new_tokens=9)
    texts = texts_of([generation])
    whole, bounded = (
        teacher_forced_logprobs(target(), texts, max_logits_bytes=size) for size in (1 << 28, 1)
    )
    assert bounded[0] == pytest.approx(whole[0], abs=NOISE)


def test_means_are_per_token_and_of_any_text():
    known = reference()
    text = Continuation(prompt_ids=PROMPTS[1], token_ids=[3, 100, 7])
    logits = known.teacher_forced([*PROMPTS[1], 3, 100, 7], len(PROMPTS[1]))
    law = logits.log_softmax(-1)
    expected = sum(float(law[i, t]) for i, t in enumerate((3, 100, 7))) / 3
    nothing = Continuation(prompt_ids=PROMPTS[0], token_ids=[])
    assert mean_logprobs(target(), [nothing, text]) == [None, pytest.approx(expected, abs=NOISE)]
    assert mean_logprobs(target(), [nothing]) == [None]
    assert mean_logprobs(target(), []) == []


def test_ids_no_token_stands_for_take_no_mass():
    table = torch.zeros(4, 4)
    model = TableModel(table, unknown_ids=[3])
    text = Continuation(prompt_ids=[0], token_ids=[1, 2])
    assert teacher_forced_logprobs(model, [text])[0] == pytest.approx([-math.log(3)] * 2)


# --------------------------------------------------------------------------------------- controls


@pytest.mark.parametrize("chunk", [512, 3])
def test_the_two_best_are_the_targets_own(monkeypatch, chunk):
    monkeypatch.setattr(rescore, "CHUNK", chunk)
    for prompt in PROMPTS:
        best = reference().row(prompt).double().topk(2)
        ids, gap = Rescorer(target()).top_two(prompt)
        assert list(ids) == best.indices.tolist()
        assert gap == pytest.approx(float(best.values[0] - best.values[1]), abs=NOISE)


def test_controls_repeat_strict_text_where_nothing_is_wrong():
    known = reference()
    arm = decode(target(), PROMPTS[2], scripted(pattern(known, 0, 4, 2)))
    assert {r.accepted for r in arm.rounds} >= {0, 2}
    for position in range(len(arm.token_ids)):
        expected = arm.token_ids[: position + 1]
        assert Rescorer(target()).control(arm, position) == expected
        assert Rescorer(target()).control_in_round(arm, position) == expected


def test_a_relaxed_token_is_policy_and_its_gap_the_ledgers():
    rule = "asd:budget=inf,gate=inf,block_cap=none"

    def skip_by_two(ids, limit):
        return [(ids[-1] + 2 * (i + 1)) % 16 for i in range(limit)]

    strict = decode(cycle_model(), [1, 5])
    arm = decode(cycle_model(), [1, 5], ScriptedDrafter(script=skip_by_two), rule)
    evidence = Rescorer(cycle_model()).evidence(strict, arm)
    assert evidence.top_ids == (6, 7)
    assert evidence.gap == pytest.approx(arm.relaxed[0].regret)
    assert label_divergence(strict, arm, evidence).label is Label.POLICY


def test_a_token_nothing_explains_is_a_defect():
    strict = decode(target(), PROMPTS[2])
    wrong = (strict.token_ids[3] + 1) % 128
    ids = (*strict.token_ids[:3], wrong, *strict.token_ids[4:])
    broken = strict.model_copy(update={"token_ids": ids})
    evidence = Rescorer(target()).evidence(strict, broken)
    assert evidence.control_ids[3] == strict.token_ids[3]
    found = label_divergence(strict, broken, evidence)
    assert (found.position, found.label) == (3, Label.DEFECT)


def test_equal_texts_and_a_text_that_only_ends_sooner_need_no_evidence():
    strict = decode(target(), PROMPTS[2])
    shorter = decode(target(), PROMPTS[2], max_new_tokens=5)
    assert Rescorer(target()).evidence(strict, strict) is None
    assert Rescorer(target()).evidence(strict, shorter) is None


def test_a_tie_is_told_from_its_gap():
    """Two best logits that are equal: which of them is chosen is nobody's fault."""
    table = torch.zeros(4, 4)
    table[:, 1], table[:, 2] = 5.0, 5.0
    model = TableModel(table)
    strict = decode(model, [0], max_new_tokens=3)
    other = strict.model_copy(update={"token_ids": (2, *strict.token_ids[1:])})
    evidence = Rescorer(model).evidence(strict, other)
    assert set(evidence.top_ids) == {1, 2}
    assert evidence.gap == 0
    assert label_divergence(strict, other, evidence).label is Label.TIE


class WidthModel(TableModel):
    """A model whose choice depends on how many tokens entered one forward together."""

    def __init__(self, table, is_odd):
        super().__init__(table)
        self.is_odd = is_odd

    def hidden_states(self, token_ids, cache, **options):
        states = super().hidden_states(token_ids, cache, **options)
        return HiddenStates(last=states.last + 100 * self.is_odd(token_ids.shape[1]))

    def logits(self, hidden):
        shifted = hidden.squeeze(-1).long()
        logits = self.table[shifted % 100]
        return torch.where((shifted >= 100)[..., None], logits.roll(1, -1), logits)


@pytest.mark.parametrize(
    "is_odd", [lambda width: width > 1, lambda width: width == 5], ids=["any block", "gamma + 1"]
)
def test_what_the_batchs_shape_does_is_shape_whatever_the_drafter(is_odd):
    """The second kind is seen only when the round's own width is tried."""
    table = cycle_model().table
    model = WidthModel(table, is_odd)
    strict = decode(model, [1], gamma=0)
    arm = decode(model, [1], ScriptedDrafter(script=oracle(cycle_model())))
    assert arm.token_ids != strict.token_ids
    evidence = Rescorer(model, exact=cycle_model()).evidence(strict, arm)
    assert evidence.gap == pytest.approx(0.5)
    assert label_divergence(strict, arm, evidence).label is Label.SHAPE


def test_evidence_of_a_whole_run_is_keyed_as_its_records():
    strict = decode(target(), PROMPTS[2])
    same = strict.model_copy(update={"item_id": "same"})
    ids = (*strict.token_ids[:-1], (strict.token_ids[-1] + 1) % 128)
    changed = strict.model_copy(update={"token_ids": ids})
    found = Rescorer(target()).all_evidence(Pairs.of([strict, same], [changed, same]))
    assert list(found) == [("toy@1", "q0", 0)]


# --------------------------------------------------------------------------------------- float32


def test_a_half_precision_target_is_re_scored_in_float32():
    half = CausalLM(build("llama").bfloat16(), name="half")
    exact = in_float32(half)
    assert (exact.dtype, half.dtype) == (torch.float32, torch.bfloat16)
    upcast = half.module.get_output_embeddings().weight.float()
    assert torch.equal(exact.module.get_output_embeddings().weight, upcast)
    ids, gap = Rescorer(half).top_two(PROMPTS[2])
    with torch.no_grad():
        logits = exact.module(input_ids=torch.tensor([PROMPTS[2]])).logits[0, -1]
    best = logits.double().topk(2)
    assert list(ids) == best.indices.tolist()
    assert gap == pytest.approx(float(best.values[0] - best.values[1]), abs=NOISE)


def test_a_float32_target_is_its_own():
    assert in_float32(target()) is target()


def test_weights_that_cannot_be_upcast_are_refused():
    toy = cycle_model()
    toy.dtype = torch.bfloat16
    with pytest.raises(ConfigError, match="Give the float32 model as `exact`"):
        Rescorer(toy)
    quantised = CausalLM(build("llama").bfloat16(), name="quantised")
    quantised.module.config.quantization_config = {"quant_method": "gptq"}
    with pytest.raises(ConfigError, match="got quantised in"):
        in_float32(quantised)
    assert Rescorer(toy, exact=cycle_model()).top_two([3])[0] == (4, 5)
