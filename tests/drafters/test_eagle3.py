import logging
from functools import cache
from pathlib import Path

import pytest
import torch

from lenity.drafters.eagle3 import Eagle3
from lenity.engine.decode import Decoder
from lenity.errors import ConfigError, ModelMismatchError
from lenity.registry import build_knobs
from lenity.sampling import Purpose, Sampling, draw
from lenity.types import Draft
from tests.cases.rig import Spy
from tests.drafters.rig import GREEDY, Rig, drafted, plainly, tiny_llama
from tests.models.heads.golden import FOLDER, golden
from tests.models.heads.tiny import eagle3_folder

CASES = ["eagle3-safeai-a", "eagle3-speculators-a", "eagle3-deepspec-a", "peagle-a"]
every_case = pytest.mark.parametrize("name", CASES)
SAMPLED = Sampling(temperature=0.8, top_p=0.95)


@cache
def eagle(name: str, **knobs) -> Eagle3:
    return Eagle3(model=str(FOLDER / name / "drafter"), **knobs)


def prompts_of(name: str) -> list[list[int]]:
    about = golden(name).about["prompts"]
    long = [*about[0]["final"], *about[1]["final"]]
    return [about[0]["prompt"], about[1]["final"][:2], long, about[1]["prompt"], [long[0]]]


class FeatureRig(Rig):
    """A rig that hands the target's features on."""

    def admit(self, prompt, seed=0):
        fresh, features = self.target.new_cache(1), None
        if len(prompt) > 1:
            ids = torch.tensor([list(prompt[:-1])])
            features = self.target.hidden_states(ids, fresh, taps=self.session.taps).features[0]
            fresh.commit([len(prompt) - 1])
        self.cache.append(fresh)
        self.session.admit(tuple(prompt), features)
        self.rows.append(list(prompt))
        self.seeds.append(seed)

    def finish(self, draft: Draft, forced=None):
        anchors = torch.tensor([[row[-1]] for row in self.rows])
        block = torch.cat([anchors, draft.token_ids], 1)
        out = self.target.hidden_states(block, self.cache, taps=self.session.taps)
        choices = self.target.logits(out.last).float().argmax(-1).tolist()
        accepted = []
        for b, row in enumerate(self.rows):
            tokens = draft.token_ids[b, : int(draft.lengths[b])].tolist()
            matches = [x == choice for x, choice in zip(tokens, choices[b], strict=False)]
            count = matches.index(False) if False in matches else len(matches)
            count = count if forced is None else min(forced[b], len(tokens))
            row += [*tokens[:count], choices[b][count]]
            accepted.append(count)
        self.cache.commit([count + 1 for count in accepted])
        self.session.observe(accepted, out.features)
        return accepted


def rig(name: str, prompts=None, **knobs) -> FeatureRig:
    made = FeatureRig(golden(name).target, eagle(name, **knobs))
    for seed, prompt in enumerate(prompts_of(name) if prompts is None else prompts):
        made.admit(prompt, seed)
    return made


# ------------------------------------------------------------------------------------- references


@every_case
@pytest.mark.parametrize("prompt", [0, 1])
def test_the_engine_drafts_and_commits_what_the_reference_did(name, prompt):
    case = golden(name)
    about, rounds = case.about["prompts"][prompt], case.rounds(prompt)
    spy = Spy(inner=eagle(name))
    start = [*about["prompt"], rounds[0]["anchor"]]  # the reference's first round begins here
    out = Decoder(target=case.target, drafter=spy).generate(
        start, gamma=case.about["draft_length"], max_new_tokens=about["max_new_tokens"] - 1
    )
    assert [*start, *out.token_ids] == about["final"] == about["plain_greedy"]
    assert len(spy.seen) <= len(rounds)
    for turn, (committed, draft), record in zip(rounds, spy.seen, out.rounds, strict=False):
        assert len(committed[0]) == turn["start"] + 1
        length = int(draft.lengths[0])  # shorter where the request ends
        assert draft.token_ids[0, :length].tolist() == turn["draft"][:length]
        assert record.accepted == min(turn["accepted"], length)
        ended = len(committed[0]) + case.about["draft_length"] >= len(about["final"])
        assert length == case.about["draft_length"] or ended


# ------------------------------------------------------------------------------ strict is lossless


@cache
def plain(name: str) -> list[tuple[int, ...]]:
    decoder = Decoder(target=golden(name).target)
    return [g.token_ids for g in decoder.generate(prompts_of(name), max_new_tokens=10)]


@every_case
@pytest.mark.parametrize(("gamma", "batch_size"), [(1, 3), (4, 1), (4, 5), (9, 2)])
def test_strict_decoding_is_the_target_alone(name, gamma, batch_size):
    decoder = Decoder(target=golden(name).target, drafter=eagle(name), max_batch_size=batch_size)
    found = decoder.generate(prompts_of(name), gamma=gamma, max_new_tokens=10)
    assert [g.token_ids for g in found] == plain(name)
    assert sum(r.accepted for g in found for r in g.rounds) > 0


@every_case
def test_verified_greedily_it_is_the_target_alone_whoever_sits_out(name):
    made = rig(name)
    for limits in ([4, 2, 0, 3, 5], [1, 0, 5, 3, 0], [4] * 5, [0] * 5, [2, 3, 4, 5, 1]):
        made.round(limits)
        assert made.cache.lengths == [len(row) - 1 for row in made.rows]
    for row, prompt in zip(made.rows, prompts_of(name), strict=True):
        assert row[len(prompt) :] == plainly(made.target, prompt, len(row) - len(prompt))


# -------------------------------------------------------------------------------- ragged and alone


@every_case
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_batch_mates_change_nothing(name, sampling):
    limits, together = [4, 2, 3, 5, 3], rig(name)
    alone = [rig(name, []) for _ in limits]
    for seed, (made, prompt) in enumerate(zip(alone, prompts_of(name), strict=True)):
        made.admit(prompt, seed)
    for _ in range(4):
        draft = together.propose(limits, [sampling] * 5)
        for b, made in enumerate(alone):
            solo = made.propose([limits[b]], [sampling])
            assert drafted(solo)[0] == drafted(draft)[b]
            width = int(draft.lengths[b])
            if draft.probs is not None and width:
                assert torch.allclose(solo.probs[0, :width], draft.probs[b, :width], atol=1e-5)
            made.finish(solo)
        together.finish(draft)


@every_case
def test_a_draft_follows_from_the_committed_tokens_alone(name):
    """What the head itself made up while drafting leaves no trace."""
    made = rig(name)
    for turn, count in enumerate([0, 4, 1, 3, 0, 0, 4, 2]):
        limits = [4, 4 if turn % 2 else 0, 3, 4, 4]
        draft = made.propose(limits)
        assert drafted(made.propose(limits)) == drafted(draft), "asked twice"
        fresh = rig(name, made.rows).propose(limits)
        assert drafted(draft) == drafted(fresh), f"round {turn}"
        made.finish(draft, forced=[count, 4 - count, 1, 0, count])


@every_case
def test_rows_enter_and_leave(name):
    prompts = prompts_of(name)
    made = rig(name, prompts[:2])
    made.round([3, 3])
    made.admit(prompts[2])
    made.round([4, 1, 2])
    made.keep([2, 0])
    made.round([2, 5])
    made.admit(prompts[3])
    made.keep([2, 1])
    made.round([3, 3])
    assert drafted(made.propose([4, 4])) == drafted(rig(name, made.rows).propose([4, 4]))
    made.keep([])
    assert made.propose([]).token_ids.shape == (0, 0)
    made.admit(prompts[1])
    assert drafted(made.propose([4])) == drafted(rig(name, [prompts[1]]).propose([4]))


@pytest.mark.parametrize("name", ["eagle3-speculators-a", "peagle-a"])
@pytest.mark.parametrize("chunk", [1, 3])
def test_the_chunk_of_a_prefill_changes_nothing(name, chunk):
    made, expected = rig(name, prefill_chunk=chunk), rig(name)
    for forced in ([2, 0, 3, 1, 0], [0, 3, 1, 3, 3], [3] * 5):
        limits = [3, 3, 0, 3, 3]
        for one in (made, expected):  # a row that sits out has more to catch up with later
            one.round(limits, forced)
        assert drafted(made.propose([3] * 5)) == drafted(expected.propose([3] * 5))


def test_a_committed_pair_is_written_once():
    made = rig("eagle3-safeai-a", [[5, 6, 7], [8, 9]])
    for forced in ([2, 0], [0, 3], [1, 1]):
        lengths = [len(row) for row in made.rows]
        made.round([3, 3], forced)
        assert made.session._cache.lengths == [length - 1 for length in lengths]
        assert [len(states) for states in made.session._pending] == [f + 1 for f in forced]


def test_a_prompt_of_one_token_gets_no_draft_before_its_first_state():
    made = rig("eagle3-safeai-a", [[5], [5, 6]])
    assert made.propose([3, 3]).lengths.tolist() == [0, 3]
    made.round([3, 3])
    assert made.propose([3, 3]).lengths.tolist() == [3, 3]


# ---------------------------------------------------------------------------------------- sampling


@every_case
def test_a_drawn_draft_states_the_law_it_came_from(name):
    made = rig(name)
    draft = made.propose([4, 0, 3, 4, 4], [SAMPLED, SAMPLED, GREEDY, SAMPLED, SAMPLED])
    assert draft.lengths.tolist() == [4, 0, 3, 4, 0]
    assert draft.probs.shape == (5, 4, made.target.vocab_size)
    assert torch.allclose(draft.probs.sum(-1), torch.ones(5, 4), atol=1e-5)
    chosen = draft.probs.gather(-1, draft.token_ids[..., None]).squeeze(-1)
    assert (chosen > 0).all()
    assert (chosen[2] == 1).all(), "a greedy row is a point mass"


def test_tokens_outside_the_draft_vocabulary_have_probability_0():
    made = rig("eagle3-safeai-a")
    head = made.session._head
    outside = torch.ones(made.target.vocab_size, dtype=torch.bool)
    outside[head.kept_ids] = False
    draft = made.propose([4] * 5, [Sampling(temperature=3.0)] * 5)
    is_real = torch.arange(4) < draft.lengths[:, None]
    assert not draft.probs[is_real][:, outside].any()
    assert (draft.probs[is_real][:, ~outside] > 0).all()


@every_case
def test_tokens_are_drawn_from_the_stated_law_with_the_rows_own_coins(name):
    made, sampling = rig(name), [SAMPLED, Sampling(temperature=2.0), SAMPLED, GREEDY, SAMPLED]
    made.round([3] * 5)
    coins = made.context([4] * 5).coins.uniform(Purpose.DRAFT, 4)
    draft = made.propose([4] * 5, sampling)
    assert torch.equal(draft.token_ids, draw(draft.probs, coins))


# ------------------------------------------------------------------------------ limits and windows


def test_drafting_stops_where_the_heads_positions_end():
    name = "eagle3-safeai-a"
    made = rig(name, [[5] * 9, [5] * 6, [5] * 30], max_positions=12)
    # pairs of 9 tokens end at position 7; positions 7 to 11 draft five tokens
    assert made.propose([8, 8, 8]).lengths.tolist() == [5, 8, 0]
    free = rig(name, [[5] * 9, [5] * 6, [5] * 30])
    for _ in range(12):
        cut, whole = made.propose([8, 8, 8]), free.propose([8, 8, 8])
        for ids, all_ids in zip(drafted(cut), drafted(whole), strict=True):
            assert ids == all_ids[: len(ids)]
        made.finish(cut, forced=[0, 0, 0])
        free.finish(whole, forced=[0, 0, 0])
    assert made.propose([8, 8, 8]).lengths.tolist() == [0, 0, 0]


def test_depth_caps_a_draft():
    draft = rig("eagle3-safeai-a", depth=2).propose([4, 4, 1, 4, 4])
    assert draft.lengths.tolist() == [2, 2, 1, 2, 0]


@pytest.mark.parametrize("kind", ["mistral", "layer_types"])
def test_a_sliding_window_hides_what_lies_before_it(tmp_path, kind):
    target = tiny_llama(0, layers=4)
    window = {"sliding_window": 4}
    window |= {"model_type": "mistral"} if kind == "mistral" else {}
    window |= {"layer_types": ["sliding_attention"]} if kind == "layer_types" else {}
    options = {"target_size": target.hidden_size, "vocab_size": target.vocab_size}
    config = {"eagle_aux_hidden_state_layer_ids": [0, 2, 3]}
    sees_all = eagle3_folder(tmp_path / "all", config=config, **options)
    slides = eagle3_folder(tmp_path / "slides", config=config | window, **options)
    near, far = (
        FeatureRig(target, Eagle3(model=str(slides))),
        FeatureRig(target, Eagle3(model=str(sees_all))),
    )
    generator = torch.Generator().manual_seed(3)
    width = len(near.session.taps) * target.hidden_size
    features = torch.randn(10, width, generator=generator)
    other = features.clone()
    other[:6] += 1.0  # pairs 0 to 5; the last pair, 9, sees 6 to 9
    tokens = tuple(range(20, 31))
    sampling = [Sampling(temperature=1.0)]
    for made, is_blind in ((near, True), (far, False)):
        laws = []
        for given in (features, other):
            made.keep([])
            made.rows, made.seeds = [list(tokens)], [0]
            made.session.admit(tokens, given)
            laws.append(made.propose([1], sampling).probs)
        assert torch.allclose(*laws, atol=1e-6) is is_blind


def test_bfloat16_heads_run_on_a_float32_target():
    made = rig("eagle3-deepspec-a", dtype="bfloat16")
    assert made.session._head.fc.weight.dtype == torch.bfloat16
    made.round([4] * 5)
    assert made.propose([4] * 5).lengths.tolist() == [4] * 5


# ---------------------------------------------------------------------------- settings and targets


def test_taps_can_be_given(caplog):
    name = "eagle3-deepspec-a"
    caplog.set_level(logging.INFO, logger="lenity")
    made = build_knobs(
        Eagle3, {"model": str(FOLDER / name / "drafter"), "taps": "0+1+2+3+4"}, "drafter 'eagle3'"
    )
    session = made.open(golden(name).target, golden(name).target.new_cache())
    assert session.taps == golden(name).taps == (0, 1, 2, 3, 4)
    assert "as given" in caplog.text
    assert made.spec.endswith("taps=0+1+2+3+4")
    with pytest.raises(ConfigError, match="taps"):
        build_knobs(Eagle3, {"model": "x", "taps": "early"}, "drafter 'eagle3'")


def test_a_target_of_another_width_is_refused():
    foreign = tiny_llama(0, vocab_size=96)
    with pytest.raises(ModelMismatchError, match=r"fc\.weight.*hidden size 64"):
        Decoder(target=foreign, drafter=eagle("eagle3-safeai-a"))


def test_a_target_of_another_vocabulary_is_refused(tmp_path):
    folder = eagle3_folder(tmp_path / "d", target_size=64, vocab_size=100)
    drafter = Eagle3(model=str(folder), taps=(0, 1, 2))
    target = tiny_llama(0)
    with pytest.raises(ModelMismatchError, match="vocabulary of 100"):
        drafter.open(target, target.new_cache())


def test_a_target_that_is_too_shallow_is_refused(tmp_path):
    config = {"eagle_aux_hidden_state_layer_ids": [2, 15, 27]}
    folder = eagle3_folder(tmp_path / "d", target_size=64, vocab_size=128, config=config)
    target = tiny_llama(0)
    with pytest.raises(ModelMismatchError, match="another depth"):
        Eagle3(model=str(folder)).open(target, target.new_cache())


def test_a_head_can_serve_two_targets_of_one_shape():
    """What is borrowed from a target belongs to the session, not to the shared head."""
    name = "eagle3-safeai-a"
    case, drafter = golden(name), Eagle3(model=str(FOLDER / name / "drafter"))
    session = drafter.open(case.target, case.target.new_cache())
    again = drafter.open(case.target, case.target.new_cache())
    assert session._head is again._head
    assert torch.equal(session._borrowed, case.target.module.get_input_embeddings().weight)


def test_the_settings_say_where_the_drafter_is():
    made = Eagle3(model="/some/folder")
    assert made.spec == "eagle3:model=/some/folder"
    assert Path(made.model).name == "folder"
