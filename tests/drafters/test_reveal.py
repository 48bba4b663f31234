import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lenity.drafters.reveal import Look, Reveal, choose, look, num_to_reveal

MASK = 9


def counts(schedule, gamma, steps):
    left, out = gamma, []
    for step in range(steps):
        out.append(num_to_reveal(schedule, left, step, steps))
        left -= out[-1]
    assert left == 0
    return out


@pytest.mark.parametrize(
    ("gamma", "rows"),
    [
        (8, ["8", "3,5", "2,2,4", "1,2,2,3"]),
        (16, ["16", "7,9", "5,5,6", "3,4,4,5"]),
        (32, ["32", "15,17", "10,10,12", "7,8,8,9"]),
    ],
)
def test_dream_counts(gamma, rows):
    for steps, expected in enumerate(rows, start=1):
        assert counts("dream", gamma, steps) == [int(n) for n in expected.split(",")]


def test_dream_counts_are_those_of_its_times():
    for gamma in range(1, 40):
        for steps in range(1, 7):
            times = torch.linspace(1, 1e-3, steps + 1, dtype=torch.float64).tolist()
            left, expected = gamma, []
            for i in range(steps):
                last = i == steps - 1
                count = left if last else int(left * (1 - times[i + 1] / times[i]))
                expected.append(count)
                left -= count
            assert counts("dream", gamma, steps) == expected


def test_half_rounds_up_and_the_last_pass_takes_the_rest():
    assert counts("half", 8, 2) == [4, 4]
    assert counts("half", 7, 3) == [4, 2, 1]
    assert counts("half", 1, 3) == [1, 0, 0]
    assert counts("threshold", 5, 3) == [1, 1, 3]


def laws(rows) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64).log().float()


def test_a_look_measures_every_position():
    seen = look(laws([[[0.5, 0.25, 0.125, 0.0625, 0.03125, 0.03125], [0, 0, 0.5, 0.5, 0, 0]]]))
    assert seen.token_ids.tolist() == [[0, 2]], "of equal tokens the lower id"
    expected = {
        "probability": [0.5, 0.5],
        "margin": [0.25, 0.0],
        "entropy": [1.9375 * 0.6931472, 0.6931472],
        "top5_mass": [0.96875, 1.0],
    }
    for name, values in expected.items():
        torch.testing.assert_close(getattr(seen, name), torch.tensor([values]), msg=name)


def sure(*probability: float, entropy=None, margin=None) -> Look:
    number = torch.tensor([probability])
    return Look(
        token_ids=torch.arange(len(probability))[None],
        probability=number,
        margin=number if margin is None else torch.tensor([margin]),
        entropy=1 - number if entropy is None else torch.tensor([entropy]),
        top5_mass=number,
    )


def chosen(seen, count, kind="probability", least=None, masked=None):
    is_masked = torch.ones_like(seen.probability, dtype=torch.bool)
    if masked is not None:
        is_masked = torch.tensor([masked])
    picked, ranks = choose(seen, is_masked, torch.tensor([count]), kind, least)
    return picked[0].tolist(), ranks[0].tolist()


def test_the_surest_go_first_and_of_equals_the_earlier():
    picked, ranks = chosen(sure(0.2, 0.7, 0.7, 0.9), 2)
    assert picked == [False, True, False, True]
    assert ranks == [3, 1, 2, 0]
    assert chosen(sure(0.5, 0.5, 0.5), 2)[0] == [True, True, False]


def test_each_confidence_has_its_own_order():
    seen = sure(0.6, 0.5, 0.4, margin=[0.1, 0.3, 0.2], entropy=[2.0, 1.5, 1.0])
    assert chosen(seen, 1, "probability")[0] == [True, False, False]
    assert chosen(seen, 1, "margin")[0] == [False, True, False]
    assert chosen(seen, 1, "entropy")[0] == [False, False, True]


def test_only_masks_are_chosen():
    assert chosen(sure(0.9, 0.5, 0.4), 1, masked=[False, True, True])[0] == [False, True, False]
    assert chosen(sure(0.9, 0.5), 2, masked=[False, False])[0] == [False, False]


def test_the_threshold_takes_all_that_are_likely_enough_and_one_in_any_case():
    picked, ranks = chosen(sure(0.95, 0.5, 0.9, 0.85), 1, least=0.9)
    assert picked == [True, False, True, False]
    assert (ranks[0], ranks[2]) == (0, 1)
    assert chosen(sure(0.5, 0.6), 1, least=0.9)[0] == [False, True]
    seen = sure(0.95, 0.5, entropy=[2.0, 1.0])
    picked, ranks = chosen(seen, 1, "entropy", least=0.9)
    assert picked == [True, True], "the least unsure, and the likely one"
    assert ranks == [1, 0]


def table(rows: dict[int, list[list[float]]]):
    """Return a predictor that looks laws up by how many tokens are revealed, and its calls."""
    calls = []

    def predict(block, is_masked):
        calls.append(block.tolist())
        law = laws([rows[int((~is_masked[0]).sum())]])
        return law[..., :2].nan_to_num(neginf=0.0), law

    return predict, calls


LAWS = {
    0: [[0.6, 0.4, 0, 0], [0.1, 0.9, 0, 0], [0.3, 0.3, 0.4, 0]],
    1: [[0.2, 0.8, 0, 0], [0.5, 0.5, 0, 0], [0.0, 0.0, 0.3, 0.7]],
}


def test_a_reveal_by_hand():
    predict, calls = table(LAWS)
    reveal = Reveal(schedule="dream", confidence="probability", steps=2)
    made = reveal.run(predict, torch.ones(1, 3, dtype=torch.bool), MASK, wants_logprobs=True)
    assert calls == [[[9, 9, 9]], [[9, 1, 9]]]  # 1, then 2
    assert made.token_ids.tolist() == [[1, 1, 3]]
    record = made.record
    assert record.reveal_step.tolist() == [[1, 0, 1]]
    assert record.reveal_rank.tolist() == [[1, 0, 2]]
    assert record.num_together.tolist() == [[2, 1, 2]]
    assert record.is_late.tolist() == [[True, False, True]]
    torch.testing.assert_close(record.probability, torch.tensor([[0.8, 0.9, 0.7]]))
    torch.testing.assert_close(record.margin, torch.tensor([[0.6, 0.8, 0.4]]))
    torch.testing.assert_close(record.first_probability, torch.tensor([[0.6, 0.9, 0.4]]))
    entropies = torch.distributions.Categorical(logits=laws(LAWS[0])).entropy()
    torch.testing.assert_close(record.first_entropy[0], entropies)
    at_reveal = laws([[LAWS[1][0], LAWS[0][1], LAWS[1][2]]])
    torch.testing.assert_close(made.logprobs, at_reveal)
    torch.testing.assert_close(record.hidden, at_reveal[..., :2].nan_to_num(neginf=0.0))
    torch.testing.assert_close(record.top5_mass, torch.ones(1, 3))


def test_laws_are_kept_only_when_asked_for():
    predict, _ = table(LAWS)
    assert Reveal(steps=1).run(predict, torch.ones(1, 3, dtype=torch.bool), MASK).logprobs is None


def drawn(seed: int, rows: int, gamma: int):
    """Return a predictor with laws that depend on the block, row by row."""

    def predict(block, is_masked):
        out = []
        for ids in block.tolist():
            draw = torch.Generator().manual_seed(hash((seed, tuple(ids[:gamma]))) % 2**31)
            out.append(torch.randn(block.shape[1], 8, generator=draw) * 2)
        logits = torch.stack(out).index_fill(-1, torch.tensor([7]), -torch.inf)
        return logits[..., :3], logits

    return predict


@given(
    seed=st.integers(0, 99),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    steps=st.integers(1, 4),
    schedule=st.sampled_from(["dream", "half", "threshold"]),
    confidence=st.sampled_from(["probability", "margin", "entropy"]),
)
def test_no_mask_is_left_and_every_position_is_revealed_once(
    seed, sizes, steps, schedule, confidence
):
    gamma = max(sizes)
    is_slot = torch.arange(gamma) < torch.tensor(sizes)[:, None]
    reveal = Reveal(schedule=schedule, confidence=confidence, steps=steps, threshold=0.5)
    made = reveal.run(drawn(seed, len(sizes), gamma), is_slot, MASK)
    assert not (made.token_ids == MASK).any()
    assert not (made.token_ids == 7).any(), "a forbidden id"
    assert (made.token_ids[~is_slot] == 0).all()
    record = made.record
    for row, size in enumerate(sizes):
        assert sorted(record.reveal_rank[row, :size].tolist()) == list(range(size))
        steps_of = record.reveal_step[row, :size].tolist()
        together = record.num_together[row, :size].tolist()
        assert together == [steps_of.count(step) for step in steps_of]
        assert record.is_late[row, :size].tolist() == [s == max(steps_of) for s in steps_of]
        assert set(steps_of) == set(range(max(steps_of) + 1)), "no pass is empty"
        order = sorted(range(size), key=lambda i, row=row: record.reveal_rank[row, i])
        assert [steps_of[i] for i in order] == sorted(steps_of)
        for name in ("probability", "entropy", "margin", "top5_mass", "hidden"):
            assert not getattr(record, name)[row, size:].any()


def test_passes_of_a_row_do_not_depend_on_its_neighbours():
    predict = drawn(3, 2, 1)
    alone = Reveal(steps=2).run(predict, torch.tensor([[True]]), MASK)
    together = Reveal(steps=2).run(predict, torch.tensor([[True, False], [True, True]]), MASK)
    assert alone.record.reveal_step.tolist() == [[0]]
    assert together.record.reveal_step[0].tolist() == [0, 0]
    assert alone.record.is_late[0, 0]
    assert together.record.is_late[0].tolist() == [True, False]
