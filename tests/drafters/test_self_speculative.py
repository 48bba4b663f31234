from pathlib import Path

import pytest
import torch

from lenity.drafters import drafter
from lenity.drafters.layer_sets import LayerSet, SearchSettings, saved_path
from lenity.drafters.self_speculative import read_skip, write_skip
from lenity.errors import ConfigError, ModelMismatchError
from lenity.sampling import Sampling
from tests.drafters.rig import Rig, drafted, plainly, tiny_llama

TARGET = tiny_llama(0, layers=4)
PROMPTS = [[5, 6, 7, 8], [9], [3, 4] * 6]


def rig(skip, target=TARGET, prompts=PROMPTS):
    made = Rig(target, drafter("self_speculative", skip=skip))
    for seed, prompt in enumerate(prompts):
        made.admit(prompt, seed)
    return made


def saved(model, *skipped):
    return LayerSet(
        model=model.name,
        num_layers=model.num_layers,
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        dtype="float32",
        skipped=skipped,
        agreement=0.9,
        prompts_sha256="0" * 64,
        num_positions=1,
        settings=SearchSettings(),
    )


def silenced(model, *layers):
    """Make layers add nothing to the residual stream, so that skipping them changes nothing."""
    for layer in layers:
        parts = model.module.model.layers[layer]
        torch.nn.init.zeros_(parts.self_attn.o_proj.weight)
        torch.nn.init.zeros_(parts.mlp.down_proj.weight)
    return model


def test_layers_that_do_nothing_are_not_missed():
    made = rig((1, 2), silenced(tiny_llama(0, layers=4), 1, 2))
    for limits in ([4, 4, 4], [1, 3, 0], [5, 2, 5]):
        assert made.round(limits) == limits


def test_the_kept_layers_read_what_the_full_model_wrote():
    made, (kept, ids) = rig((1, 3), prompts=PROMPTS[:1]), ((0, 2), PROMPTS[0])
    draft = made.propose([2])
    cache = TARGET.new_cache(1)
    TARGET.hidden_states(torch.tensor([ids[:-1]]), cache)
    cache.commit([len(ids) - 1])
    block = torch.tensor([[ids[-1], int(draft.token_ids[0, 0])]])
    hidden = TARGET.hidden_states(block, cache, layers=kept).last
    assert drafted(draft) == TARGET.logits(hidden).argmax(-1).tolist()


def test_no_token_is_committed_and_verification_writes_everything_again():
    made = rig((1, 3))
    for _ in range(4):
        lengths = list(made.cache.lengths)
        draft = made.propose([4, 2, 0])
        assert made.cache.lengths == lengths
        made.finish(draft)
    for row, prompt in zip(made.rows, PROMPTS, strict=True):
        assert row[len(prompt) :] == plainly(TARGET, prompt, len(row) - len(prompt))


def test_a_cache_out_of_step_is_noticed():
    made = rig((1,))
    made.rows[0].append(1)
    with pytest.raises(AssertionError, match="all committed tokens but the anchor"):
        made.propose([2, 2, 2])


def test_sampled_rows_come_with_the_law_of_the_kept_layers():
    made, sampling = rig((2,)), Sampling(temperature=0.8)
    draft = made.propose([1, 1, 1], [sampling] * 3)
    anchors = torch.tensor([[row[-1]] for row in made.rows])
    hidden = TARGET.hidden_states(anchors, made.cache, layers=(0, 1, 3)).last[:, 0]
    law = (TARGET.logits(hidden) / 0.8).softmax(-1)
    assert torch.allclose(draft.probs[:, 0], law, atol=1e-6)


@pytest.mark.parametrize(
    ("written", "read"),
    [("8+9+11", (8, 9, 11)), ("3", (3,)), (3, (3,)), ([1, 2], [1, 2]), ("auto", "auto")],
)
def test_a_skip_is_read_as_the_command_line_spells_it(written, read):
    assert read_skip(written) == read


def test_a_skip_is_written_as_it_is_read():
    assert write_skip((8, 9)) == "8+9"
    assert write_skip("auto") == "auto"
    assert str(drafter("self_speculative:skip=2+0")) == "self_speculative:skip=2+0"
    assert drafter("self_speculative", skip=Path("a/b.json")).skip == "a/b.json"


@pytest.mark.parametrize(
    ("skip", "kept"), [("1+2", (0, 3)), ("2+1+2", (0, 3)), ((), (0, 1, 2, 3)), ("0", (1, 2, 3))]
)
def test_the_kept_layers_are_the_others_in_order(skip, kept):
    assert drafter("self_speculative", skip=skip).layers(TARGET) == kept


@pytest.mark.parametrize("skip", ["4", "0+1+2+3", (-1,)], ids=["beyond", "all", "negative"])
def test_layers_that_cannot_be_skipped_are_refused(skip):
    with pytest.raises(ConfigError, match=r"some of the layers 0 to 3 of tiny:llama"):
        drafter("self_speculative", skip=skip).open(TARGET, TARGET.new_cache())


def test_a_saved_set_is_read_from_its_file(tmp_path):
    saved(TARGET, 1, 2).save(tmp_path / "set.json")
    assert drafter(f"self_speculative:skip={tmp_path}/set.json").layers(TARGET) == (0, 3)


def test_a_set_of_another_model_is_refused(tmp_path):
    saved(tiny_llama(0, layers=3), 1).save(tmp_path / "set.json")
    with pytest.raises(ModelMismatchError, match=r"\(3 layers.*\(4 layers"):
        drafter(f"self_speculative:skip={tmp_path}/set.json").layers(TARGET)


def test_auto_finds_the_set_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LENITY_CACHE", str(tmp_path))
    saved(TARGET, 2).save(saved_path(TARGET))
    assert drafter("self_speculative").layers(TARGET) == (0, 1, 3)


def test_auto_without_a_set_says_how_to_find_one(tmp_path, monkeypatch):
    monkeypatch.setenv("LENITY_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"tiny:llama \(4 layers\), got none.*search_layers"):
        drafter("self_speculative:skip=auto").open(TARGET, TARGET.new_cache())
