import pytest
import torch

from lenity.drafters.base import DraftContext
from lenity.drafters.block import HeadVocabulary, cap, cut, read_taps, write_taps
from lenity.errors import ModelMismatchError
from lenity.sampling import Coins, Sampling
from lenity.types import Draft
from tests.drafters.rig import drafted, tiny_llama

TARGET = tiny_llama(0, layers=1, words=120)  # 128 rows, 8 of them padding
NONE = -float("inf")


def test_a_whole_head_is_the_target_without_padding():
    vocabulary = HeadVocabulary("head", 128, TARGET)
    logits = torch.arange(2 * 128, dtype=torch.float64).reshape(2, 128)
    clean = vocabulary.clean(logits)
    assert clean.dtype == torch.float32
    assert torch.equal(clean[:, :120], logits[:, :120].float())
    assert (clean[:, 120:] == NONE).all()


def test_a_head_may_leave_padding_out():
    clean = HeadVocabulary("head", 122, TARGET).clean(torch.zeros(3, 122))
    assert clean.shape == (3, 128)
    assert (clean[:, :120] == 0).all()
    assert (clean[:, 120:] == NONE).all()


@pytest.mark.parametrize("width", [119, 129])
def test_a_foreign_head_is_refused(width):
    with pytest.raises(ModelMismatchError, match=rf"128.*{width}"):
        HeadVocabulary("head", width, TARGET)


def test_a_reduced_head_stands_for_the_ids_it_kept():
    kept = torch.tensor([7, 3, 119, 121])  # 121 is padding
    vocabulary = HeadVocabulary("head", 4, TARGET, kept)
    clean = vocabulary.clean(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    assert clean[0, [7, 3, 119]].tolist() == [1, 2, 3]
    assert (clean == NONE).sum() == 125
    assert vocabulary.clamp(torch.tensor([500])).tolist() == [127]


@pytest.mark.parametrize("kept", [[0, 1, 128], [0, 1, -1], [0, 1, 1], [0, 1]])
def test_a_map_that_is_none_is_refused(kept):
    with pytest.raises(ModelMismatchError, match="d2t"):
        HeadVocabulary("head", 3, TARGET, torch.tensor(kept))


def test_a_cap_is_one_more_limit():
    context = DraftContext(
        token_ids=[[1], [2]], limits=[4, 1], sampling=[Sampling()] * 2, coins=Coins([0, 1], [1, 1])
    )
    assert cap(context, [2, 3]).limits == [2, 1]
    assert cap(context, [2, 3]).coins is context.coins


def test_what_is_cut_off_is_padding():
    probs = torch.rand(2, 3, 4).softmax(-1)
    draft = Draft(
        token_ids=torch.tensor([[3, 1, 2], [2, 3, 1]]),
        lengths=torch.tensor([3, 1]),
        probs=probs,
        confidence=torch.full((2, 3), 0.5),
        logprobs=probs.log(),
    )
    short = cut(draft, torch.tensor([2, 3]))
    assert drafted(short) == [[3, 1], [2]]
    assert short.token_ids.tolist() == [[3, 1], [2, 0]]
    assert short.confidence.tolist() == [[0.5, 0.5], [0.5, 0.0]]
    assert torch.equal(short.probs[0], probs[0, :2])
    assert torch.equal(short.logprobs, probs[:, :2].log())
    assert short.probs[1, 1].tolist() == [1, 0, 0, 0]
    assert drafted(draft) == [[3, 1, 2], [2]], "the draft itself is left alone"
    assert probs[1, 1, 0] < 1


def test_a_draft_may_be_cut_to_nothing():
    draft = Draft(token_ids=torch.ones(2, 3, dtype=torch.int64), lengths=torch.tensor([3, 2]))
    none = cut(draft, torch.zeros(2, dtype=torch.int64))
    assert none.token_ids.shape == (2, 0)
    assert none.lengths.tolist() == [0, 0]


@pytest.mark.parametrize(("written", "read"), [("1+9", ["1", "9"]), (4, (4,)), (None, None)])
def test_taps_are_spelled_with_plus(written, read):
    found = read_taps(written)
    assert found is None or list(found) == list(read)


def test_taps_are_written_as_they_are_read():
    assert write_taps((-1, 3)) == "-1+3"
    assert write_taps(None) is None
