import json

import pytest
import torch

from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.masked import (
    Canvas,
    MaskedLM,
    compare_tokens,
    lay_out,
    load_masked,
    measure_shift,
    read_tokens,
)
from tests.drafters.rig import tiny_llama
from tests.models.masked_tiny import (
    PARTS,
    forward,
    masked_config,
    masked_folder,
    masked_tensors,
    write,
)

MASK = 121
DIALECTS = pytest.mark.parametrize("dialect", ["dream", "llada"])
PREFIXES = [[5, 6, 7, 8, 9, 10, 11], [12], [13, 14, 15]]
SIZES = [3, 4, 2]


def load(folder, dialect="dream", **changes) -> MaskedLM:
    return load_masked(masked_folder(folder, dialect, **changes))


@DIALECTS
def test_states_are_those_of_the_plain_forward(dialect, tmp_path):
    model = load(tmp_path, dialect)
    ids = [*PREFIXES[0], MASK, MASK, MASK]
    states = forward(dialect, masked_tensors(dialect, 128), ids)
    shift = 1 if dialect == "dream" else 0
    expected = states[7 - shift : 10 - shift]
    found = model.hidden(lay_out([PREFIXES[0]], [3], MASK))[0]
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    head = masked_tensors(dialect, 128)[PARTS[dialect]["head"]].double()
    torch.testing.assert_close(
        model.logits(found).double(), expected @ head.T, rtol=1e-4, atol=1e-4
    )


@DIALECTS
def test_a_tied_head_is_the_embedding(dialect, tmp_path):
    name = "tie_word_embeddings" if dialect == "dream" else "weight_tying"
    model = load(tmp_path, dialect, **{name: True})
    table = masked_tensors(dialect, 128)[PARTS[dialect]["embedding"]]
    assert torch.equal(model.module.lm_head.weight, table)
    assert model.module.lm_head.weight is model.module.model.embed_tokens.weight


@DIALECTS
@pytest.mark.parametrize("prefix", ["full", "causal"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_row_does_not_depend_on_its_neighbours(dialect, prefix, side, tmp_path):
    model = load(tmp_path, dialect, prefix_attention=prefix)
    together = model.hidden(lay_out(PREFIXES, SIZES, MASK, side=side))
    for row, (ids, size) in enumerate(zip(PREFIXES, SIZES, strict=True)):
        alone = model.hidden(lay_out([ids], [size], MASK))[0]
        torch.testing.assert_close(together[row, :size], alone, rtol=1e-5, atol=1e-5)


def test_clean_tokens_see_the_block_unless_the_prefix_is_causal(tmp_path):
    for prefix, changes in (("full", True), ("causal", False)):
        model = load(tmp_path / prefix, prefix_attention=prefix)
        canvas = lay_out([PREFIXES[0]], [3], MASK)
        first = model.hidden(canvas)[0]
        other = model.hidden(canvas.painted(torch.tensor([[MASK, MASK, 20]])))[0]
        # row 0 of a shifted block is read at the last clean token
        assert torch.equal(first[0], other[0]) != changes
        assert not torch.equal(first[1], other[1])


def test_a_canvas_says_where_everything_stands():
    canvas = lay_out([[1, 2, 3], [4]], [1, 2], MASK, side="left")
    assert canvas.token_ids.tolist() == [[1, 2, 3, MASK], [0, 4, MASK, MASK]]
    assert canvas.positions.tolist() == [[0, 1, 2, 3], [0, 0, 1, 2]]
    assert canvas.is_real.tolist() == [[True] * 4, [False, True, True, True]]
    assert canvas.is_block.tolist() == [[False] * 3 + [True], [False, False, True, True]]
    assert canvas.columns.tolist() == [[3, 3], [2, 3]]
    assert canvas.is_slot.tolist() == [[True, False], [True, True]]
    right = lay_out([[1, 2, 3], [4]], [1, 2], MASK)
    assert right.token_ids.tolist() == [[1, 2, 3, MASK], [4, MASK, MASK, 0]]
    assert right.is_block.tolist() == [[False] * 3 + [True], [False, True, True, False]]
    painted = right.painted(torch.tensor([[9, 99], [10, 11]]))
    assert painted.token_ids.tolist() == [[1, 2, 3, 9], [4, 10, 11, 0]]
    assert right.token_ids[0, 3] == MASK, "the canvas itself stays"


def test_without_anything_before_it_position_0_is_read_in_place(tmp_path):
    model = load(tmp_path)
    ids = [MASK, MASK]
    states = forward("dream", masked_tensors("dream", 128), ids)
    found = model.hidden(lay_out([[]], [2], MASK))[0]
    torch.testing.assert_close(found.double(), states[[0, 0]], rtol=1e-4, atol=1e-4)


def test_an_id_beyond_the_table_does_not_break_it(tmp_path):
    model = load(tmp_path)
    assert torch.isfinite(model.hidden(lay_out([[5, 4000]], [2], MASK))).all()


def test_what_is_never_text(tmp_path):
    folder = masked_folder(tmp_path, "dream", pad_token_id=7)
    assert load_masked(folder).forbidden_ids == {MASK, 7}
    (folder / "vocab.json").write_text(json.dumps({f"w{i}": i for i in range(120)}))
    assert load_masked(folder).forbidden_ids == {7, *range(120, 128)}


# ------------------------------------------------------------------------------------ refusals


def broken(tmp_path, change) -> None:
    tensors = masked_tensors("dream", 128)
    change(tensors)
    load_masked(write(tmp_path, masked_config("dream", 128, MASK), tensors))


def test_a_wrong_shape_names_file_key_expected_and_found(tmp_path):
    key = "model.layers.1.mlp.up_proj.weight"
    with pytest.raises(ModelMismatchError) as error:
        broken(tmp_path, lambda t: t.update({key: torch.zeros(40, 32)}))
    for part in ("model.safetensors", key, "(48, 32)", "(40, 32)"):
        assert part in str(error.value)


def test_a_missing_tensor_names_file_key_and_shape(tmp_path):
    key = "model.layers.1.self_attn.q_proj.bias"
    with pytest.raises(ModelMismatchError) as error:
        broken(tmp_path, lambda t: t.pop(key))
    for part in ("model.safetensors", key, "(32,)"):
        assert part in str(error.value)


def test_a_tensor_of_another_model_is_refused(tmp_path):
    with pytest.raises(ModelMismatchError, match=r"model\.extra\.weight"):
        broken(tmp_path, lambda t: t.update({"model.extra.weight": torch.zeros(2)}))


def test_a_truncated_file_is_one_error(tmp_path):
    folder = masked_folder(tmp_path, "llada")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ConfigError, match=r"model\.safetensors.*cut off"):
        load_masked(folder)


# ------------------------------------------------------------------------------------- tokenizers


def test_tokens_are_read_from_json_alone(tmp_path):
    assert read_tokens(tmp_path) is None
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1}))
    assert read_tokens(tmp_path) == {0: "a", 1: "b"}
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|mask|>": 2}))
    assert read_tokens(tmp_path) == {0: "a", 1: "b", 2: "<|mask|>"}
    whole = {
        "model": {"vocab": {"c": 0}},
        "added_tokens": [{"id": 1, "content": "<|mask|>", "special": True}],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    assert read_tokens(tmp_path) == {0: "c", 1: "<|mask|>"}
    whole["model"]["vocab"] = [["d", -1.0], ["e", -2.0]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    assert read_tokens(tmp_path) == {0: "d", 1: "<|mask|>"}


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_broken_tokenizer_file_is_named(text, tmp_path):
    (tmp_path / "vocab.json").write_text(text)
    with pytest.raises(ConfigError, match=r"vocab\.json"):
        read_tokens(tmp_path)


def with_words(tmp_path, words) -> MaskedLM:
    folder = masked_folder(tmp_path, "dream")
    (folder / "vocab.json").write_text(json.dumps(words))
    return load_masked(folder)


def test_tokens_are_compared_where_both_have_one(tmp_path):
    target = tiny_llama(0, words=120)
    same = {f"w{i}": i for i in range(110)} | {"<|mask|>": MASK}
    compare_tokens(target, with_words(tmp_path / "a", same))
    renamed = {("other" if i == 17 else f"w{i}"): i for i in range(110)}
    with pytest.raises(ModelMismatchError, match=r"id 17 is 'w17' in .* and 'other'"):
        compare_tokens(target, with_words(tmp_path / "b", renamed))


def test_without_a_tokenizer_sizes_are_compared(tmp_path):
    model = load(tmp_path / "a")
    compare_tokens(tiny_llama(0, words=120), model)
    with pytest.raises(ModelMismatchError, match="vocabulary of 128"):
        compare_tokens(tiny_llama(0, vocab_size=100), model)


def test_the_hash_that_training_leaves_is_compared(tmp_path):
    from lenity.models.heads.made_for import MadeFor

    trained, other = tiny_llama(0, words=120), tiny_llama(0, words=119)
    folder = masked_folder(tmp_path, "dream")
    (folder / "lenity.json").write_text(MadeFor.of(trained).model_dump_json())
    compare_tokens(trained, load_masked(folder))
    with pytest.raises(ModelMismatchError, match="trained with others"):
        compare_tokens(other, load_masked(folder))


# ------------------------------------------------------------------------------------------ shift


class Echo:
    """Stands for a module whose row t says the token after t (shifted) or at t."""

    def __init__(self, text: list[int], is_shifted: bool) -> None:
        self.said = torch.tensor([*text[1:], 0] if is_shifted else text)
        self.model = self

    def eval(self):
        return self

    def lm_head(self, hidden):
        return hidden

    def __call__(self, input_ids, **kwargs):
        self.last_hidden_state = torch.nn.functional.one_hot(self.said, 128)[None].float()
        return self


@pytest.mark.parametrize("is_shifted", [True, False])
def test_a_known_text_says_which_reading_is_right(is_shifted, tmp_path):
    text = torch.randint(100, (40,), generator=torch.Generator().manual_seed(0)).tolist()
    model = load(tmp_path, "llada")
    echo = Echo(text, is_shifted)
    echo.lm_head = type("Head", (), {"weight": torch.zeros(1), "__call__": lambda _, h: h})()
    found = measure_shift(MaskedLM(echo, model.config, name="echo"), text)
    assert found.num_tokens == 39
    assert found.is_shifted is is_shifted
    assert max(found.shifted, found.unshifted) == 1.0
    assert min(found.shifted, found.unshifted) < 0.1


def test_random_weights_say_nothing_about_the_shift(tmp_path):
    found = measure_shift(load(tmp_path), [1, 2, 3, 4, 5, MASK, 7, 8])
    assert found.num_tokens == 6
    assert found.is_shifted is None


def test_masking_hides_the_token_it_asks_for(tmp_path):
    seen = []
    model = load(tmp_path)
    original = MaskedLM.hidden

    class Watched(MaskedLM):
        def hidden(self, canvas: Canvas):
            seen.append(canvas.token_ids[0].tolist())
            return original(self, canvas)

        def shifted(self, is_shifted):
            return self

    measure_shift(Watched(model.module, model.config, name="w"), [1, 2, 3, 4, 5], every=2)
    assert seen == [[1, 2, MASK, 4, MASK]] * 2 + [[1, MASK, 3, MASK, 5]] * 2


def test_a_text_too_short_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="more than 4 tokens"):
        measure_shift(load(tmp_path), [1, 2, 3, 4])


def test_what_was_understood_is_told(tmp_path):
    told = load(tmp_path, "llada").describe()
    assert told["format"] == "llada"
    assert told["shifted_logits"] is False
    assert told["mask_token_id"] == MASK
    assert (told["layers"], told["hidden_size"], told["vocabulary_rows"]) == (2, 32, 128)
