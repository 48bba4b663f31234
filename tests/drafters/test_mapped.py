"""Drafters whose ids are a permutation of the target's, with tokens that only one side has."""

import json

import pytest
import torch

from lenity.drafters import drafter
from lenity.engine.decode import Decoder
from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.causal import CausalLM
from lenity.sampling import Sampling, probabilities
from tests.drafters.permuted import ORDER, WORDS, masked, permuted
from tests.drafters.rig import Rig, drafted, plainly, tiny_llama
from tests.models.masked_tiny import masked_folder

SHARED = 100
TARGET = tiny_llama(0, words=WORDS, name="tiny:target")
TWIN = tiny_llama(1, layers=1, words=WORDS, name="tiny:twin")
"""Has the target's ids; permuted, it is the drafter of these tests."""
PROMPTS = [[5, 6, 7, 8], [9], [3, 4] * 6]
WARM = Sampling(temperature=1.3, top_k=40)


def rig(prompts=PROMPTS, target=TARGET, **knobs) -> Rig:
    made = Rig(target, drafter("autoregressive", **knobs))
    for seed, prompt in enumerate(prompts):
        made.admit(prompt, seed)
    return made


@pytest.mark.parametrize("sampling", [Sampling(), WARM], ids=["greedy", "sampled"])
def test_a_permuted_twin_drafts_what_the_twin_does(sampling):
    made, twin = rig(model=permuted(), id_map="content"), rig(model=TWIN)
    for limits, forced in (([4, 4, 4], [2, 0, 4]), ([0, 3, 5], [0, 3, 1]), ([4, 4, 4], None)):
        ours, theirs = (one.propose(limits, [sampling] * 3) for one in (made, twin))
        assert drafted(ours) == drafted(theirs)
        torch.testing.assert_close(ours.confidence, theirs.confidence)
        if sampling is WARM:
            torch.testing.assert_close(ours.probs, theirs.probs)
        for one, draft in ((made, ours), (twin, theirs)):
            one.finish(draft, forced)


def test_a_law_is_restricted_to_the_mapped_ids_and_normalised_again():
    """Above temperature 0 a draft token is drawn from what the verifier is told."""
    made = rig(model=permuted(SHARED), id_map="content")
    draft = made.propose([3] * 3, [WARM] * 3)
    for b, prompt in enumerate(PROMPTS):
        ids = torch.tensor([[*prompt, *draft.token_ids[b, :-1].tolist()]])
        logits = TWIN.logits(TWIN.hidden_states(ids, TWIN.new_cache(1)).last[0, -3:]).float()
        logits[:, SHARED:] = -torch.inf
        torch.testing.assert_close(draft.probs[b], probabilities(logits, WARM), atol=1e-5, rtol=0)
    assert torch.allclose(draft.probs.sum(-1), torch.ones(3, 3))
    assert draft.probs.shape[-1] == TARGET.vocab_size
    assert not draft.probs[..., SHARED:].any()
    assert (draft.probs.gather(-1, draft.token_ids[..., None]) > 0).all()


def test_emitted_tokens_follow_the_targets_law():
    """Enumerated: with the reported law, one draft token and its verification give p exactly."""
    made = rig([PROMPTS[0]], model=permuted(SHARED), id_map="content")
    q = made.propose([1], [WARM]).probs[0, 0].double()
    ids = torch.tensor([PROMPTS[0]])
    logits = TARGET.logits(TARGET.hidden_states(ids, TARGET.new_cache(1)).last[0, -1:]).float()
    logits[:, WORDS:] = -torch.inf
    p = probabilities(logits, WARM)[0].double()
    accepted = torch.minimum(p, q)
    residual = (p - q).clamp_min(0)
    emitted = accepted + (1 - accepted.sum()) * residual / residual.sum()
    torch.testing.assert_close(emitted, p, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["autoregressive", "masked_diffusion"])
@pytest.mark.parametrize("unmapped", [None, 7])
def test_strict_is_the_target_alone(kind, unmapped, tmp_path):
    knobs = {"id_map": "content", "unmapped": unmapped}
    model = permuted(SHARED) if kind == "autoregressive" else str(masked(tmp_path, SHARED))
    decoder = Decoder(target=TARGET, drafter=drafter(kind, model=model, **knobs))
    made = decoder.generate(PROMPTS, gamma=4, max_new_tokens=24)
    assert any(record.drafted for g in made for record in g.rounds)
    for prompt, own in zip(PROMPTS, made, strict=True):
        assert list(own.token_ids) == plainly(TARGET, prompt, 24)


def test_sampled_rows_do_not_depend_on_their_mates():
    decoder = Decoder(
        target=TARGET, drafter=drafter("autoregressive", model=permuted(SHARED), id_map="content")
    )
    settings = {"gamma": 3, "max_new_tokens": 12, "temperature": 1.0}
    together = decoder.generate(PROMPTS, **settings)
    for index, prompt in enumerate(PROMPTS):
        alone = decoder.generate([prompt], seed=index, **settings)[0]
        assert alone.token_ids == together[index].token_ids


def test_a_text_that_cannot_be_read_is_not_drafted_for():
    prompts = [[5, 6], [5, SHARED + 1, 6], [7, 8]]
    made = rig(prompts, model=permuted(SHARED), id_map="content")
    assert made.propose([3, 3, 3]).lengths.tolist() == [3, 0, 3]
    made.rows[2] = [*made.rows[2], SHARED + 2]
    made.cache.lengths[2] += 1
    assert made.propose([3, 3, 3]).lengths.tolist() == [3, 0, 0], "and never again"
    made.rows[2] = [7, 8, 9]
    assert made.propose([3, 3, 3]).lengths.tolist() == [3, 0, 0]


def test_a_stand_in_is_read_in_its_place():
    """The drafter sees the id it was given; the twin sees the token of that id."""
    shown = 11
    made = rig(
        [[5, SHARED + 1, 6]],
        model=permuted(SHARED),
        id_map="content",
        unmapped=int(ORDER[shown]),
    )
    twin = rig([[5, shown, 6]], model=permuted(SHARED), id_map="content")
    assert drafted(made.propose([4])) == drafted(twin.propose([4]))


def test_a_file_takes_the_place_of_tokenizers(tmp_path):
    pairs = [[i, int(ORDER[i])] for i in range(WORDS)]
    file = tmp_path / "map.json"
    file.write_text(json.dumps({"pairs": pairs}))
    bare = CausalLM(permuted().module, None, name="tiny:bare")
    made = rig(model=bare, id_map=str(file))
    assert drafted(made.propose([4] * 3)) == drafted(rig(model=TWIN).propose([4] * 3))


# ------------------------------------------------------------------------------ masked diffusion


def masked_rig(model, **knobs) -> Rig:
    made = Rig(TARGET, drafter("masked_diffusion", model=str(model), steps=3, **knobs))
    for prompt in PROMPTS:
        made.admit(prompt)
    return made


def test_a_permuted_masked_model_drafts_what_its_twin_does(tmp_path):
    ours = masked_rig(masked(tmp_path), id_map="content").propose([5, 0, 3])
    theirs = masked_rig(masked_folder(tmp_path / "twin", "dream")).propose([5, 0, 3])
    assert drafted(ours) == drafted(theirs)
    torch.testing.assert_close(ours.confidence, theirs.confidence)
    assert torch.equal(ours.record.reveal_step, theirs.record.reveal_step)


def test_a_masked_model_says_mapped_tokens_only(tmp_path):
    made = masked_rig(masked(tmp_path, shared=30), id_map="content")
    draft = made.propose([8] * 3)
    assert int(draft.token_ids.max()) < 30
    assert (draft.confidence > 0).all()


def test_a_masked_model_reads_a_mask_for_what_it_does_not_know(tmp_path):
    folder = masked(tmp_path, SHARED)
    made = masked_rig(folder, id_map="content", unmapped=int(ORDER[121]))
    made.rows[0] = [5, SHARED + 1, 6]
    assert made.propose([4] * 3).lengths.tolist() == [4, 4, 4]
    deaf = masked_rig(folder, id_map="content")
    deaf.rows[0] = [5, SHARED + 1, 6]
    assert deaf.propose([4] * 3).lengths.tolist() == [0, 4, 4]


# --------------------------------------------------------------------------------------- refusals


def test_without_a_map_another_tokenizer_is_refused(tmp_path):
    with pytest.raises(ModelMismatchError, match="same tokens"):
        rig(model=permuted())
    with pytest.raises(ModelMismatchError, match="same tokens"):
        masked_rig(masked(tmp_path))


def test_what_only_specials_share_is_refused(tmp_path):
    words = {"<mask>": int(ORDER[121]), "w1": 3}
    folder = masked(tmp_path, pad_token_id=3)
    (folder / "vocab.json").write_text(json.dumps(words))
    with pytest.raises(ModelMismatchError, match=r"both .* use for text"):
        masked_rig(folder, id_map="content")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("autoregressive:model=x,unmapped=3", "set id_map, or leave unmapped out"),
        ("masked_diffusion:model=x,unmapped=3", "set id_map, or leave unmapped out"),
        ("autoregressive:model=target,id_map=content", "leave id_map out"),
    ],
)
def test_knobs_that_make_no_sense_are_refused(spec, said):
    with pytest.raises(ConfigError, match=said):
        drafter(spec)


def test_what_is_mapped_is_said(tmp_path):
    knobs = {"id_map": "content", "unmapped": 7}
    ours = drafter("autoregressive", model=permuted(SHARED), **knobs).describe(TARGET)
    assert ours["vocabulary_map"] == "content: 100 of the target's 128 ids are drafted"
    assert ours["unmapped_tokens"] == "read as id 7"
    found = drafter("masked_diffusion", model=str(masked(tmp_path)), id_map="content")
    assert found.describe(TARGET)["unmapped_tokens"] == "not read"
    assert "vocabulary_map" not in drafter("autoregressive", model=TWIN).describe(TARGET)


def test_a_spec_survives_being_read():
    spec = "autoregressive:model=dir,id_map=content,unmapped=3"
    assert drafter(spec).spec == spec
