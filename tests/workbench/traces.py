"""Traces: of toy models that really ran, and written by hand."""

import torch

from lenity.drafters.autoregressive import Autoregressive
from lenity.engine.decode import Decoder
from lenity.engine.tracing import Tracer
from lenity.models.base import HiddenStates
from lenity.workbench.trace import RequestTrace, TracedRound
from tests.toys import ScriptedDrafter, TableModel

NAMES = {"arm": "strict", "task": "toy@1"}


def run(decoder, prompts, *, divergence=False, **settings):
    """The generations of a run and the traces of its requests."""
    tracer = Tracer(divergence=divergence)
    outs = decoder.generate(prompts, observer=tracer, **settings)
    rounds = tracer.take()
    temperature = settings.get("temperature", 0.0)
    traces = [
        RequestTrace.of(out, rounds.get(i, ()), item_id=str(i), temperature=temperature, **NAMES)
        for i, out in enumerate(outs)
    ]
    return outs, traces


def tables(seed=1, size=12, noise=1.0):
    """A target and a drafter that is the target with noise."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randn(size, size, generator=generator) * 2 + 8
    return target, target + noise * torch.randn(size, size, generator=generator)


def tiny(policy="strict", *, seed=1, noise=1.0, skip=None, **model):
    """A decoder of two tables."""
    target, draft = tables(seed, noise=noise)
    drafter = Autoregressive(model=TableModel(draft, name="toy:draft"))
    return Decoder(target=TableModel(target, **model), drafter=drafter, policy=policy, skip=skip)


class Tape(TableModel):
    """A text that is what it is whatever was decided before: first order is then exact.

    Behind position t the choice is 2 (t mod 4), and the runner-up, one id higher, costs
    ``regret[t]`` nats. The drafter says the one or the other.
    """

    def __init__(self, regret, is_mismatch):
        table = torch.full((len(regret), 8), -50.0)
        for t, nats in enumerate(regret):
            table[t, 2 * (t % 4)], table[t, 2 * (t % 4) + 1] = 16.0, 16.0 - nats
        super().__init__(table)
        self.is_mismatch = list(is_mismatch)

    def hidden_states(self, token_ids, cache, *, offset=0, taps=(), layers=None):
        super().hidden_states(token_ids, cache, offset=offset)
        places = torch.tensor(cache.lengths)[:, None] + offset + torch.arange(token_ids.shape[1])
        return HiddenStates(last=places.clamp_max(len(self.table) - 1)[..., None].float())

    def draft(self, ids, limit):
        """The choices behind the last token, or the runners-up where the drafter errs."""
        at = len(ids) - 1
        ahead = enumerate(self.is_mismatch[at : at + limit], at)
        return [2 * (t % 4) + is_wrong for t, is_wrong in ahead]

    def decoder(self, policy):
        drafter = ScriptedDrafter(script=self.draft)
        return Decoder(target=self, drafter=drafter, policy=policy, max_batch_size=64)


def by_hand(*rounds, **changes):
    """A strict trace of rounds of ((regret or None for a match) per draft token, emitted)."""
    at, out = 3, []
    for regrets, emitted in rounds:
        size = len(regrets)
        is_cut = emitted <= size and all(r is None for r in regrets[:emitted])
        out.append(
            TracedRound(
                start=at,
                draft_ids=tuple(5 if r is not None else 3 for r in regrets),
                top_ids=(3,) * (size + 1),
                top_logit=(16.0,) * (size + 1),
                draft_logit=tuple(16.0 - (r or 0.0) for r in regrets),
                regret=tuple(r or 0.0 for r in regrets),
                ending=(emitted - 1,) if is_cut else (),
                accepted=emitted if is_cut else emitted - 1,
                emitted=emitted,
            )
        )
        at += emitted
    base = {"item_id": "1", "policy": "strict", "drafter": "toy", "gamma": 5, "prompt_length": 3}
    return RequestTrace(**{**NAMES, **base, "rounds": tuple(out), **changes})
