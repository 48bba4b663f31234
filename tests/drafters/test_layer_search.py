import pytest
import torch

from lenity.drafters.layer_search import Blocks, continue_greedily, search_layers
from lenity.drafters.layer_sets import SearchSettings
from lenity.errors import ConfigError
from tests.drafters.rig import plainly, tiny_llama
from tests.drafters.test_self_speculative import rig, silenced

PROMPTS = [[5, 6, 7, 8], [9], [3, 4] * 4]
SHORT = SearchSettings(block_size=3, num_tokens=8, keep_share=0.4, min_agreement=0.9)


def test_layers_that_do_nothing_are_removed_first():
    model = silenced(tiny_llama(0, layers=5), 1, 3)
    found = search_layers(model, PROMPTS, settings=SHORT)
    assert found.skipped == (1, 3)
    assert found.agreement == 1.0
    assert [point.removed for point in found.curve[:2]] == [1, 3], "ties go to the lower index"
    assert [point.num_skipped for point in found.curve] == [1, 2, 3]
    assert found.fits(model)


def test_the_curve_goes_on_where_the_chosen_set_ends():
    found = search_layers(silenced(tiny_llama(0, layers=5), 2), PROMPTS, settings=SHORT)
    assert len(found.curve) == 3
    assert found.skipped == (2,)
    assert found.curve[1].agreement < 0.9


def test_each_removal_is_the_best_of_all_that_could_be_made():
    model = tiny_llama(4, layers=4)
    found = search_layers(model, PROMPTS, settings=SHORT)
    blocks, kept = Blocks(model, PROMPTS, SHORT), [0, 1, 2, 3]
    for point in found.curve:
        scores = {i: blocks.score(tuple(k for k in kept if k != i)) for i in kept}
        assert point.agreement == max(score.agreement for score in scores.values())
        assert scores[point.removed].agreement == point.agreement
        kept.remove(point.removed)


def test_a_short_list_tries_the_cheapest_of_the_time_before():
    model, settings = tiny_llama(4, layers=5), SHORT.model_copy(update={"shortlist": 2})
    tried = []

    class Watched(Blocks):
        def score(self, layers):
            tried.append(set(layers))
            return super().score(layers)

    blocks, everything = Blocks(model, PROMPTS, settings), set(range(5))
    costs = {i: blocks.score(tuple(sorted(everything - {i}))).costs for i in range(5)}
    first, *rest = sorted(costs, key=lambda i: (*costs[i], i))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lenity.drafters.layer_search.Blocks", Watched)
        found = search_layers(model, PROMPTS, settings=settings)
    assert found.curve[0].removed == first
    assert tried[:5] == [everything - {i} for i in range(5)]
    assert tried[5:7] == [everything - {first, i} for i in rest[:2]]
    assert len(tried) == 5 + 2 + 2


def test_one_layer_always_stays():
    settings = SHORT.model_copy(update={"keep_share": 0.01, "min_agreement": 0.0})
    found = search_layers(tiny_llama(0, layers=3), PROMPTS, settings=settings)
    assert len(found.skipped) == 2


def test_nothing_good_enough_is_an_empty_set():
    settings = SHORT.model_copy(update={"min_agreement": 1.0})
    found = search_layers(tiny_llama(0, layers=3), PROMPTS, settings=settings)
    assert found.skipped == ()
    assert found.agreement == 1.0


def test_a_score_is_what_drafting_meets():
    """On blocks whose draft is right so far, the draft session and the search see the same."""
    model, settings = tiny_llama(0, layers=4), SHORT.model_copy(update={"num_tokens": 6})
    score = Blocks(model, PROMPTS[:1], settings).score((0, 2, 3))
    made, accepted = rig((1,), model, PROMPTS[:1]), []
    text = PROMPTS[0] + plainly(model, PROMPTS[0], 6)
    for start in (0, 3):
        made.keep([])
        made.admit(text[: len(PROMPTS[0]) + start])
        accepted.append(made.round([3])[0])
    assert score.accepted_length == sum(accepted) / 2


def test_an_agreement_behind_a_mismatch_is_not_accepted():
    model, settings = tiny_llama(4, layers=4), SearchSettings(block_size=4, num_tokens=32)
    blocks, layers = Blocks(model, PROMPTS, settings), (0, 1, 3)
    hidden = model.hidden_states(blocks._inputs, blocks._cache, layers=layers).last
    agrees = (model.logits(hidden).argmax(-1) == blocks._labels).tolist()
    accepted = [[*row, False].index(False) for row in agrees]
    assert sum(map(sum, agrees)) > sum(accepted) > 0, "the case is in the data"
    score = blocks.score(layers)
    assert score.accepted_length == pytest.approx(sum(accepted) / len(accepted))
    assert score.agreement == sum(map(sum, agrees)) / blocks.num_positions


def test_scoring_commits_nothing_and_repeats():
    blocks = Blocks(tiny_llama(0), PROMPTS, SHORT)
    lengths = list(blocks._cache.lengths)
    assert blocks.score((0, 2)) == blocks.score((0, 2))
    assert blocks._cache.lengths == lengths
    assert blocks.score((0, 1, 2)).agreement == 1.0


def test_held_out_prompts_are_measured_and_change_nothing():
    model = tiny_llama(4, layers=4)
    plain = search_layers(model, PROMPTS, settings=SHORT)
    steps = []
    found = search_layers(
        model, PROMPTS, held_out=[[1, 2], [70, 71]], settings=SHORT, on_step=steps.append
    )
    assert found.skipped == plain.skipped
    assert steps == list(found.curve)
    assert all(point.held_out_agreement is None for point in plain.curve)
    unseen = Blocks(model, [[1, 2], [70, 71]], SHORT)
    kept = tuple(i for i in range(4) if i != steps[0].removed)
    assert steps[0].held_out_agreement == unseen.score(kept).agreement


def test_continuations_are_the_targets_own_and_end_with_its_end_token():
    model = tiny_llama(0, words=120)
    plain = [plainly(model, prompt, 8) for prompt in PROMPTS]
    assert continue_greedily(model, PROMPTS, 8) == plain
    model.eos_token_ids = frozenset({plain[0][3]})
    cut = continue_greedily(model, PROMPTS, 8)[0]
    assert cut == plain[0][: plain[0].index(plain[0][3]) + 1]


def test_the_last_block_counts_its_real_positions_only():
    model = tiny_llama(0)
    blocks = Blocks(model, PROMPTS[:1], SHORT)
    assert blocks.num_positions == 8
    assert blocks._is_real.sum(-1).tolist() == [3, 3, 2]


@pytest.mark.parametrize("prompts", [[], [[1], []]], ids=["none", "empty"])
def test_nothing_to_measure_is_refused(prompts):
    with pytest.raises(ConfigError, match="prompts of at least one token"):
        search_layers(tiny_llama(0), prompts)


def test_the_hash_names_the_prompts():
    model = tiny_llama(0)
    first, second = (search_layers(model, p, settings=SHORT) for p in (PROMPTS, PROMPTS[:2]))
    assert len(first.prompts_sha256) == 64
    assert first.prompts_sha256 != second.prompts_sha256
    assert torch.is_grad_enabled()
