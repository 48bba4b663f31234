from functools import cache

import pytest
import torch

from lenity.drafters import drafter
from lenity.engine.decode import Decoder
from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.heads.dflash_config import MARKOV_KINDS
from lenity.sampling import Sampling, probabilities
from tests.drafters.heads import replay, tiny_dspark
from tests.drafters.rig import Rig, drafted, plainly, tiny_llama
from tests.models.heads.golden import FOLDER, golden

TARGET = tiny_llama(0, words=120)
PROMPTS = [[5, 6, 7, 8, 5, 6, 7], [9], [3, 4] * 6 + [3], [20, 21, 22, 20, 21]]
SAMPLED = Sampling(temperature=0.8, top_p=0.95)
NAME = "dspark-deepspec-a"
PATH = str(FOLDER / NAME / "drafter")


@cache
def head(kind="vanilla", **changes):
    return tiny_dspark(TARGET, kind, **changes)


def rig(prompts=PROMPTS, kind="vanilla", threshold=0.0, **changes):
    made = Rig(
        TARGET, drafter("dspark", model=head(kind, **changes), confidence_threshold=threshold)
    )
    for seed, prompt in enumerate(prompts):
        made.admit(prompt, seed)
    return made


@pytest.mark.parametrize("prompts", [(0,), (1,), (0, 1)], ids=["first", "second", "batch"])
def test_the_golden_run(prompts):
    found = replay(golden(NAME), drafter("dspark", model=PATH), 6, prompts)
    for prompt, rounds in zip(prompts, found, strict=True):
        expected = golden(NAME).rounds(prompt)
        assert rounds[: len(expected)] == expected


@pytest.mark.parametrize("prompts", [(0,), (1,), (0, 1)], ids=["first", "second", "batch"])
@pytest.mark.parametrize("run", [0, 1])
def test_the_golden_runs_with_a_threshold(run, prompts):
    about = [golden(NAME).about["prompts"][p]["threshold_runs"][run] for p in prompts]
    threshold = about[0]["threshold"]
    assert all(a["threshold"] == threshold for a in about)
    made = drafter("dspark", model=PATH, confidence_threshold=threshold)
    for rounds, expected in zip(replay(golden(NAME), made, 6, prompts), about, strict=True):
        assert len(rounds) >= len(expected["rounds"])
        for turn, wanted in zip(rounds, expected["rounds"], strict=False):
            assert len(turn["draft"]) == wanted["proposed"]
            assert wanted == {k: v for k, v in turn.items() if k != "anchor"} | {
                "proposed": wanted["proposed"]
            }


@torch.no_grad()
def by_hand(made, row, tokens):
    """Logits and confidences of one row's slots given ``tokens``, from an empty cache."""
    own = made.session._head
    slots = own.new_cache(1)
    if len(row) > 1:
        ids, states = torch.tensor([row[:-1]]), TARGET.new_cache(1)
        own.remember(TARGET.hidden_states(ids, states, taps=own.config.taps).features, slots)
        slots.commit([len(row) - 1])
    hidden = own.run_block(torch.tensor([row[-1]]), slots, TARGET.embed)
    hidden = hidden[:, own.config.first_slot :]
    previous, state, logits, trust = [row[-1], *tokens], None, [], []
    for k in range(len(tokens)):
        before = torch.tensor([previous[k]])
        bias, state = own.markov_head(before, hidden[:, k], state)
        logits.append((TARGET.logits(hidden[:, k]) + bias)[0])
        trust.append(float(own.confidence_logits(before, hidden[:, k]).sigmoid()))
    logits = torch.stack(logits)
    logits[:, 120:] = -torch.inf
    return logits, trust


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", MARKOV_KINDS)
@pytest.mark.parametrize("slots", ["anchor_first", "fill_in"])
def test_tokens_follow_one_another(kind, slots, sampling):
    made = rig(kind=kind, slots=slots)
    made.round([2, 2, 2, 2])
    draft = made.propose([4, 1, 3, 4], [sampling] * 4)
    for b, row in enumerate(made.rows):
        tokens = drafted(draft)[b]
        logits, trust = by_hand(made, row, tokens)
        count = len(tokens)
        assert count == [4, 1, 3, 4][b]
        assert torch.allclose(draft.confidence[b, :count], torch.tensor(trust), atol=1e-5)
        if sampling.is_greedy:
            assert tokens == logits.argmax(-1).tolist()
        else:
            expected = probabilities(logits, sampling)
            assert torch.allclose(draft.probs[b, :count], expected, atol=1e-5)


def test_a_block_is_cut_at_the_first_low_confidence():
    whole = rig().propose([5, 5, 5, 5])
    confidence = whole.confidence
    threshold = float(confidence[:, 1:4].median())
    short = rig(threshold=threshold).propose([5, 3, 5, 5])
    for b in range(4):
        low = [c < threshold for c in confidence[b].tolist()]
        first = low.index(True) if True in low else 5
        assert drafted(short)[b] == drafted(whole)[b][: min(first, [5, 3, 5, 5][b])]
    lengths = short.lengths
    assert len(set(lengths.tolist())) > 1, "or nothing was tried"
    assert short.gamma == int(lengths.max())
    is_real = torch.arange(short.gamma) < lengths[:, None]
    assert ((short.confidence > 0) == is_real).all()


def test_nothing_may_be_left():
    made = rig(threshold=1.0)
    draft = made.propose([5, 5, 5, 5], [SAMPLED] * 4)
    assert draft.lengths.tolist() == [0, 0, 0, 0]
    assert draft.token_ids.shape == (4, 0)
    made.finish(draft)
    assert made.cache.lengths == [len(row) - 1 for row in made.rows]


def test_without_a_confidence_head_it_is_the_laws_own():
    draft = rig(has_confidence=False).propose([3, 3, 3, 3], [SAMPLED] * 4)
    assert ((draft.confidence > 0) & (draft.confidence <= 1)).all()
    with pytest.raises(ConfigError, match="confidence head"):
        rig(has_confidence=False, threshold=0.5)


def test_without_a_markov_head_slots_are_independent():
    changes = {"markov_rank": 0, "is_confidence_markov": False}
    made = rig(**changes)
    draft = made.propose([4, 4, 4, 4])
    assert draft.lengths.tolist() == [4, 4, 4, 4]
    assert drafted(draft) == drafted(rig(threshold=0.0, **changes).propose([4, 4, 4, 4]))


def test_rows_enter_and_leave():
    made = rig(PROMPTS[:2], kind="rnn")
    made.round([3, 3])
    made.admit(PROMPTS[2])
    made.round([4, 1, 2])
    made.keep([2, 0])
    made.round([2, 4])
    for row, prompt in zip(made.rows, (PROMPTS[2], PROMPTS[0]), strict=True):
        assert row[len(prompt) :] == plainly(TARGET, prompt, len(row) - len(prompt))
    assert drafted(made.propose([4, 4])) == drafted(rig(made.rows, kind="rnn").propose([4, 4]))


@pytest.mark.parametrize("gamma", [1, 5])
@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("threshold", [0.0, 0.4])
def test_strict_is_the_target_alone(gamma, batch_size, threshold):
    decoder = Decoder(
        target=TARGET,
        drafter=drafter("dspark", model=head("gated"), confidence_threshold=threshold),
        max_batch_size=batch_size,
    )
    made = decoder.generate(PROMPTS, gamma=gamma, max_new_tokens=12)
    for one, prompt in zip(made, PROMPTS, strict=True):
        assert list(one.token_ids) == plainly(TARGET, prompt, 12)


def test_sampled_rows_are_their_own():
    decoder = Decoder(
        target=TARGET,
        drafter=drafter("dspark", model=head("rnn"), confidence_threshold=0.3),
        max_batch_size=3,
    )
    settings = {"gamma": 5, "max_new_tokens": 10, "temperature": 0.7}
    made = decoder.generate(PROMPTS, **settings)
    for index, prompt in enumerate(PROMPTS):
        solo = decoder.generate([prompt], seed=index, **settings)[0]
        assert made[index].token_ids == solo.token_ids


def test_a_plain_dflash_is_sent_to_its_drafter():
    name = "dflash-deepspec-a"
    with pytest.raises(ModelMismatchError, match="'dflash'"):
        Decoder(
            target=golden(name).target,
            drafter=drafter("dspark", model=str(FOLDER / name / "drafter")),
        )


def test_settings_survive_being_read():
    spec = "dspark:model=somewhere,confidence_threshold=0.4"
    assert drafter(spec).spec == spec
    with pytest.raises(ConfigError, match="confidence_threshold"):
        drafter("dspark:model=x,confidence_threshold=1.5")
