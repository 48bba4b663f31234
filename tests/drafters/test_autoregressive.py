import pytest
import torch

from lenity.drafters import drafter
from lenity.errors import ConfigError, ModelMismatchError
from lenity.sampling import Coins, Sampling
from lenity.types import Draft
from tests.drafters.rig import Rig, Words, drafted, plainly, tiny_llama
from tests.toys import TableModel, cycle_model

PROMPTS = [[5, 6, 7, 8], [9], [3, 4] * 6]
TARGET = tiny_llama(0, words=128)


def rig(target=TARGET, prompts=PROMPTS, **knobs):
    made = Rig(target, drafter("autoregressive", **knobs))
    for seed, prompt in enumerate(prompts):
        made.admit(prompt, seed)
    return made


def test_the_target_itself_is_always_right():
    made = rig(model="target")
    for limits in ([4, 4, 4], [1, 3, 5], [0, 2, 6], [5, 5, 5]):
        assert made.round(limits) == limits
    for row, prompt in zip(made.rows, PROMPTS, strict=True):
        assert row[len(prompt) :] == plainly(TARGET, prompt, len(row) - len(prompt))


def test_the_target_itself_draws_from_the_targets_law():
    made, sampling = rig(model="target"), Sampling(temperature=0.9, top_k=50)
    made.round([3, 3, 3])
    draft = made.propose([3, 3, 3], [sampling] * 3)
    for b, row in enumerate(made.rows):
        ids = [*row, *draft.token_ids[b, :-1].tolist()]
        hidden = TARGET.hidden_states(torch.tensor([ids]), TARGET.new_cache(1)).last[0, -3:]
        law = (TARGET.logits(hidden).float() / 0.9).softmax(-1)
        kept = law * (law >= law.topk(50).values[:, -1:])
        assert torch.allclose(draft.probs[b], kept / kept.sum(-1, keepdim=True), atol=1e-5)


def test_the_target_as_drafter_keeps_its_own_cache():
    made = rig(model="target")
    before = list(made.cache.lengths)
    made.propose([3, 3, 3])
    assert made.cache.lengths == before


@pytest.mark.parametrize("chunk", [1, 3, 512])
def test_the_chunk_of_a_prefill_changes_nothing(chunk):
    small = tiny_llama(1, layers=1, words=128)
    made = rig(model=small, prefill_chunk=chunk)
    expected = rig(model=small)
    for forced in ([2, 0, 3], [0, 3, 1]):
        for one in (made, expected):  # a row that sits out has more to catch up with later
            one.round([3, 3, 0], forced)
        assert drafted(made.propose([3, 3, 3])) == drafted(expected.propose([3, 3, 3]))


def test_what_was_accepted_is_not_fed_twice():
    target = cycle_model(16)
    small = TableModel(target.table)
    made = rig(target, [[1, 2, 3]], model=small)
    fed = small.num_forwards
    assert made.round([4]) == [4]
    assert small.num_forwards - fed == 4, "anchor, then every draft token but the last"
    assert made.session._cache.committed == [[1, 2, 3, 4, 5, 6]]
    assert made.round([2], forced=[0]) == [0]
    assert made.session._cache.committed == [[1, 2, 3, 4, 5, 6, 7, 8]]


def test_an_interrupted_round_leaves_no_trace():
    target = cycle_model(16)
    made = rig(target, [[1, 2, 3]], model=TableModel(target.table))
    made.propose([4])
    made.propose([3])
    assert made.session._cache.committed == [[1, 2]]
    assert made.round([4]) == [4]


def test_each_row_stops_at_the_drafters_last_position():
    small = tiny_llama(0, words=128, max_positions=16)
    made = rig(model=small, prompts=[[5, 6], list(range(1, 13)), list(range(20))])
    widths = []
    for _ in range(4):
        draft = made.propose([4, 4, 4])
        widths.append(draft.lengths.tolist())
        made.finish(draft)
        lengths = made.session._cache.lengths
        assert all(length <= 16 for length in lengths)
    #        room for the anchor at position n - 1 and all draft tokens but the last: 17 - n
    assert widths[0] == [4, 4, 0]
    assert widths[1] == [4, 0, 0]
    assert widths[-1] == [0, 0, 0]
    for row, prompt in zip(made.rows[:2], ([5, 6], list(range(1, 13))), strict=True):
        assert row[len(prompt) :] == plainly(TARGET, prompt, len(row) - len(prompt))


def test_a_row_at_the_limit_may_have_less_room_than_its_mates():
    small = tiny_llama(0, words=128, max_positions=16)
    made = rig(model=small, prompts=[[5, 6, 7], list(range(1, 16))])
    assert made.propose([6, 6]).lengths.tolist() == [6, 2]


def test_rows_without_room_sit_beside_sampled_ones():
    small = tiny_llama(0, words=128, max_positions=16)
    made = rig(model=small, prompts=[list(range(1, 20)), [5, 6]])
    draft = made.propose([3, 3], [Sampling(temperature=1.0)] * 2)
    assert draft.lengths.tolist() == [0, 3]
    assert draft.probs[0].tolist() == [[1.0] + [0.0] * 127] * 3
    solo = rig(model=small, prompts=[])
    solo.admit([5, 6], seed=1)
    assert drafted(solo.propose([3], [Sampling(temperature=1.0)]))[0] == drafted(draft)[1]


@pytest.mark.parametrize("vocab_size", [120, 128, 160], ids=["narrower", "equal", "wider"])
def test_heads_of_another_padding_draft_over_the_targets_vocabulary(vocab_size):
    target = tiny_llama(0, words=120)
    small = tiny_llama(1, layers=1, vocab_size=vocab_size, words=120)
    made = rig(target, model=small)
    draft = made.propose([4, 4, 4], [Sampling(temperature=3.0)] * 3)
    assert draft.probs.shape == (3, 4, 128)
    assert not draft.probs[..., 120:].any()
    assert int(draft.token_ids.max()) < 120


def test_another_vocabulary_is_refused():
    other = tiny_llama(1, words=128, name="tiny:other")
    other.tokenizer = Words(128, w40="w41", w41="w40")
    with pytest.raises(ModelMismatchError, match=r"id 40 is 'w40' in tiny:llama and 'w41'"):
        drafter("autoregressive", model=other).open(TARGET, TARGET.new_cache())


def test_unequal_sizes_without_tokenizers_are_refused():
    target = cycle_model(16)
    with pytest.raises(ModelMismatchError, match=r"got 16 in .* and 12 in"):
        drafter("autoregressive", model=cycle_model(12)).open(target, target.new_cache())


def test_a_drafter_by_name_is_loaded_once_in_the_targets_dtype(tmp_path):
    tiny_llama(2, layers=1).module.save_pretrained(tmp_path)
    target = tiny_llama(0)
    made = drafter(f"autoregressive:model={tmp_path}")
    first, second = (made.open(target, target.new_cache()) for _ in range(2))
    assert first._model is second._model
    assert first._model.dtype == torch.float32
    half = drafter(f"autoregressive:model={tmp_path},dtype=bfloat16")
    assert half.open(target, target.new_cache())._model.dtype == torch.bfloat16


def test_a_half_precision_drafter_hands_over_float32_laws(tmp_path):
    tiny_llama(2, layers=1).module.save_pretrained(tmp_path)
    made = rig(tiny_llama(0), model=str(tmp_path), dtype="bfloat16")
    draft: Draft = made.propose([2, 2, 2], [Sampling(temperature=1.0)] * 3)
    assert draft.probs.dtype == draft.confidence.dtype == torch.float32
    assert torch.allclose(draft.probs.sum(-1), torch.ones(3, 2), atol=1e-5)


@pytest.mark.parametrize("model", ["target", TARGET], ids=["target", "loaded"])
def test_a_dtype_for_a_model_that_is_there_is_refused(model):
    with pytest.raises(ConfigError, match="leave dtype out"):
        drafter("autoregressive", model=model, dtype="bfloat16")


def test_a_loaded_model_is_spelled_by_its_name():
    made = drafter("autoregressive", model=tiny_llama(1, name="tiny:small"))
    assert str(made) == "autoregressive:model=tiny:small"


def test_a_model_must_be_named():
    with pytest.raises(
        ConfigError,
        match=r"needs the knob model: .* Write for example autoregressive:model=demo:smollm2\.",
    ):
        drafter("autoregressive")


def test_a_rows_draws_depend_on_its_seed_and_place_alone():
    made, sampling = rig(model="target", prompts=[[5, 6], [5, 6]]), Sampling(temperature=2.0)
    draft = made.propose([6, 6], [sampling] * 2)
    assert drafted(draft)[0] != drafted(draft)[1], "seeds differ"
    context = made.context([6, 6], [sampling] * 2)
    object.__setattr__(context, "coins", Coins([1, 0], [2, 2]))
    assert drafted(made.session.propose(context)) == drafted(draft)[::-1]
