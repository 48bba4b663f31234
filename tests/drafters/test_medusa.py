"""Medusa as a chain. Trees and typical acceptance are not built; their goldens wait for them."""

from functools import cache

import pytest
import torch

from lenity.drafters import drafter
from lenity.engine.decode import Decoder
from lenity.errors import ConfigError, ModelMismatchError, UnsupportedModelError
from lenity.sampling import Sampling, probabilities
from tests.drafters.heads import replay, tiny_medusa
from tests.drafters.rig import Rig, drafted, plainly, tiny_llama
from tests.models.heads.golden import FOLDER, golden

TARGET = tiny_llama(0, words=120)
PROMPTS = [[5, 6, 7, 8, 5, 6, 7], [9], [3, 4] * 6 + [3], [20, 21, 22, 20, 21]]
NAME = "medusa-a"
PATH = str(FOLDER / NAME / "drafter")
SAMPLED = Sampling(temperature=0.8, top_p=0.95)


@cache
def heads(**options):
    return tiny_medusa(TARGET, **options)


def rig(prompts=PROMPTS, **options):
    made = Rig(TARGET, drafter("medusa", model=heads(**options)))
    for seed, prompt in enumerate(prompts):
        made.admit(prompt, seed)
    return made


@pytest.mark.parametrize("prompts", [(0,), (1,), (0, 1)], ids=["first", "second", "batch"])
def test_the_golden_run(prompts):
    found = replay(golden(NAME), drafter("medusa", model=PATH), 3, prompts)
    for prompt, rounds in zip(prompts, found, strict=True):
        expected = golden(NAME).rounds(prompt)
        assert rounds[: len(expected)] == expected


def test_the_state_that_gave_the_anchor_drafts_what_follows():
    made = rig()
    for _ in range(4):
        draft = made.propose([3, 3, 3, 3])
        for b, row in enumerate(made.rows):
            if len(row) == 1:
                assert int(draft.lengths[b]) == 0, "no state yet"
                continue
            hidden = TARGET.hidden_states(torch.tensor([row[:-1]]), TARGET.new_cache(1)).last
            expected = heads()(hidden[0, -1], TARGET.logits)[:3, :120].argmax(-1)
            assert drafted(draft)[b] == expected.tolist()
        made.finish(draft)


def test_no_more_tokens_than_heads():
    made = rig()
    assert made.propose([9, 0, 2, 9]).lengths.tolist() == [4, 0, 2, 4]
    made.round([0, 0, 0, 0])
    assert made.propose([9, 9, 9, 0]).lengths.tolist() == [4, 4, 4, 0]


def test_above_temperature_0_each_position_has_its_heads_law():
    made = rig()
    draft = made.propose([4, 0, 4, 2], [SAMPLED] * 4)
    for b in (0, 2, 3):
        row = torch.tensor([made.rows[b][:-1]])
        hidden = TARGET.hidden_states(row, TARGET.new_cache(1)).last[0, -1]
        logits = heads()(hidden, TARGET.logits)
        logits[:, 120:] = -torch.inf
        count = int(draft.lengths[b])
        expected = probabilities(logits, SAMPLED)[:count]
        assert torch.allclose(draft.probs[b, :count], expected, atol=1e-6)
    chosen = draft.probs.gather(-1, draft.token_ids[..., None])
    assert (chosen > 0).all()


def test_drafts_follow_from_the_committed_tokens_alone():
    made = rig()
    for count in [0, 4, 1, 3, 2]:
        draft = made.propose([4, 4, 3, 4])
        if min(map(len, made.rows)) > 1:
            assert drafted(draft) == drafted(rig(made.rows).propose([4, 4, 3, 4]))
        made.finish(draft, forced=[count, 4 - count, 1, 0])


def test_rows_enter_and_leave():
    made = rig(PROMPTS[:2])
    made.round([3, 3])
    made.admit(PROMPTS[2])
    made.round([4, 1, 2])
    made.keep([2, 0])
    made.round([2, 4])
    for row, prompt in zip(made.rows, (PROMPTS[2], PROMPTS[0]), strict=True):
        assert row[len(prompt) :] == plainly(TARGET, prompt, len(row) - len(prompt))
    assert drafted(made.propose([4, 4])) == drafted(rig(made.rows).propose([4, 4]))
    made.keep([])
    assert made.propose([]).token_ids.shape == (0, 0)


@pytest.mark.parametrize("gamma", [1, 3, 7])
@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("own", [True, False])
def test_strict_is_the_target_alone(gamma, batch_size, own):
    decoder = Decoder(
        target=TARGET,
        drafter=drafter("medusa", model=heads(own=own)),
        max_batch_size=batch_size,
    )
    for made, prompt in zip(
        decoder.generate(PROMPTS, gamma=gamma, max_new_tokens=12), PROMPTS, strict=True
    ):
        assert list(made.token_ids) == plainly(TARGET, prompt, 12)
        assert sum(r.drafted for r in made.rounds) > 0


def test_another_targets_heads_are_refused():
    with pytest.raises(ModelMismatchError, match=r"64 numbers.*48"):
        Decoder(target=TARGET, drafter=drafter("medusa", model=PATH))
    foreign = tiny_medusa(tiny_llama(0, layers=1, vocab_size=100))
    with pytest.raises(ModelMismatchError, match=r"128 ids.*100"):
        Decoder(target=TARGET, drafter=drafter("medusa", model=foreign))
    path = str(FOLDER / "dflash-zlab-a" / "drafter")
    with pytest.raises(UnsupportedModelError, match="dflash"):
        Decoder(target=TARGET, drafter=drafter("medusa", model=path))


def test_settings_survive_being_read():
    assert drafter("medusa:model=somewhere,dtype=bfloat16").spec == (
        "medusa:model=somewhere,dtype=bfloat16"
    )
    with pytest.raises(ConfigError, match="model"):
        drafter("medusa")
