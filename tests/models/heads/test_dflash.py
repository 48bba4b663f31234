import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.heads.checkpoint import open_checkpoint
from lenity.models.heads.dflash import DFlash, block_masks, check_fit, read_dflash
from lenity.models.heads.dflash_config import read_config
from tests.drafters.heads import tiny_config, tiny_dflash
from tests.drafters.rig import tiny_llama
from tests.models.heads.golden import ATOL, FOLDER, golden, largest_difference

CASES = ["dflash-zlab-a", "dflash-speculators-a", "dflash-deepspec-a"]
TARGET = tiny_llama(0)


def read(folder, target):
    checkpoint = open_checkpoint(folder)
    config = read_config(checkpoint, num_target_layers=target.num_layers)
    return read_dflash(checkpoint, config, target, torch.float32)


@pytest.mark.parametrize("prompt", [0, 1])
@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_the_golden_states(name, prompt):
    case = golden(name)
    head = read(case.drafter, case.target)
    assert head.config.taps == case.taps
    fused = head.fuse(case.array(prompt, "taps")[None])[0]
    assert largest_difference(fused, case.array(prompt, "fused")) < ATOL
    ids, first = case.committed(prompt), head.config.first_slot
    for r, turn in enumerate(case.rounds(prompt)):
        cache, start = head.new_cache(1), turn["start"]
        head.remember(case.features(ids[:start])[None], cache)
        cache.commit([start])
        anchor = torch.tensor([turn["anchor"]])
        hidden = head.run_block(anchor, cache, case.target.embed)
        assert largest_difference(hidden[0], case.array(prompt, "hidden")[r]) < ATOL
        logits = head.logits(hidden[:, first:], case.target.logits)[0]
        assert largest_difference(logits, case.array(prompt, "logits")[r]) < ATOL
        assert logits.argmax(-1).tolist() == turn["draft"]
        assert cache.lengths == [start], "a block is forgotten"


def features(lengths, config, seed=0):
    generator = torch.Generator().manual_seed(seed)
    size = len(config.taps) * TARGET.hidden_size
    return [torch.randn(n, size, generator=generator) for n in lengths]


def solo(head, anchor, rows):
    cache = head.new_cache(1)
    head.remember(rows[None], cache)
    cache.commit([len(rows)])
    return head.run_block(torch.tensor([anchor]), cache, TARGET.embed)[0]


VARIANTS = {
    "full": {},
    "windows": {"windows": (4, None)},
    "from-anchor": {"windows": (4, None), "is_window_from_anchor": True},
    "causal": {"windows": (4, None), "is_causal": (True, False), "is_window_from_anchor": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_ragged_rows_are_as_if_alone(variant):
    head = tiny_dflash(TARGET, **VARIANTS[variant])
    rows, anchors = features([7, 1, 12], head.config), torch.tensor([4, 9, 2])
    together = head.new_cache()
    for row in rows:
        cache = head.new_cache(1)
        head.remember(row[None], cache)
        cache.commit([len(row)])
        together.append(cache)
    for _ in range(2):  # a block leaves nothing behind
        hidden = head.run_block(anchors, together, TARGET.embed)
    for b, row in enumerate(rows):
        assert torch.allclose(hidden[b], solo(head, int(anchors[b]), row), atol=1e-5)


@torch.no_grad()
def test_context_can_come_in_pieces_behind_blocks():
    head = tiny_dflash(TARGET)
    (rows,), cache = features([9], head.config), head.new_cache(1)
    for start, stop, extra in [(0, 4, 0), (4, 5, 3), (5, 9, 0)]:
        # What lies behind the committed tokens is rejected drafts' features.
        piece = torch.cat([rows[start:stop], torch.full_like(rows[:extra], 50.0)])
        head.remember(piece[None], cache)
        cache.commit([stop - start])
        head.run_block(torch.tensor([1]), cache, TARGET.embed)
    hidden = head.run_block(torch.tensor([6]), cache, TARGET.embed)[0]
    assert torch.allclose(hidden, solo(head, 6, rows), atol=1e-5)


@torch.no_grad()
def test_without_context_the_block_sees_itself():
    head = tiny_dflash(TARGET)
    hidden = head.run_block(torch.tensor([5]), head.new_cache(1), TARGET.embed)
    assert torch.isfinite(hidden).all()


def scalar_mask(config, lengths, layer, b, slot, column):
    anchor, window = lengths[b], config.shape.windows[layer]
    place = anchor + slot
    if column >= anchor:
        seen = column < anchor + config.block_size
        seen = seen and (column <= place or not config.is_causal[layer])
        if window is not None and not config.is_window_from_anchor:
            seen = seen and abs(column - place) < window
        return seen
    if window is None:
        return True
    return column >= anchor - window if config.is_window_from_anchor else column > place - window


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("lengths", [[3, 8, 0], [6, 6]])
def test_masks_against_their_scalar_twin(variant, lengths):
    config = tiny_config(TARGET, **VARIANTS[variant])
    cache = tiny_dflash(TARGET).new_cache(len(lengths))
    cache.lengths = list(lengths)
    cache.place(config.block_size)
    positions = torch.tensor(lengths)[:, None] + torch.arange(config.block_size)
    width = max(lengths) + config.block_size
    for layer, mask in enumerate(block_masks(config, positions, cache)):
        expected = torch.tensor(
            [
                [
                    [scalar_mask(config, lengths, layer, b, s, c) for c in range(width)]
                    for s in range(config.block_size)
                ]
                for b in range(len(lengths))
            ]
        )
        found = torch.ones_like(expected) if mask is None else mask[:, 0]
        assert torch.equal(found, expected)


def written(tmp_path, name, change_tensors=None, change_config=None):
    shutil.copytree(FOLDER / name / "drafter", tmp_path / "drafter")
    folder = tmp_path / "drafter"
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    if change_tensors:
        change_tensors(tensors)
    if change_config:
        change_config(config)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_reduced_vocabulary_is_mapped(tmp_path):
    kept = torch.tensor([1, 5, 6, 30, 85])

    def reduce(tensors):
        tensors["lm_head.weight"] = torch.randn(5, 48)
        tensors["d2t"] = kept - torch.arange(5)
        tensors["t2d"] = torch.zeros(86, dtype=torch.bool).index_fill(0, kept, value=True)

    head = read(written(tmp_path, CASES[1], reduce), golden(CASES[1]).target)
    assert torch.equal(head.kept_ids, kept)
    assert head.lm_head.out_features == 5


def test_tied_embeddings_are_the_head(tmp_path):
    folder = written(
        tmp_path,
        CASES[2],
        lambda tensors: tensors.pop("lm_head.weight"),
        lambda config: config.update(tie_word_embeddings=True),
    )
    head = read(folder, golden(CASES[2]).target)
    assert head.lm_head.weight is head.embed_tokens.weight


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: t.pop("layers.1.mlp.up_proj.weight"),
            ["layers.1.mlp.up_proj.weight", "(64, 48)"],
        ),
        (
            lambda t: t.update({"fc.weight": torch.zeros(48, 96)}),
            ["fc.weight", "(48, 144)", "(48, 96)"],
        ),
        (lambda t: t.update({"norm.weight": torch.full((48,), torch.nan)}), ["norm.weight", "NaN"]),
        (
            lambda t: t.update({"layers.2.extra": torch.ones(1)}),
            ["layers.2.extra", "belong to none"],
        ),
    ],
    ids=["missing", "shape", "nan", "unknown"],
)
def test_what_does_not_fit_is_named(tmp_path, change, words):
    with pytest.raises(ModelMismatchError) as caught:
        read(written(tmp_path, CASES[0], change), golden(CASES[0]).target)
    assert all(word in str(caught.value) for word in [*words, "model.safetensors"])


def test_a_truncated_file_is_one_error(tmp_path):
    folder = written(tmp_path, CASES[0])
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ConfigError, match=r"model\.safetensors.*damaged or cut off"):
        read(folder, golden(CASES[0]).target)


def test_a_target_of_another_size_is_refused():
    with pytest.raises(ModelMismatchError, match=r"fc\.weight.*\(48, 192\).*\(48, 144\)"):
        read(golden(CASES[0]).drafter, tiny_llama(0, layers=5))


@pytest.mark.parametrize(
    ("changes", "size", "words"),
    [
        ({}, 32, "2 states of 64 numbers.*64 numbers"),
        ({"taps": (0, 3)}, 64, r"below 3 layers.*\[0, 3\]"),
        ({"mask_token_id": 128}, 64, "mask token below 128.*128"),
    ],
)
def test_a_loaded_drafter_has_to_fit_too(changes, size, words):
    head = DFlash(tiny_config(TARGET, **changes), size)
    with pytest.raises(ModelMismatchError, match=words):
        check_fit(head, TARGET)


def test_a_smaller_drafter_cannot_borrow():
    config = tiny_config(TARGET)
    config = replace(config, shape=replace(config.shape, hidden_size=32))
    with pytest.raises(ModelMismatchError, match=r"hidden size 64.*32"):
        check_fit(DFlash(config, 64), TARGET)
    check_fit(DFlash(config, 64, num_embeddings=128, head_rows=128), TARGET)
