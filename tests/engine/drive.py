"""The real loop, looked into after every round; and drafters and models only these tests need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from lenity.drafters.base import DraftContext, Drafter
from lenity.engine.batch import Batch
from lenity.engine.decode import Decoder
from lenity.engine.prepare import as_requests
from lenity.ledger import to_units
from lenity.models.base import HiddenStates, KVCache, LanguageModel
from lenity.requests import GenerationSettings
from lenity.sampling import Purpose, draw
from lenity.sequences import Commit
from lenity.sequences import Sequence as Row
from lenity.types import Draft, FinishReason, Generation, StageSeconds, TokenKind
from tests.toys import Script, ScriptedSession, TableModel

DRAFTED = (TokenKind.ACCEPTED, TokenKind.RELAXED)


def generate(decoder: Decoder, prompts: Any, **settings: Any) -> Any:
    """Return what ``decoder.generate`` does, with every invariant asserted after every round."""
    requests, is_single = as_requests(prompts)
    rows = decoder._sequences(requests, GenerationSettings.of(None, settings))
    rounds = decoder._rounds(rows, {})
    for alive in rounds:
        batch = rounds.gi_frame.f_locals["batch"]
        assert [row.name for row in alive] == [row.name for row in batch.rows]
        assert len(alive) <= decoder.max_batch_size
        check_round(batch)
    generations = [decoder._generation(row) for row in rows]
    for row, generation in zip(rows, generations, strict=True):
        check_generation(row, generation)
    return generations[0] if is_single else generations


def check_round(batch: Batch) -> None:
    batch.check_invariants()
    for index, row in enumerate(batch.rows):
        assert batch.cache.committed[index] == row.token_ids[:-1]
        units = sum(commit.record.regret_units for commit in row.commits)
        assert batch.ledger.spent(index) == units == sum(map(units_of, row.commits))
        assert row.commits[-1].record.batch_size == len(batch)
        check_commit(row, row.commits[-1])


def units_of(commit: Commit) -> int:
    """Return what the receipts of a round say it cost."""
    regrets = torch.tensor([t.regret for t in commit.receipts], dtype=torch.float64)
    return int(to_units(regrets).sum())


def check_commit(row: Row, commit: Commit) -> None:
    record, kinds = commit.record, [t.kind for t in commit.receipts]
    room_before = row.room + record.emitted
    assert record.drafted <= max(0, min(row.settings.gamma, room_before - 1))
    assert record.emitted == len(kinds) > 0
    assert record.emitted in (record.accepted, record.accepted + 1)
    assert all(kind in DRAFTED for kind in kinds[: record.accepted])
    assert record.relaxed == kinds.count(TokenKind.RELAXED)
    if record.emitted == record.accepted:
        assert commit.finish_reason is FinishReason.STOP  # nothing else ends inside a draft
    elif record.drafted == 0:
        assert kinds == [TokenKind.PLAIN]
    else:
        is_full = record.accepted == record.evaluated
        assert kinds[-1] is (TokenKind.BONUS if is_full else TokenKind.RECOVERED)
    for receipt in commit.receipts:
        is_relaxed = receipt.kind is TokenKind.RELAXED
        assert (receipt.choice_id is not None) is (receipt.rank is not None) is is_relaxed
        assert receipt.choice_id != receipt.token_id
        assert receipt.regret == 0 if not is_relaxed else receipt.rank > 0
        assert receipt.logprob <= 1e-6


def check_generation(row: Row, generation: Generation) -> None:
    ids = [t.token_id for t in generation.receipt]
    assert row.is_finished
    assert row.token_ids == [*generation.prompt_ids, *generation.token_ids]
    assert list(generation.token_ids) == ids
    assert sum(r.emitted for r in generation.rounds) == len(ids) <= row.settings.max_new_tokens
    assert generation.finish_reason is not FinishReason.INTERRUPTED


def essence(generation: Generation) -> dict[str, Any]:
    """Return all that may not depend on batch-mates: no times, no batch sizes, no name of a row."""
    rounds = [replace(r, seconds=StageSeconds(), batch_size=1) for r in generation.rounds]
    return {
        "token_ids": generation.token_ids,
        "text": generation.text,
        "finish_reason": generation.finish_reason,
        "stop_match": generation.stop_match,
        "receipt": generation.receipt,
        "rounds": rounds,
        "processor_states": generation.processor_states,
    }


def table_script(choices: Sequence[int], lengths: Sequence[int]) -> Script:
    """Return the script that drafts ``choices[last]``, up to ``lengths[last]`` tokens (0 too).

    A function of the last token alone, so that it cannot tell a batch from a single request.
    """

    def script(ids: Sequence[int], limit: int) -> list[int]:
        out, last = [], ids[-1]
        for _ in range(min(limit, lengths[last])):
            last = choices[last]
            out.append(last)
        return out

    return script


class TapeModel(TableModel):
    """Says what is on the tape, whatever was drafted: the token behind position i is tape[i]."""

    def __init__(self, tape: Sequence[int], vocab_size: int, **kwargs: Any) -> None:
        table = torch.zeros(len(tape), vocab_size)
        for position, token_id in enumerate(tape):
            table[position, token_id] = 10.0
            table[position, (token_id + 1) % vocab_size] = 9.5
        super().__init__(table, **kwargs)
        self.tape = list(tape)

    def hidden_states(
        self,
        token_ids: Tensor,
        cache: KVCache,
        *,
        offset: int = 0,
        taps: tuple[int, ...] = (),
        layers: tuple[int, ...] | None = None,
    ) -> HiddenStates:
        super().hidden_states(token_ids, cache, offset=offset)
        starts = torch.tensor(cache.lengths)[:, None] + offset
        positions = starts + torch.arange(token_ids.shape[1])
        return HiddenStates(last=positions.clamp_max(len(self.tape) - 1).unsqueeze(-1).float())

    def script(self, *right: int) -> Script:
        """Draft the tape, wrong at every index of it that is in ``right``'s complement mod 7."""

        def script(ids: Sequence[int], limit: int) -> list[int]:
            start = len(ids) - 1
            return [
                token if not right or at % 7 in right else (token + 1) % self.vocab_size
                for at, token in enumerate(self.tape[start : start + limit], start)
            ]

        return script


@dataclass
class DrawingSession(ScriptedSession):
    """Draws each draft token from the drafter's own law, and reports a law."""

    script: Any = None
    own: Tensor | None = None
    reported: Tensor | None = None

    def propose(self, context: DraftContext) -> Draft:
        last = torch.tensor([ids[-1] for ids in context.token_ids])
        coins = context.coins.uniform(Purpose.DRAFT, context.gamma)
        tokens, probs = [], []
        for i in range(context.gamma):
            probs.append(self.reported[last])
            last = draw(self.own[last], coins[:, i])
            tokens.append(last)
        return Draft(
            token_ids=torch.stack(tokens, dim=1),
            lengths=torch.tensor(list(context.limits)),
            probs=torch.stack(probs, dim=1),
        )


class DrawingDrafter(Drafter):
    """Knows laws ``own`` (V, V) and draws from them; an honest one reports the same."""

    idea: ClassVar[str] = "drawn"
    paper: ClassVar[str] = "none"

    type: Literal["drawing"] = "drawing"
    own: Tensor
    reported: Tensor

    def open(self, target: LanguageModel, cache: KVCache) -> DrawingSession:
        return DrawingSession(own=self.own, reported=self.reported)
