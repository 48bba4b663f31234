import torch

from lenity.training.validate import together, walk, walk_all

T, F = True, False


def test_a_walk_counts_the_rounds_of_strict_decoding():
    # 8 tokens: an anchor, then 7 to make. Base 0 accepts 2, base 3 none, base 4 all; +1 each.
    hits = torch.tensor(
        [[T, T, F], [F, F, F], [F, F, F], [F, T, T], [T, T, T], [F, F, F], [T, F, F]]
    )
    found = walk(hits, 8)
    assert (found.num_tokens, found.num_rounds) == (7, 3)
    assert found.drafted == (3, 3, 3)
    assert found.accepted == (2, 2, 1)
    assert found.tokens_per_pass == 7 / 3
    assert found.acceptance == (2 / 3, 1.0, 0.5)


def test_drafts_end_where_the_reply_ends():
    found = walk(torch.tensor([[T, T, T], [T, T, T]]), 3)
    assert (found.num_rounds, found.drafted, found.accepted) == (1, (1, 1, 0), (1, 1, 0))
    assert walk(torch.zeros(0, 3, dtype=torch.bool), 1).num_rounds == 0


def test_a_drafter_that_never_hits_makes_one_token_a_pass():
    found = walk(torch.zeros(9, 4, dtype=torch.bool), 10)
    assert found.tokens_per_pass == 1
    assert found.acceptance == (0, 0, 0, 0)


def test_walks_are_summed_by_family():
    none, all_ = torch.zeros(1, 4, 2, dtype=torch.bool), torch.ones(1, 4, 2, dtype=torch.bool)
    found = walk_all([(none, [5], ["code"]), (all_, [5], ["chat"])])
    assert list(found) == ["all", "chat", "code"]
    assert found["code"].num_rounds == 4
    assert found["chat"].num_rounds == 2
    assert found["all"] == together([found["chat"], found["code"]])
    assert walk_all([]) == {}
