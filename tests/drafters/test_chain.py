import pytest
import torch

from lenity.drafters.base import DraftContext
from lenity.drafters.chain import DraftVocabulary, draft_chain, prefill, row_laws, run_ragged
from lenity.errors import NonFiniteError
from lenity.sampling import Coins, Purpose, Sampling, draw, probabilities
from tests.drafters.rig import GREEDY, drafted, tiny_llama
from tests.toys import TableModel, cycle_model

WARM = Sampling(temperature=0.7)
FILTERED = Sampling(temperature=1.3, top_k=4, min_p=0.02)


def context(limits, sampling, starts=None, **asked):
    rows = len(limits)
    return DraftContext(
        token_ids=[[0]] * rows,
        limits=limits,
        sampling=sampling,
        coins=Coins(list(range(rows)), starts or [1] * rows),
        **asked,
    )


def table(generator, size=16):
    return torch.randn(size, size, generator=generator) * 2


def chain(logits, limits, sampling, vocabulary=None, starts=None, **asked):
    """Draft from a Markov table: the logits after token t are row t; token 0 comes first."""
    vocabulary = vocabulary or DraftVocabulary(TableModel(logits), TableModel(logits))

    def advance(i, tokens):
        return logits[torch.zeros(len(limits), dtype=torch.int64) if tokens is None else tokens]

    return draft_chain(advance, context(limits, sampling, starts, **asked), vocabulary)


def test_greedy_rows_follow_the_argmax(generator):
    logits = table(generator)
    draft = chain(logits, [3, 1], [GREEDY, GREEDY])
    expected, token = [], 0
    for _ in range(3):
        token = int(logits[token].argmax())
        expected.append(token)
    assert drafted(draft) == [expected, expected[:1]]
    assert draft.probs is None


def test_tokens_are_drawn_from_the_very_probs_that_are_returned(generator):
    logits = table(generator)
    sampling = [WARM, FILTERED]
    draft = chain(logits, [4, 4], sampling, starts=[7, 9])
    coins = Coins([0, 1], [7, 9]).uniform(Purpose.DRAFT, 4)
    for b in range(2):
        token = 0
        for i in range(4):
            law = probabilities(logits[token], sampling[b])
            assert torch.equal(draft.probs[b, i], law)
            token = int(draw(law, coins[b, i]))
            assert token == int(draft.token_ids[b, i])


def test_confidence_is_the_plain_probability_in_greedy_and_sampled_rows(generator):
    logits = table(generator)
    draft = chain(logits, [1, 1, 0], [GREEDY, FILTERED, WARM])
    plain = logits[0].double().softmax(-1)
    for b in range(2):
        expected = float(plain[draft.token_ids[b, 0]])
        assert float(draft.confidence[b, 0]) == pytest.approx(expected, rel=1e-5)
    assert float(draft.confidence[2, 0]) == 0


def test_the_plain_law_is_handed_out_when_asked_for(generator):
    """Before temperature and filters, in greedy and sampled rows; it changes nothing else."""
    logits = table(generator)
    sampling = [GREEDY, FILTERED]
    draft = chain(logits, [3, 2], sampling, wants_logprobs=True)
    plain = chain(logits, [3, 2], sampling)
    assert plain.logprobs is None
    assert drafted(draft) == drafted(plain)
    for b, tokens in enumerate(drafted(draft)):
        for i, last in enumerate([0, *tokens[:-1]]):
            assert torch.equal(draft.logprobs[b, i], logits[last].log_softmax(-1))


def test_padding_is_token_0_with_certainty(generator):
    draft = chain(table(generator), [3, 1], [WARM, WARM])
    assert draft.token_ids[1, 1:].tolist() == [0, 0]
    assert draft.probs[1, 1:].tolist() == [[1.0] + [0.0] * 15] * 2


def test_the_law_holds_over_many_draws(generator):
    logits, rows = table(generator), 20_000
    draft = chain(logits, [1] * rows, [WARM] * rows)
    law = probabilities(logits[0], WARM).double()
    counts = torch.bincount(draft.token_ids[:, 0], minlength=16).double()
    bound = 5 * (rows * law * (1 - law)).sqrt() + 1
    assert ((counts - rows * law).abs() <= bound).all()
    wrong = probabilities(logits[0], Sampling(temperature=1.0)).double()
    assert ((counts - rows * wrong).abs() > bound).any(), "another law would show"


def test_each_row_has_the_law_of_its_own_settings(generator):
    logits = torch.randn(5, 16, generator=generator)
    sampling = [WARM, GREEDY, FILTERED, WARM, GREEDY]
    laws = row_laws(logits, sampling)
    for b in range(5):
        assert torch.equal(laws[b], probabilities(logits[b], sampling[b]))


@pytest.mark.parametrize(("ours", "theirs"), [(16, 12), (12, 16), (16, 16)])
def test_only_tokens_both_know_get_a_probability(ours, theirs, generator):
    model = TableModel(table(generator, theirs), unknown_ids=[10, theirs - 1])
    target = TableModel(table(generator, ours), unknown_ids=[2])
    logits = DraftVocabulary(model, target).clean(model.table[:3])
    known = set(range(min(ours, theirs))) - {2, 10, theirs - 1}
    assert logits.shape == (3, ours)
    assert logits.dtype == torch.float32
    for token in range(ours):
        if token in known:
            assert torch.equal(logits[:, token], model.table[:3, token])
        else:
            assert (logits[:, token] == -torch.inf).all()


def test_cleaning_leaves_the_models_logits_alone(generator):
    model = TableModel(table(generator), unknown_ids=[3])
    before = model.table.clone()
    DraftVocabulary(model, model).clean(model.table)
    assert torch.equal(model.table, before)


@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_nan_is_refused_with_its_place(sampling):
    logits = torch.zeros(16, 16)
    logits[:, 5] = 9.0
    logits[5] = torch.nan
    with pytest.raises(NonFiniteError, match=r"drafter toy:table.*draft token 1 of row 0"):
        chain(logits, [3], [sampling.model_copy(update={"top_k": 1})])


def test_nan_behind_a_rows_limit_is_nobodys_business():
    logits = torch.zeros(16, 16)
    logits[:, 5] = 9.0
    logits[5] = torch.nan
    assert drafted(chain(logits, [1, 0], [GREEDY, GREEDY])) == [[5], []]


def test_ragged_rows_end_where_they_would_alone():
    model = tiny_llama(3)
    rows = [[1, 2, 3, 4, 5], [6], [7, 8, 9]]
    cache = model.new_cache(3)
    prefill(model, cache, [ids[:-1] for ids in rows], 2)
    assert cache.lengths == [4, 0, 2]
    last = run_ragged(model, cache, [[5], [6], [9]])
    assert cache.lengths == [4, 0, 2], "run_ragged commits nothing"
    for b, ids in enumerate(rows):
        alone = model.hidden_states(torch.tensor([ids]), model.new_cache(1)).last[0, -1]
        assert torch.allclose(last[b], alone, atol=1e-5)


def test_ids_beyond_a_narrower_table_do_not_reach_it():
    model = cycle_model(16)
    assert run_ragged(model, model.new_cache(1), [[3, 40]]).tolist() == [[15.0]]
