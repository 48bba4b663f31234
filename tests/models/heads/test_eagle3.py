import pytest
import torch

from lenity.models.cache import SlotCache
from lenity.models.heads.checkpoint import open_checkpoint
from lenity.models.heads.eagle3 import Eagle3Head
from lenity.models.heads.eagle3_config import read_config
from lenity.models.heads.vocab_map import borrow_embedding
from tests.models.heads.golden import ATOL, Golden, golden, largest_difference
from tests.models.heads.tiny import SHAPE, eagle3_folder, eagle3_tensors, write

CHAINS = ["eagle3-safeai-a", "eagle3-speculators-a", "eagle3-deepspec-a"]
CASES = [*CHAINS, "peagle-a"]
prompts = pytest.mark.parametrize("prompt", [0, 1])


class Reading:
    """A golden head, and its forward over committed pairs without an engine."""

    def __init__(self, case: Golden) -> None:
        self.case, checkpoint = case, open_checkpoint(case.drafter)
        target = case.target
        self.config = read_config(
            checkpoint,
            num_target_layers=target.num_layers,
            target_hidden_size=target.hidden_size,
        )
        self.head = Eagle3Head.load(
            checkpoint, self.config, dtype=torch.float32, device=torch.device("cpu")
        )
        self.borrowed = None
        if not self.config.has_embedding:
            size = self.config.shape.hidden_size
            self.borrowed = borrow_embedding(self.head.name, size, target)

    def embed(self, ids):
        return self.head.embed(torch.tensor([ids]), self.borrowed)

    def committed(self, ids):
        """Write the pairs of ``ids`` in one forward; return cache and states."""
        cache = SlotCache(self.config.shape.num_layers, 1)
        hidden = self.head.fuse(self.case.features(ids))[None, :-1]
        states = self.head(hidden, self.embed(ids[1:]), cache)
        return cache, states

    def chain(self, ids, draft):
        """Return the states and logits of one round that drafts ``draft``."""
        cache, states = self.committed(ids)
        cache.commit([len(ids) - 1])
        found = [states[:, -1:]]
        for i, token in enumerate(draft[:-1]):
            found.append(self.head(found[-1], self.embed([token]), cache, offset=i))
        states = torch.cat(found, dim=1)
        return states[0], self.head.logits(states)[0]

    def parallel(self, ids, draft):
        """The same for P-EAGLE: slots stand behind the last pair."""
        count = len(draft) - 1
        hidden = self.head.fuse(self.case.features(ids))[None, :-1]
        slots = self.head.slot_state().expand(1, count, -1)
        tokens = [*ids[1:], *[self.config.mask_token_id] * count]
        cache = SlotCache(self.config.shape.num_layers, 1)
        states = self.head(torch.cat([hidden, slots], 1), self.embed(tokens), cache)[
            :, -count - 1 :
        ]
        return states[0], self.head.logits(states)[0]

    def round(self, ids, draft):
        return (self.parallel if self.config.is_parallel else self.chain)(ids, draft)


READINGS = {name: Reading(golden(name)) for name in [*CASES, "eagle3-tree-a"]}
every_case = pytest.mark.parametrize("name", CASES)


@every_case
def test_the_taps_are_found(name):
    assert READINGS[name].config.taps == golden(name).taps


@pytest.mark.parametrize("name", READINGS)
@prompts
def test_the_prompt_gives_the_references_states(name, prompt):
    reading, case = READINGS[name], golden(name)
    ids = case.array(prompt, "prompt").tolist()
    features = case.features(ids)
    assert largest_difference(features, case.array(prompt, "taps")) < ATOL
    fused = reading.head.fuse(features)
    assert largest_difference(fused, case.array(prompt, "fused")) < ATOL
    _, states = reading.committed([*ids, case.rounds(prompt)[0]["anchor"]])
    assert largest_difference(states[0], case.array(prompt, "prefill_hidden")) < ATOL


@every_case
@prompts
def test_every_round_gives_the_references_states_logits_and_draft(name, prompt):
    reading, case = READINGS[name], golden(name)
    ids = case.committed(prompt)
    for r, turn in enumerate(case.rounds(prompt)):
        states, logits = reading.round(ids[: turn["start"] + 1], turn["draft"])
        assert largest_difference(states, case.array(prompt, "hidden")[r]) < ATOL
        assert largest_difference(logits, case.array(prompt, "logits")[r]) < ATOL
        rows = logits.argmax(-1)
        kept = reading.head.kept_ids
        assert (rows if kept is None else kept[rows]).tolist() == turn["draft"]


@prompts
def test_the_root_of_a_dynamic_tree_is_the_first_draft_token_of_a_chain(prompt):
    # Growing the tree is another piece of work; its first level is what a chain begins with.
    reading, case = READINGS["eagle3-tree-a"], golden("eagle3-tree-a")
    turn = case.rounds(prompt)[0]
    ids = [*case.array(prompt, "prompt").tolist(), turn["anchor"]]
    _, logits = reading.round(ids[: turn["start"] + 1], [0])
    assert largest_difference(logits[0], case.array(prompt, "root_logits")) < ATOL
    level = reading.head.kept_ids[logits[0].topk(case.about["tree"]["top_k"]).indices]
    assert {(int(token),) for token in level} >= {
        tuple(path) for path in turn["paths"] if len(path) == 1
    }


# ------------------------------------------------------------------ what no golden case has: 3.1


SIZE, VOCAB = 24, 40


def load(folder, **options):
    checkpoint = open_checkpoint(folder)
    config = read_config(checkpoint, num_target_layers=6, target_hidden_size=SIZE, **options)
    return Eagle3Head.load(checkpoint, config, dtype=torch.float32, device=torch.device("cpu"))


def run(head, hidden, ids, cache=None, offset=0):
    cache = cache or SlotCache(head.config.shape.num_layers, 1)
    return head(hidden, head.embed(torch.tensor([ids])), cache, offset=offset)


def test_fc_norm_norms_each_tap_by_itself(tmp_path, generator):
    norms = {f"fc_norm.{i}.weight": torch.randn(SIZE, generator=generator) for i in range(3)}
    tensors = eagle3_tensors(SHAPE, target_size=SIZE, vocab_size=VOCAB) | norms
    head = load(write(tmp_path, {**SHAPE, "fc_norm": True}, tensors))
    features = torch.randn(5, 3 * SIZE, generator=generator)
    expected = []
    for row in features.double():
        taps = [row[i * SIZE : (i + 1) * SIZE] for i in range(3)]
        normed = [
            tap / (sum(x * x for x in tap) / SIZE + SHAPE["rms_norm_eps"]) ** 0.5 * weight
            for tap, weight in zip(taps, norms.values(), strict=True)
        ]
        expected.append(tensors["fc.weight"].double() @ torch.cat(normed))
    assert largest_difference(head.fuse(features), torch.stack(expected)) < 1e-5


def test_norm_output_feeds_the_normed_state_back(tmp_path, generator):
    folder = eagle3_folder(tmp_path, target_size=SIZE, vocab_size=VOCAB)
    plain, normed = load(folder), load(folder, norm_output=True)
    hidden = torch.randn(1, 3, SHAPE["hidden_size"], generator=generator)
    before = run(plain, hidden, [4, 5, 6])
    after = run(normed, hidden, [4, 5, 6])
    assert torch.allclose(after, plain.norm(before), atol=1e-6)
    assert torch.allclose(plain.logits(before), normed.logits(after), atol=1e-5)


def test_keys_of_a_whole_model_are_found(tmp_path, generator):
    options = {"target_size": SIZE, "vocab_size": VOCAB, "draft_vocab_size": 20}
    tensors = eagle3_tensors(SHAPE, **options)
    plain = load(write(tmp_path / "a", SHAPE, tensors))
    renamed = {k if k == "lm_head.weight" else f"model.{k}": v for k, v in tensors.items()}
    head = load(write(tmp_path / "b", SHAPE, renamed))
    hidden = torch.randn(1, 3, SHAPE["hidden_size"], generator=generator)
    assert torch.equal(run(head, hidden, [1, 2, 3]), run(plain, hidden, [1, 2, 3]))
    assert torch.equal(head.kept_ids, plain.kept_ids)
