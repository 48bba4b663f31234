from functools import cache

import pytest
import torch

from lenity.drafters import drafter
from lenity.engine.decode import Decoder
from lenity.errors import ConfigError, ModelMismatchError
from lenity.sampling import Sampling, probabilities
from tests.drafters.heads import replay, tiny_dflash
from tests.drafters.rig import Rig, drafted, plainly, tiny_llama
from tests.models.heads.golden import FOLDER, golden

TARGET = tiny_llama(0, words=120)
PROMPTS = [[5, 6, 7, 8, 5, 6, 7], [9], [3, 4] * 6 + [3], [20, 21, 22, 20, 21]]
SAMPLED = Sampling(temperature=0.8, top_p=0.95)
LENGTHS = {"dflash-zlab-a": 5, "dflash-speculators-a": 4, "dflash-deepspec-a": 5}


def path(name):
    return str(FOLDER / name / "drafter")


@cache
def head(**changes):
    return tiny_dflash(TARGET, **changes)


def rig(prompts=PROMPTS, **changes):
    made = Rig(TARGET, drafter("dflash", model=head(**changes)))
    for seed, prompt in enumerate(prompts):
        made.admit(prompt, seed)
    return made


@pytest.mark.parametrize("prompts", [(0,), (1,), (0, 1)], ids=["first", "second", "batch"])
@pytest.mark.parametrize("name", LENGTHS)
def test_the_golden_run(name, prompts):
    found = replay(golden(name), drafter("dflash", model=path(name)), LENGTHS[name], prompts)
    for prompt, rounds in zip(prompts, found, strict=True):
        expected = golden(name).rounds(prompt)
        assert rounds[: len(expected)] == expected


def test_the_wrong_slots_draft_something_else():
    name = "dflash-zlab-a"
    wrong = drafter("dflash", model=path(name), slots="anchor_first")
    (found,) = replay(golden(name), wrong, 5, (0,))
    assert found[0]["draft"] != golden(name).rounds(0)[0]["draft"]


@torch.no_grad()
def fresh_logits(made, row):
    """Logits of the proposing slots of one row, from an empty cache."""
    own = made.session._head
    slots = own.new_cache(1)
    if len(row) > 1:
        tokens, states = torch.tensor([row[:-1]]), TARGET.new_cache(1)
        features = TARGET.hidden_states(tokens, states, taps=own.config.taps).features
        own.remember(features, slots)
        slots.commit([len(row) - 1])
    hidden = own.run_block(torch.tensor([row[-1]]), slots, TARGET.embed)[0]
    logits = TARGET.logits(hidden)[own.config.first_slot :]
    logits[:, 120:] = -torch.inf
    return logits


@pytest.mark.parametrize("slots", ["fill_in", "anchor_first"])
def test_the_cache_holds_what_a_fresh_one_would(slots):
    made = rig(slots=slots)
    most = made.session._head.config.max_draft_length
    for turn, count in enumerate([0, 4, 1, 3, 0, 2]):
        limits = [9, 9 if turn % 2 else 0, 3, 9]
        draft = made.propose(limits)
        assert draft.lengths.tolist() == [min(limit, most) for limit in limits]
        for b, row in enumerate(made.rows):
            expected = fresh_logits(made, row).argmax(-1).tolist()
            assert drafted(draft)[b] == expected[: int(draft.lengths[b])]
        made.finish(draft, forced=[count, 4 - count, 1, 0])


def test_above_temperature_0_each_slot_has_its_own_law():
    made = rig()
    made.round([2, 2, 2, 2])
    draft = made.propose([4, 0, 3, 4], [SAMPLED] * 4)
    for b in (0, 2, 3):
        count = int(draft.lengths[b])
        expected = probabilities(fresh_logits(made, made.rows[b]), SAMPLED)[:count]
        assert torch.allclose(draft.probs[b, :count], expected, atol=1e-5)


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
    made.admit(PROMPTS[1])
    assert drafted(made.propose([4])) == drafted(rig([PROMPTS[1]]).propose([4]))


def test_a_round_can_be_drafted_again():
    made = rig()
    assert drafted(made.propose([4, 2, 1, 4])) == drafted(made.propose([4, 2, 1, 4]))


@pytest.mark.parametrize("gamma", [1, 4, 9])
@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_strict_is_the_target_alone_and_rows_are_their_own(gamma, batch_size, temperature):
    decoder = Decoder(
        target=TARGET, drafter=drafter("dflash", model=head()), max_batch_size=batch_size
    )
    settings = {"gamma": gamma, "max_new_tokens": 12, "temperature": temperature}
    made = decoder.generate(PROMPTS, **settings)
    for index, prompt in enumerate(PROMPTS):
        assert sum(r.drafted for r in made[index].rounds) > 0
        if temperature:
            solo = decoder.generate([prompt], seed=index, **settings)[0]
            assert made[index].token_ids == solo.token_ids
        else:
            assert list(made[index].token_ids) == plainly(TARGET, prompt, 12)


def test_a_reduced_head_drafts_only_what_it_kept():
    own = tiny_dflash(TARGET)
    own.lm_head = torch.nn.Linear(64, 3, bias=False)
    own.kept_ids = torch.tensor([4, 50, 119])
    made = Rig(TARGET, drafter("dflash", model=own))
    made.admit(PROMPTS[0])
    draft = made.propose([4], [Sampling(temperature=1.0)])
    assert set(drafted(draft)[0]) <= {4, 50, 119}
    assert (draft.probs[0] > 0).sum(-1).tolist() == [3] * 4


def test_a_drafter_can_be_in_half_precision():
    decoder = Decoder(
        target=golden("dflash-zlab-a").target,
        drafter=drafter("dflash", model=path("dflash-zlab-a"), dtype="bfloat16"),
    )
    about = golden("dflash-zlab-a").about["prompts"][0]
    made = decoder.generate([about["prompt"]], gamma=5, max_new_tokens=18)[0]
    assert [*about["prompt"], *made.token_ids] == about["final"]
    assert sum(r.accepted for r in made.rounds) > 4


def test_another_targets_drafter_is_refused():
    with pytest.raises(ModelMismatchError, match=r"fc\.weight"):
        Decoder(
            target=tiny_llama(0, layers=5), drafter=drafter("dflash", model=path("dflash-zlab-a"))
        )
    with pytest.raises(ConfigError, match="has 3"):
        Decoder(target=TARGET, drafter=drafter("dflash", model=path("dflash-zlab-a")))
    name = "dflash-deepspec-a"
    with pytest.raises(ModelMismatchError, match=r"86 ids.*80"):
        Decoder(
            target=golden("dflash-speculators-a").target,
            drafter=drafter("dflash", model=path(name)),
        )
    with pytest.raises(ModelMismatchError, match="'dspark'"):
        Decoder(
            target=golden("dspark-deepspec-a").target,
            drafter=drafter("dflash", model=path("dspark-deepspec-a")),
        )


def test_settings_survive_being_read():
    spec = "dflash:model=somewhere,slots=anchor_first,taps=-1+3+5"
    made = drafter(spec)
    assert made.spec == spec
    assert made.taps == (-1, 3, 5)
    assert drafter(made.spec) == made
    with pytest.raises(ConfigError, match="slots"):
        drafter("dflash:model=x,slots=middle")
