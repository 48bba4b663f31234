import pytest
import torch
from safetensors.torch import load_file

from lenity.drafters.masked_diffusion import MaskedDiffusion
from lenity.engine.decode import Decoder
from lenity.errors import ConfigError, UnsupportedModelError
from lenity.models.causal import CausalLM
from lenity.models.masked import lay_out, load_masked
from lenity.training.checkpoint import write_drafter
from lenity.training.drafter import Trainer
from lenity.training.masked_diffusion import MaskedDiffusionRecipe, _blocks
from lenity.training.recipe import recipe
from lenity.training.settings import TrainingSettings
from tests.drafters.rig import Rig
from tests.training import rig

ALL = torch.arange(rig.VOCABULARY)
MASK = 40
SPEC = f"masked_diffusion:mask_token_id={MASK},block_size=4"
PREFIXES = pytest.mark.parametrize("prefix", ["full", "causal"])


def built(spec=SPEC, wild=True, layers=2):
    model, chosen = rig.target(layers), recipe(spec)
    tables = rig.tables(model, ALL)
    head = chosen.build(model, tables, 0)
    if wild:
        with torch.no_grad():
            rig.wild(head)
    return model, chosen, tables, head


def published(tmp_path, chosen, head, model, tables):
    """Return the model that reads back what training writes, in float32."""
    write_drafter(chosen.publish(head, model, tables), tmp_path, torch.float32)
    return load_masked(tmp_path)


def logits_of(chosen, head, some, tables, blocks):
    hidden, width = chosen._states(head, some, tables, blocks)
    states, slots = chosen._masked_states(hidden, blocks, width)
    return tables.logits(states), slots


@PREFIXES
def test_it_begins_as_the_target_read_one_to_the_left(prefix):
    model, chosen, tables, head = built(f"{SPEC},prefix={prefix}", wild=False)
    some = rig.batch(model, SPEC)
    blocks = chosen._draw(head, some, torch.Generator().manual_seed(0))
    logits, (row, _, place) = logits_of(chosen, head, some, tables, blocks)
    states = model.hidden_states(some.token_ids, model.new_cache(2)).last
    for at in (place == 0).nonzero()[:, 0].tolist():
        own = model.logits(states[row[at], blocks.cuts[row[at], 0] - 1])
        if prefix == "causal":
            torch.testing.assert_close(logits[at], own, rtol=1e-4, atol=1e-4)
        else:
            assert not torch.allclose(logits[at], own, atol=1e-2), "the prefix sees the masks"


@PREFIXES
def test_hits_are_what_the_published_drafter_drafts(prefix, tmp_path):
    model, chosen, tables, head = built(f"{SPEC},prefix={prefix}")
    some = rig.batch(model, SPEC)
    hits = chosen.hits(head.eval(), some, tables)
    drafter = MaskedDiffusion(model=published(tmp_path, chosen, head, model, tables), steps=1)
    for row in range(2):
        ids = some.token_ids[row, : some.lengths[row]].tolist()
        start, place, visited = int(some.starts[row]), 0, set()
        while place < len(ids) - start - 1:
            visited.add(place)
            session = Rig(model, drafter)
            session.admit(ids[: start + 1 + place])
            drafted = session.propose([4]).token_ids[0].tolist()
            expected = ids[start + 1 + place :][:4]
            alike = [a == b for a, b in zip(drafted, expected, strict=False)]
            assert hits[row, place].tolist()[: len(expected)] == alike
            accepted = alike.index(False) if False in alike else len(alike)
            place += 1 if prefix == "causal" else accepted + 1
        if prefix == "full":
            for place in set(range(hits.shape[1])) - visited:
                assert not hits[row, place].any()


@PREFIXES
def test_the_loss_is_that_of_the_published_model_on_its_masks(prefix, tmp_path):
    spec = f"{SPEC},prefix={prefix},position_decay=0.5,revealed=1.0,prefix_weight=0.0"
    model, chosen, tables, head = built(spec)
    some = rig.batch(model, SPEC)
    blocks = chosen._draw(head, some, torch.Generator().manual_seed(3))
    assert (blocks.is_inside & ~blocks.is_masked).any(), "something is revealed"
    outcome = chosen.outcome(head, some, tables, torch.Generator().manual_seed(3))
    reader = published(tmp_path, chosen, head, model, tables)
    total, weight = 0.0, 0.0
    for row in range(2):
        cut, inside = int(blocks.cuts[row, 0]), blocks.is_inside[row, 0]
        size = int(inside.sum())
        canvas = lay_out([some.token_ids[row, :cut].tolist()], [size], MASK)
        tokens = blocks.tokens[row, 0, :size]
        masked = blocks.is_masked[row, 0, :size]
        hidden = reader.hidden(canvas.painted(torch.where(masked, MASK, tokens)[None]))[0]
        logprobs = reader.logits(hidden).log_softmax(-1)
        for k in masked.nonzero()[:, 0].tolist():
            total -= 0.5**k * float(logprobs[k, tokens[k]])
            weight += 0.5**k
    torch.testing.assert_close(outcome.loss, torch.tensor(total / weight), rtol=1e-4, atol=1e-4)


def test_the_prefix_is_asked_for_the_next_token_as_the_target_is():
    model, chosen, tables, head = built(f"{SPEC},prefix=causal,prefix_weight=2.0", wild=False)
    without = chosen.model_copy(update={"prefix_weight": 0.0})
    some, losses = rig.batch(model, SPEC), []
    for each in (chosen, without):
        losses.append(each.outcome(head, some, tables, torch.Generator().manual_seed(2)).loss)
    cuts = without._draw(head, some, torch.Generator().manual_seed(2)).cuts
    states = model.hidden_states(some.token_ids, model.new_cache(2)).last
    logprobs = model.logits(states).log_softmax(-1)
    terms = [
        -logprobs[row, place - 1, some.token_ids[row, place]]
        for row in range(2)
        for place in range(int(some.starts[row]), int(min(some.lengths[row], cuts.max())))
    ]
    expected = 2 * torch.stack(terms).mean()
    torch.testing.assert_close(losses[0] - losses[1], expected, rtol=1e-3, atol=1e-3)


def test_blocks_of_one_reply_do_not_see_each_other():
    model, chosen, tables, head = built(f"{SPEC},prefix=causal,num_blocks=3,revealed=0.0")
    some = rig.batch(model, SPEC)
    blocks = chosen._draw(head, some, torch.Generator().manual_seed(1))
    logits, (row, block, _) = logits_of(chosen, head, some, tables, blocks)
    for number in range(3):
        alone = type(blocks)(
            cuts=blocks.cuts[:, [number]],
            tokens=blocks.tokens[:, [number]],
            is_masked=blocks.is_masked[:, [number]],
        )
        expected, _ = logits_of(chosen, head, some, tables, alone)
        torch.testing.assert_close(logits[block == number], expected, rtol=1e-4, atol=1e-4)
    assert set(row.tolist()) == {0, 1}


def test_behind_the_end_of_text_stands_the_end_of_text():
    some = rig.batch(rig.target(), SPEC)
    ids, last = some.token_ids, int(some.token_ids[1, 9])
    cuts, sizes = torch.tensor([[5], [8]]), torch.tensor([[3], [4]])
    first = [*ids[0, 5:8].tolist(), -1]
    for end_ids, tail in ((frozenset({last}), [last, last]), (frozenset(), [-1, -1])):
        blocks = _blocks(some, cuts, sizes, 4, end_ids)
        assert blocks.tokens[:, 0].tolist() == [first, [*ids[1, 8:10].tolist(), *tail]]
        assert torch.equal(blocks.is_masked, blocks.tokens >= 0)


def test_blocks_begin_anywhere_in_the_reply_and_have_half_to_all_their_masks():
    model, chosen, _, head = built("masked_diffusion:mask_token_id=40,block_size=8,revealed=0.5")
    some = rig.batch(model, SPEC)
    cuts, sizes, revealed = set(), set(), set()
    for seed in range(120):
        blocks = chosen._draw(head, some, torch.Generator().manual_seed(seed))
        cuts.add(int(blocks.cuts[0, 0]))
        sizes.add(int(blocks.is_inside[0, 0].sum()))
        revealed.add(int((blocks.is_inside & ~blocks.is_masked)[0, 0].sum()))
    assert cuts == set(range(4, 14))
    assert max(sizes) == 8
    assert revealed == {0, 1, 2, 3}


def test_what_is_published_is_dream(tmp_path):
    model, chosen, tables, head = built(f"{SPEC},layers=1")
    write_drafter(chosen.publish(head, model, tables), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert "model.layers.0.self_attn.q_proj.bias" in tensors
    assert not [key for key in tensors if key.startswith("model.layers.1")]
    table = tensors["model.embed_tokens.weight"].float()
    own = model.module.get_input_embeddings().weight
    torch.testing.assert_close(table[MASK], head.mask.bfloat16().float())
    torch.testing.assert_close(table[:MASK], own[:MASK].bfloat16().float())
    loaded = load_masked(tmp_path)
    assert loaded.describe()["shifted_logits"]
    assert (loaded.num_layers, loaded.config.mask_token_id) == (1, MASK)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_our_reader_reads_back_every_bit(dtype, tmp_path):
    model, chosen, tables, head = built()
    write_drafter(chosen.publish(head, model, tables), tmp_path, dtype)
    read = load_masked(tmp_path, dtype=dtype).module.state_dict()
    mine = {f"model.{name}": tensor for name, tensor in head.state_dict().items()}
    assert torch.equal(read["model.embed_tokens.weight"][MASK], mine.pop("model.mask").to(dtype))
    assert all(torch.equal(read[name], tensor.to(dtype)) for name, tensor in mine.items())
    assert torch.equal(read["lm_head.weight"], tables.rows.to(dtype))
    assert read.keys() == mine.keys() | {"model.embed_tokens.weight", "lm_head.weight"}


@PREFIXES
def test_a_short_run_learns_and_drafts(prefix, tmp_path):
    model = rig.target()
    store = rig.store(model, tmp_path / "features", SPEC)
    settings = TrainingSettings(
        recipe=f"{SPEC},prefix={prefix},num_blocks={1 if prefix == 'full' else 3}",
        steps=60,
        learning_rate=3e-3,
        warmup_steps=5,
        validate_every=60,
        checkpoint_every=60,
        report_every=5,
        precision="float32",
    )
    lines = []
    trained = Trainer(model, store, settings, tmp_path / "run", report=lines.append).run()
    losses = [line["loss"] for line in lines if "loss" in line]
    assert sum(losses[-3:]) < 0.9 * sum(losses[:3])
    drafter = MaskedDiffusion(model=str(trained.folder / "drafter"))
    reply = rig.replies()[-1]
    decoder = Decoder(target=model, drafter=drafter)
    made = decoder.generate([reply["prompt_ids"]], gamma=4, max_new_tokens=20, ignore_eos=True)
    assert list(made[0].token_ids) == reply["token_ids"][:20]


@pytest.mark.parametrize(
    ("spec", "error", "says"),
    [
        (f"{SPEC},layers=0+7", ConfigError, r"between 0 and 1 .* \[0, 7\]"),
    ],
)
def test_what_cannot_be_built_is_refused(spec, error, says):
    with pytest.raises(error, match=says):
        built(spec)


def test_many_blocks_need_a_causal_prefix():
    with pytest.raises(ConfigError, match="prefix=causal"):
        recipe(f"{SPEC},num_blocks=2")


def test_a_target_whose_head_is_no_matrix_is_refused():
    model = rig.target()
    model.logits = lambda hidden: 5 * torch.tanh(CausalLM.logits(model, hidden) / 5)
    with pytest.raises(UnsupportedModelError, match="scaled or capped"):
        recipe(SPEC).build(model, rig.tables(model, ALL), 0)


def test_the_mask_is_an_id_without_a_token_or_the_last_special_one():
    model = rig.target()
    model.unknown_ids = torch.tensor([45, 46])
    assert MaskedDiffusionRecipe()._mask(model) == 45
    model.unknown_ids = torch.tensor([], dtype=torch.int64)

    class Special:
        special_ids = frozenset({3, 5, 7})

    model.tokenizer, model.eos_token_ids = Special(), frozenset({7})
    assert MaskedDiffusionRecipe()._mask(model) == 5
    model.eos_token_ids = Special.special_ids
    with pytest.raises(ConfigError, match="can become the mask"):
        MaskedDiffusionRecipe()._mask(model)
    model.tokenizer = None
    assert MaskedDiffusionRecipe()._mask(model) == rig.VOCABULARY - 1


def test_it_looks_at_no_layer():
    assert recipe(SPEC).tapped(12) == ()
    assert recipe(SPEC).depth == 4
