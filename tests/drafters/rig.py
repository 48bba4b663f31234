"""A round without an engine: what a draft session is driven by in these tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from lenity.drafters.base import DraftContext, Drafter
from lenity.models.base import LanguageModel
from lenity.models.causal import CausalLM
from lenity.models.tokenizers import Fingerprint
from lenity.sampling import Coins, Sampling, greedy
from lenity.types import Draft

GREEDY = Sampling()


class Words:
    """A tokenizer that knows ``size`` words, some of them renamed."""

    special_ids = frozenset({0})

    def __init__(self, size: int, **renamed: str) -> None:
        self.vocabulary = {i: renamed.get(f"w{i}", f"w{i}") for i in range(size)}

    def encode(self, text: str) -> list[int]:
        return [int(word[1:]) for word in text.split()]

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return self.encode(messages[-1]["content"])

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        return " ".join(self.vocabulary[i] for i in token_ids)

    def fingerprint(self) -> Fingerprint:
        return Fingerprint(tokens=self.vocabulary, special_ids=self.special_ids, merges_hash="none")


def tiny_llama(
    seed: int,
    *,
    layers: int = 3,
    vocab_size: int = 128,
    words: int | None = None,
    max_positions: int = 256,
    name: str = "tiny:llama",
) -> CausalLM:
    """Return a random Llama, fp32, whose choices are clear enough not to be ties."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_positions,
        initializer_range=0.2,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = LlamaForCausalLM(config)
    return CausalLM(module, None if words is None else Words(words), name=name)


class Rig:
    """Prefill, propose, verify greedily, commit: rows may enter, leave and be told what passes."""

    def __init__(self, target: LanguageModel, drafter: Drafter) -> None:
        self.target, self.cache = target, target.new_cache()
        self.session = drafter.open(target, self.cache)
        self.rows: list[list[int]] = []
        self.seeds: list[int] = []

    def admit(self, prompt: Sequence[int], seed: int = 0) -> None:
        fresh, features = self.target.new_cache(1), None
        if len(prompt) > 1:
            ids = torch.tensor([list(prompt[:-1])])
            found = self.target.hidden_states(ids, fresh, taps=self.session.taps).features
            features = None if found is None else found[0]
            fresh.commit([len(prompt) - 1])
        self.cache.append(fresh)
        self.session.admit(tuple(prompt), features)
        self.rows.append(list(prompt))
        self.seeds.append(seed)

    def context(self, limits: Sequence[int], sampling: Sequence[Sampling] = ()) -> DraftContext:
        return DraftContext(
            token_ids=self.rows,
            limits=list(limits),
            sampling=list(sampling) or [GREEDY] * len(self.rows),
            coins=Coins(list(self.seeds), [len(row) for row in self.rows]),
        )

    def propose(self, limits: Sequence[int], sampling: Sequence[Sampling] = ()) -> Draft:
        return self.session.propose(self.context(limits, sampling))

    def finish(self, draft: Draft, forced: Sequence[int] | None = None) -> list[int]:
        """Verify and commit; ``forced`` are accepted lengths whatever the target thinks."""
        anchors = torch.tensor([[row[-1]] for row in self.rows])
        block = torch.cat([anchors, draft.token_ids], 1)
        out = self.target.hidden_states(block, self.cache, taps=self.session.taps)
        logits = self.target.logits(out.last).float()
        choices = greedy(logits.index_fill(-1, self.target.unknown_ids, -torch.inf)).tolist()
        accepted = []
        for b, row in enumerate(self.rows):
            drafted = draft.token_ids[b, : int(draft.lengths[b])].tolist()
            matches = [token == choice for token, choice in zip(drafted, choices[b], strict=False)]
            count = matches.index(False) if False in matches else len(matches)
            count = count if forced is None else min(forced[b], len(drafted))
            row += [*drafted[:count], choices[b][count]]
            accepted.append(count)
        self.cache.commit([count + 1 for count in accepted])
        self.session.observe(accepted, out.features)
        return accepted

    def round(self, limits: Sequence[int], forced: Sequence[int] | None = None) -> list[int]:
        return self.finish(self.propose(limits), forced)

    def keep(self, rows: Sequence[int]) -> None:
        self.cache.keep(rows)
        self.session.keep(rows)
        self.rows = [self.rows[row] for row in rows]
        self.seeds = [self.seeds[row] for row in rows]


def plainly(target: LanguageModel, prompt: Sequence[int], count: int) -> list[int]:
    """Return the target's own greedy tokens, every one from a forward without a cache."""
    ids = list(prompt)
    for _ in range(count):
        hidden = target.hidden_states(torch.tensor([ids]), target.new_cache(1)).last[:, -1]
        logits = target.logits(hidden).float().index_fill(-1, target.unknown_ids, -torch.inf)
        ids.append(int(greedy(logits)))
    return ids[len(prompt) :]


def drafted(draft: Draft) -> list[list[int]]:
    """Return the real draft tokens of each row."""
    return [
        ids[:length]
        for ids, length in zip(draft.token_ids.tolist(), draft.lengths.tolist(), strict=True)
    ]
