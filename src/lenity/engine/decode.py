"""The decoder: prompts in, generations out. Plain decoding is ``gamma=0`` through the same loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lenity.drafters import Drafter, drafter
from lenity.engine.batch import Batch
from lenity.engine.divergence import check_laws
from lenity.engine.prepare import as_requests, check_skippable, make_sequence
from lenity.engine.round import run_round
from lenity.engine.streaming import TextStream
from lenity.engine.tracing import Observer
from lenity.errors import ConfigError, LenityError
from lenity.models.base import LanguageModel
from lenity.policies import Policy, policy
from lenity.requests import GenerationSettings
from lenity.scoring import DEFAULT_CHUNK_BYTES
from lenity.sequences import Sequence
from lenity.skipping import SkipRule, skip_rule
from lenity.types import FinishReason, Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What one round committed to one request of a stream.

    ``text`` pieces concatenate to the final text; a piece may be empty while incomplete UTF-8 or
    the beginning of a stop string is held back. ``generation`` is there with the last chunk.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    generation: Generation | None = None


class Decoder:
    """A target, a drafter and a policy, ready to generate.

    ``drafter=None`` is plain decoding. ``max_batch_size`` requests are decoded together; further
    ones enter as others end. ``max_logits_bytes`` bounds the float32 logits held at once. ``skip``
    is a skip rule or its spec: drafts it trusts are committed without a target pass; with
    ``shadow`` a pass that changes nothing then says what strict would have accepted.
    """

    def __init__(
        self,
        *,
        target: LanguageModel,
        drafter: Drafter | str | None = None,
        policy: Policy | str = "strict",
        skip: SkipRule | str | None = None,
        shadow: bool = False,
        max_batch_size: int = 8,
        max_logits_bytes: int = DEFAULT_CHUNK_BYTES,
    ) -> None:
        """Check the parts. Raises ConfigError, RegistryError or ModelMismatchError."""
        if max_batch_size < 1 or max_logits_bytes < 1:
            raise ConfigError(
                f"Expected max_batch_size and max_logits_bytes of at least 1, got "
                f"{max_batch_size} and {max_logits_bytes}."
            )
        if isinstance(target, str):
            raise ConfigError(
                f"Expected a loaded model as target, got the name {target!r}. Use "
                f"target=lenity.load({target!r})."
            )
        self.target = target
        self.drafter = _as_drafter(drafter)
        self.policy = _as_policy(policy)
        self.skip, self.shadow = _as_skip(skip, self.drafter), shadow
        self.max_batch_size, self.max_logits_bytes = max_batch_size, max_logits_bytes
        if self.drafter is not None:
            self.drafter.open(target, target.new_cache())  # refused now rather than mid-way

    def generate(
        self,
        prompts: Any,
        settings: GenerationSettings | None = None,
        *,
        observer: Observer | None = None,
        **changes: Any,
    ) -> Any:
        """Return one Generation for one prompt, a list in order for a list of prompts.

        ``changes`` are fields of GenerationSettings; ``observer`` sees every round that the target
        verifies (lenity.engine.tracing). On Ctrl-C every request is returned with
        what was committed to it and finish_reason ``interrupted``; nothing is half there. A
        LenityError on the way carries the same list as ``error.generations``.
        """
        requests, is_single = as_requests(prompts)
        sequences = self._sequences(requests, GenerationSettings.of(settings, changes))
        try:
            for _ in self._rounds(sequences, {}, observer):
                pass
        except KeyboardInterrupt:
            pass  # the requests say so themselves: their last commit did not finish them
        except LenityError as error:
            error.generations = [self._generation(sequence) for sequence in sequences]
            raise
        generations = [self._generation(sequence) for sequence in sequences]
        return generations[0] if is_single else generations

    def stream(
        self, prompts: Any, settings: GenerationSettings | None = None, **changes: Any
    ) -> Iterator[Chunk]:
        """Yield what each round committed, of committed text only; see Chunk.

        On Ctrl-C the last chunk of every request still running carries what was committed to it,
        with finish_reason ``interrupted``.
        """
        requests, _ = as_requests(prompts)
        sequences = self._sequences(requests, GenerationSettings.of(settings, changes))
        streams = {s.index: text for s in sequences if (text := self._text(s)) is not None}
        told: set[int] = set()
        num_sent = [0] * len(sequences)
        try:
            for rows in self._rounds(sequences, streams):
                for row in rows:
                    text = streams.get(row.index)
                    if row.is_finished:
                        told.add(row.index)
                        if text is not None:
                            text.close()
                    num_sent[row.index] += len(row.commits[-1].token_ids)
                    yield Chunk(
                        index=row.index,
                        text=text.take() if text is not None else "",
                        token_ids=row.commits[-1].token_ids,
                        generation=self._generation(row) if row.is_finished else None,
                    )
        except KeyboardInterrupt:
            for row in sequences:
                if row.index not in told:
                    yield self._last_chunk(row, num_sent[row.index], streams.get(row.index))

    def _last_chunk(self, row: Sequence, num_sent: int, text: TextStream | None) -> Chunk:
        """Return what is left to say of a request that was stopped from outside."""
        generation = self._generation(row)
        left = ""
        if text is not None and generation.text is not None:
            left = generation.text[text.num_taken :]
        token_ids = generation.token_ids[num_sent:]
        return Chunk(index=row.index, text=left, token_ids=token_ids, generation=generation)

    def _sequences(self, requests: list[Any], settings: GenerationSettings) -> list[Sequence]:
        rows = [
            make_sequence(request, index, self.target, self.policy, settings)
            for index, request in enumerate(requests)
        ]
        if self.skip is not None:
            for row in rows:
                check_skippable(row)
        check_laws(self.drafter, rows)
        return rows

    def _rounds(
        self,
        sequences: list[Sequence],
        streams: dict[int, TextStream],
        observer: Observer | None = None,
    ) -> Iterator[list[Sequence]]:
        """Yield the rows after every round, finished ones included; rows enter and leave."""
        waiting = deque(sequences)
        batch = Batch(
            self.target,
            self.drafter,
            skip=self.skip,
            has_shadow=self.shadow,
            observer=observer,
        )
        while waiting or len(batch):
            while waiting and len(batch) < self.max_batch_size:
                row = waiting.popleft()
                text = streams.get(row.index)
                if text is None and row.settings.stop:
                    text = self._text(row)
                batch.admit(row, text)
            run_round(batch, chunk_bytes=self.max_logits_bytes)
            yield list(batch.rows)
            batch.drop_finished()

    def _text(self, row: Sequence) -> TextStream | None:
        if self.target.tokenizer is None:
            return None
        settings = row.settings
        return TextStream(self.target.tokenizer, settings.stop, include_stop=settings.include_stop)

    def _generation(self, row: Sequence) -> Generation:
        """Return the result of a request, from its commits alone."""
        commits = tuple(row.commits)
        last = commits[-1] if commits else None
        reason = last.finish_reason if last is not None else None
        receipt = row.receipts
        token_ids = tuple(item.token_id for item in receipt)
        assert sum(c.record.emitted for c in commits) == len(token_ids)
        fallback = self._fallback(row)
        return Generation(
            prompt_ids=tuple(row.token_ids[: row.prompt_length]),
            token_ids=token_ids,
            text=self._final_text(row, token_ids),
            finish_reason=reason or FinishReason.INTERRUPTED,
            stop_match=last.stop_match if last is not None else None,
            receipt=receipt,
            rounds=tuple(commit.record for commit in commits),
            requested_policy=row.requested_policy,
            effective_policy="strict" if fallback else row.policy.spec,
            fallback_reason=fallback,
            drafter=self.drafter.spec if self.drafter is not None else "none",
            gamma=row.settings.gamma if self.drafter is not None else 0,
            prefill_seconds=row.prefill_seconds,
            processor_states=row.processor_states if last is None else last.processor_states,
            skip="none" if self.skip is None else self.skip.spec,
        )

    def _fallback(self, row: Sequence) -> str | None:
        """Return why a relaxed policy had nothing to relax, or None."""
        if row.policy.is_strict or (self.drafter is not None and row.settings.gamma):
            return None
        cause = "no drafter" if self.drafter is None else "gamma is 0"
        return f"{cause}: nothing was drafted, so there was nothing to relax"

    def _final_text(self, row: Sequence, token_ids: tuple[int, ...]) -> str | None:
        text = self._text(row)
        if text is None:
            return None
        for token_id in token_ids:
            if text.push(token_id) is not None:
                break
        text.close()
        return text.text


def _as_policy(value: Policy | str) -> Policy:
    if not isinstance(value, Policy | str):
        raise ConfigError(
            f"Expected a policy or its spec, such as 'strict' or 'asd:budget=8', got {value!r}."
        )
    return policy(value)


def _as_skip(value: SkipRule | str | None, drafter: Drafter | None) -> SkipRule | None:
    if value is None or value == "none":
        return None
    rule = skip_rule(value)
    if drafter is None or not drafter.takes_pending:
        got = "no drafter" if drafter is None else f"the drafter {drafter}"
        raise ConfigError(
            f"Skip rule {rule} expects a drafter that drafts from tokens alone, got {got}. Skipped "
            f"tokens have no target features: use masked_diffusion, autoregressive or ngram, or "
            f"dflash or dspark with visible_pending=true."
        )
    return rule


def _as_drafter(value: Drafter | str | None) -> Drafter | None:
    return None if value is None or value in ("none", "plain") else drafter(value)
