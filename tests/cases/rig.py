"""Real architectures, tiny and random, and drafters whose every token is known in advance.

Weights come from a local generator, wider than the usual 0.02: a narrow model initialised that way
is deaf to its context and forgives a broken cache. No model has an end-of-sequence id, so that the
work is fixed and a test names the ids that end it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
import transformers
from torch import Tensor, nn

from lenity.drafters.base import DraftContext, Drafter, DraftSession
from lenity.engine.decode import Decoder
from lenity.models.base import KVCache, LanguageModel
from lenity.models.causal import CausalLM
from lenity.types import Draft, Generation
from tests.toys import Script, ScriptedDrafter

VOCAB = 128
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "max_position_embeddings": 384,  # more than one step of the slot cache
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
GEMMA = {**SHAPE, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8}
LAYERS = ["sliding_attention", "full_attention"]

CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=VOCAB,
        n_embd=64,
        n_layer=2,
        n_head=4,
        n_positions=384,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    ),
    "qwen3": lambda: transformers.Qwen3Config(**SHAPE, head_dim=16),
    "mistral": lambda: transformers.MistralConfig(**SHAPE, sliding_window=8),
    "gemma2": lambda: transformers.Gemma2Config(**GEMMA),
    "gemma3": lambda: transformers.Gemma3TextConfig(**GEMMA, layer_types=LAYERS),
    "mixtral": lambda: transformers.MixtralConfig(
        **SHAPE, num_local_experts=4, num_experts_per_tok=2
    ),
}
"""Learned positions, rotary, a window of 8, windows and soft caps in turn, experts."""

VARIANTS = [
    ("llama", "eager"),
    ("llama", "sdpa"),
    ("gpt2", "sdpa"),
    ("qwen3", "eager"),
    ("mistral", "eager"),
    ("mistral", "sdpa"),
    ("gemma2", "eager"),
    ("gemma3", "sdpa"),
    ("mixtral", "sdpa"),
]
"""Every family; both attentions where their masks differ most. Gemma 2 has eager only."""

PROMPTS = [
    [7],
    [5, 80, 33, 101, 62],
    [90, 12, 44, 3, 71, 118, 26, 55, 9],
    [23, 64, 100, 8, 37, 90, 12, 44, 116, 52, 70, 1, 29, 84, 13, 66, 41],
]
"""Lengths 1, 5, 9 and 17, each with a first token of its own."""


def build(family: str, attn: str = "eager", *, seed: int = 0, head_scale: float = 4.0) -> nn.Module:
    """A random model in float32; ``head_scale`` sets how clear its choices are."""
    with torch.random.fork_rng(devices=[]):
        module = transformers.AutoModelForCausalLM.from_config(
            CONFIGS[family](), attn_implementation=attn
        ).eval()
    randomise(module, seed)
    with torch.no_grad():
        module.get_output_embeddings().weight.mul_(head_scale)
    return module


@torch.no_grad()
def randomise(module: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        if parameter.ndim >= 2:
            # transformers' Conv1D, in GPT-2, stands transposed; positions must be heard
            fan_in = parameter.shape[0 if ".c_" in name else -1]
            spread = 0.5 if "wpe" in name else 1.5 * fan_in**-0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread)
        elif name.endswith("bias"):
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)


def target(family: str = "llama", attn: str = "eager") -> CausalLM:
    """The shared model of a family; nothing may change it."""
    return reference(family, attn).model


@cache
def cousin(family: str = "llama", noise: float = 0.05) -> CausalLM:
    """The family's model with noisy weights: it agrees now and then."""
    module = build(family)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            spread = noise * parameter.std() if parameter.numel() > 1 else 0.0
            parameter.add_(torch.randn(parameter.shape, generator=generator) * spread)
    return CausalLM(module, name=f"tiny:{family}-cousin")


class Reference:
    """A model without a cache: the logits after any prefix, each computed once from scratch."""

    def __init__(self, model: CausalLM) -> None:
        self.model = model
        self._rows: dict[tuple[int, ...], Tensor] = {}

    @torch.no_grad()
    def row(self, ids: Sequence[int]) -> Tensor:
        """The logits after ``ids``, float32."""
        key = tuple(ids)
        if key not in self._rows:
            out = self.model.module(input_ids=torch.tensor([key]), use_cache=False)
            self._rows[key] = out.logits[0, -1].float()
        return self._rows[key]

    def rank(self, ids: Sequence[int], rank: int) -> int:
        """The token with ``rank`` larger logits before it; ties by lower id; -1 is the last."""
        return int(self.row(ids).argsort(descending=True, stable=True)[rank])

    def greedy(self, ids: Sequence[int], count: int) -> list[int]:
        """The model's own ``count`` next tokens."""
        return follow(ids, [0] * count, self)

    @torch.no_grad()
    def teacher_forced(self, ids: Sequence[int], start: int) -> Tensor:
        """The logits that chose ``ids[start:]``, from one forward over everything, float64."""
        out = self.model.module(input_ids=torch.tensor([list(ids)]), use_cache=False)
        return out.logits[0, start - 1 : -1].double()


def follow(ids: Sequence[int], ranks: Sequence[int], reference: Reference) -> list[int]:
    """The tokens of these ranks one after the other, each given the ones before."""
    ids, start = list(ids), len(ids)
    for rank in ranks:
        ids.append(reference.rank(ids, rank))
    return ids[start:]


def reference(family: str = "llama", attn: str = "eager") -> Reference:
    """The shared model's own answers."""
    return _reference(family, attn)


@cache
def _reference(family: str, attn: str) -> Reference:
    return Reference(CausalLM(build(family, attn), name=f"tiny:{family}"))


# ---------------------------------------------------------------------------- scripted drafters


def oracle(known: Reference) -> Script:
    """Replays the target's greedy tokens."""
    return lambda ids, limit: known.greedy(ids, limit)


def anti_oracle(known: Reference) -> Script:
    """Always the least likely token."""
    return lambda ids, limit: follow(ids, [-1] * limit, known)


def runner_up(known: Reference) -> Script:
    """Always the second best token: the cheapest mistake."""
    return lambda ids, limit: follow(ids, [1] * limit, known)


def empty(ids: Sequence[int], limit: int) -> list[int]:
    """Nothing, ever."""
    return []


def mistaken(known: Reference, position: int, rank: int = -1) -> Script:
    """Wrong at ``position`` only; what follows is the argmax given that very mistake."""

    def script(ids: Sequence[int], limit: int) -> list[int]:
        ranks = [rank if i == position else 0 for i in range(limit)]
        return follow(ids, ranks, known)

    return script


def pattern(known: Reference, *correct: int | None) -> Script:
    """Right for ``correct[round]`` tokens, then wrong; None drafts nothing; it cycles.

    The rows of a batch are told apart by their first token.
    """
    rounds: dict[int, int] = {}

    def script(ids: Sequence[int], limit: int) -> list[int]:
        number = rounds.get(ids[0], 0)
        rounds[ids[0]] = number + 1
        right = correct[number % len(correct)]
        if right is None:
            return []
        return follow(ids, [0 if i < right else -1 for i in range(limit)], known)

    return script


def scripted(script: Script) -> Drafter:
    return ScriptedDrafter(script=script)


SELF = "autoregressive:model=target"


# ------------------------------------------------------------------------------------- observing


class _SpySession:
    def __init__(self, inner: DraftSession, seen: list[tuple[list[list[int]], Draft]]) -> None:
        self._inner, self._seen, self.taps = inner, seen, inner.taps

    def propose(self, context: DraftContext) -> Draft:
        draft = self._inner.propose(context)
        self._seen.append(([list(ids) for ids in context.token_ids], draft))
        return draft

    def admit(self, token_ids: Sequence[int], features: Tensor | None) -> None:
        self._inner.admit(token_ids, features)

    def observe(self, accepted_lengths: Sequence[int], features: Tensor | None) -> None:
        self._inner.observe(accepted_lengths, features)

    def keep(self, rows: Sequence[int]) -> None:
        self._inner.keep(rows)


class Spy(Drafter):
    """A drafter under observation: ``seen`` gets the committed tokens and the draft of a round."""

    type: str = "spy"
    inner: Drafter
    seen: list = []  # noqa: RUF012 (pydantic copies a default for every instance)

    def open(self, target: LanguageModel, cache: KVCache) -> DraftSession:
        return _SpySession(self.inner.open(target, cache), self.seen)


@contextmanager
def watched(module: nn.Module, look: Callable[[dict], None]) -> Iterator[None]:
    """Call ``look`` with the arguments of every forward of the module's decoder on a cache."""

    def hook(module: nn.Module, args: tuple, kwargs: dict) -> None:
        if kwargs.get("use_cache"):
            look(kwargs)

    handle = module.get_decoder().register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


# --------------------------------------------------------------------------------------- running


def plain(model: LanguageModel, prompts: list, **changes: object) -> list[Generation]:
    """What the target does by itself, through the same loop, one request at a time."""
    return [Decoder(target=model).generate(prompt, **changes) for prompt in prompts]


def hf_greedy(model: CausalLM, prompt: Sequence[int], count: int, **changes: object) -> list[int]:
    """What transformers' own generate gives."""
    ids = torch.tensor([list(prompt)])
    out = model.module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        do_sample=False,
        **changes,
    )
    return out[0, len(prompt) :].tolist()


def check_accounts(result: Generation) -> None:
    """What holds of every result, however it came about."""
    assert sum(r.emitted for r in result.rounds) == len(result.token_ids) == len(result.receipt)
    assert [t.token_id for t in result.receipt] == list(result.token_ids)
    assert len(result.logprobs) == len(result.token_ids)
    place = 0
    for record in result.rounds:  # a prefix of the draft, then at most one token of the target's
        kinds = [t.kind for t in result.receipt[place : place + record.emitted]]
        assert [k in ("accepted", "relaxed") for k in kinds] == [
            i < record.accepted for i in range(record.emitted)
        ]
        assert record.emitted - record.accepted in (0, 1)
        place += record.emitted
    relaxed = [t for t in result.receipt if t.kind == "relaxed"]
    assert len(relaxed) == result.num_relaxed
    assert abs(sum(t.regret for t in relaxed) - result.regret_spent) < 1e-9


class CharTokenizer:
    """One character for every id, outside ASCII so that no id is a space or a control."""

    special_ids: frozenset[int] = frozenset()

    def encode(self, text: str) -> list[int]:
        return [ord(character) - 0x100 for character in text]

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return self.encode("".join(message["content"] for message in messages))

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        return "".join(chr(0x100 + token_id) for token_id in token_ids)
