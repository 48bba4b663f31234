import json

import pytest
import torch

from lenity.drafters import drafter
from lenity.drafters.masked_diffusion import MaskedDiffusion
from lenity.engine.decode import Decoder
from lenity.errors import ConfigError, ModelMismatchError, NonFiniteError
from lenity.models.masked import load_masked
from lenity.sampling import Sampling
from lenity.types import DraftRecord
from tests.drafters.rig import GREEDY, Rig, drafted, plainly, tiny_llama
from tests.models.masked_tiny import PARTS, forward, masked_folder, masked_tensors

WORDS, MASK = 120, 121
TARGET = tiny_llama(0, words=WORDS, name="tiny:target")
PROMPTS = [[5, 6, 7, 8, 9, 10, 11, 12, 13], [14], [15, 16, 17]]
DIALECTS = pytest.mark.parametrize("dialect", ["dream", "llada"])


def masked(folder, dialect="dream", **knobs):
    changes = knobs.pop("changes", {})
    return drafter(
        "masked_diffusion", model=str(masked_folder(folder, dialect, **changes)), **knobs
    )


def rig(made, prompts=PROMPTS) -> Rig:
    out = Rig(TARGET, made)
    for prompt in prompts:
        out.admit(prompt)
    return out


def by_hand(dialect, ids, gamma, counts):
    """Return tokens, steps and probabilities of a draft, in float64, by the scalar loop."""
    tensors = masked_tensors(dialect, 128)
    head = tensors[PARTS[dialect]["head"]].double()
    block, steps, probs = [MASK] * gamma, [0] * gamma, [0.0] * gamma
    for step, count in enumerate(counts):
        states = forward(dialect, tensors, [*ids, *block])
        found = {}
        for k in range(gamma):
            if block[k] == MASK:
                state = states[len(ids) + k - (dialect == "dream")]
                logits = head @ state
                logits[WORDS:] = -torch.inf
                law = logits.softmax(-1)
                entropy = float(torch.distributions.Categorical(probs=law).entropy())
                found[k] = (entropy, int(law.argmax()), float(law.max()))
        for k in sorted(found, key=lambda k: (found[k][0], k))[:count]:
            block[k], steps[k], probs[k] = found[k][1], step, found[k][2]
    return block, steps, probs


@DIALECTS
@pytest.mark.parametrize(("steps", "counts"), [(1, [8]), (2, [3, 5]), (4, [1, 2, 2, 3])])
def test_a_draft_is_the_scalar_loop(dialect, steps, counts, tmp_path):
    draft = rig(masked(tmp_path, dialect, steps=steps)).propose([8, 8, 8])
    for row, prompt in enumerate(PROMPTS):
        tokens, revealed, probs = by_hand(dialect, prompt, 8, counts)
        assert drafted(draft)[row] == tokens
        assert draft.record.reveal_step[row].tolist() == revealed
        found = draft.confidence[row]
        torch.testing.assert_close(found, torch.tensor(probs), rtol=1e-3, atol=1e-5)
        assert torch.equal(found, draft.record.probability[row])


@DIALECTS
def test_ragged_rows_are_their_solo_runs(dialect, tmp_path):
    made = masked(tmp_path, dialect, steps=3)
    limits = [5, 0, 2]
    together = rig(made).propose(limits)
    assert together.lengths.tolist() == limits
    for row, prompt in enumerate(PROMPTS):
        alone = rig(made, [prompt]).propose([limits[row]])
        size = limits[row]
        assert drafted(alone)[0] == drafted(together)[row]
        for name in DraftRecord.__dataclass_fields__ if size else ():
            mine = getattr(together.record, name)[row, :size]
            theirs = getattr(alone.record, name)[0]
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5, msg=name)
        for name in DraftRecord.__dataclass_fields__:
            assert not getattr(together.record, name)[row, size:].any(), name


@DIALECTS
def test_the_recorded_state_is_what_gave_the_token(dialect, tmp_path):
    made = masked(tmp_path, dialect)
    draft = rig(made).propose([4, 4, 4])
    logits = made.loaded(TARGET).logits(draft.record.hidden)
    logits[..., WORDS:] = -torch.inf
    assert torch.equal(logits.argmax(-1), draft.token_ids)


@DIALECTS
@pytest.mark.parametrize("schedule", ["dream", "half", "threshold"])
@pytest.mark.parametrize("confidence", ["probability", "margin", "entropy"])
def test_strict_is_the_target_alone(dialect, schedule, confidence, tmp_path):
    made = masked(tmp_path, dialect, schedule=schedule, confidence=confidence, steps=3)
    decoder = Decoder(target=TARGET, drafter=made)
    outputs = decoder.generate(PROMPTS, gamma=6, max_new_tokens=24, ignore_eos=True)
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        assert list(output.token_ids) == plainly(TARGET, prompt, 24)
        assert output.effective_policy == "strict"


def test_at_a_temperature_tokens_are_certain_and_the_same(tmp_path):
    made = rig(masked(tmp_path))
    cold, warm = made.propose([4] * 3), made.propose([4] * 3, [Sampling(temperature=1.5)] * 3)
    assert warm.probs is None
    assert torch.equal(cold.token_ids, warm.token_ids)


def test_laws_at_reveal_on_request(tmp_path):
    from dataclasses import replace

    made = rig(masked(tmp_path))
    assert made.propose([4] * 3).logprobs is None
    context = replace(made.context([4, 0, 2], [GREEDY] * 3), wants_logprobs=True)
    draft = made.session.propose(context)
    assert draft.logprobs.shape == (3, 4, TARGET.vocab_size)
    own = draft.logprobs.gather(-1, draft.token_ids[..., None]).squeeze(-1).exp()
    torch.testing.assert_close(own[0], draft.confidence[0])
    assert (draft.logprobs[0][:, WORDS:] == -torch.inf).all()


def test_nothing_is_drafted_past_the_last_position(tmp_path):
    changes = {"max_position_embeddings": 12}
    made = rig(masked(tmp_path, changes=changes), [list(range(5, 14)), [14], list(range(5, 18))])
    assert made.propose([5, 5, 5]).lengths.tolist() == [3, 5, 0]
    full = rig(masked(tmp_path, changes=changes), [list(range(5, 17))])
    assert full.propose([5]).gamma == 0


@pytest.mark.parametrize("forbidden", ["mask", "padding", "unknown to the target"])
def test_what_is_never_text_is_never_drafted(forbidden, tmp_path):
    """The forbidden token is made the likeliest everywhere."""
    folder = masked_folder(tmp_path, "dream", mask=40, pad_token_id=41)
    model = load_masked(folder)
    index = {"mask": 40, "padding": 41, "unknown to the target": 125}[forbidden]
    bias = torch.zeros(128).index_fill(0, torch.tensor([index]), 1e4)
    model.module.lm_head.bias = torch.nn.Parameter(bias)
    draft = rig(drafter("masked_diffusion", model=model)).propose([6, 6, 6])
    assert not (draft.token_ids == index).any()
    assert (draft.confidence > 0).all(), "its probability mass is not counted either"
    assert draft.record.entropy.isfinite().all()


def test_tokens_of_its_own_are_never_drafted(tmp_path):
    folder = masked_folder(tmp_path, "dream")
    (folder / "vocab.json").write_text(json.dumps({f"w{i}": i for i in range(100)}))
    draft = rig(drafter("masked_diffusion", model=str(folder))).propose([16, 16, 16])
    assert int(draft.token_ids.max()) < 100


def test_another_tokenizer_is_refused(tmp_path):
    folder = masked_folder(tmp_path, "dream")
    (folder / "vocab.json").write_text(json.dumps({f"x{i}": i for i in range(100)}))
    with pytest.raises(ModelMismatchError, match="same tokens"):
        drafter("masked_diffusion", model=str(folder)).open(TARGET, TARGET.new_cache())


def test_a_drafter_that_gives_no_numbers_is_named(tmp_path):
    model = load_masked(masked_folder(tmp_path, "dream"))
    model.module.model.norm.weight.data[0] = torch.nan
    with pytest.raises(NonFiniteError, match="drafter"):
        rig(drafter("masked_diffusion", model=model)).propose([2, 2, 2])


def test_the_shift_can_be_overridden(tmp_path):
    folder = masked_folder(tmp_path, "dream")
    told = drafter("masked_diffusion", model=str(folder), shift=False)
    assert told.describe(TARGET)["shifted_logits"] is False
    assert drafter("masked_diffusion", model=str(folder)).describe(TARGET)["shifted_logits"]
    loaded = drafter("masked_diffusion", model=load_masked(folder), shift=False)
    assert not loaded.loaded(TARGET).config.is_shifted
    ours, theirs = rig(told).propose([4] * 3), rig(loaded).propose([4] * 3)
    assert torch.equal(ours.token_ids, theirs.token_ids)


def test_the_model_is_read_once(tmp_path):
    made = masked(tmp_path)
    assert made.loaded(TARGET) is made.loaded(TARGET)
    assert masked(tmp_path, dtype="bfloat16").loaded(TARGET).dtype is torch.bfloat16


def test_it_declares_that_it_needs_no_target():
    assert MaskedDiffusion.is_target_free
    assert not MaskedDiffusion.is_certain


def test_a_spec_survives_being_read(tmp_path):
    spec = "masked_diffusion:model=dir,steps=4,schedule=threshold,threshold=0.8,shift=False"
    made = drafter(spec)
    assert drafter(made.spec) == made
    model = load_masked(masked_folder(tmp_path, "dream"))
    assert drafter("masked_diffusion", model=model).spec.endswith(f"model={tmp_path}")


def test_a_threshold_without_its_schedule_is_refused():
    with pytest.raises(ConfigError, match="schedule=threshold"):
        drafter("masked_diffusion:model=dir,threshold=0.5")
