"""A generation as people and programs read it: every token's kind and price, and the totals."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lenity.cli.figures import Totals, repeated_ngrams
from lenity.engine.streaming import TextStream
from lenity.models.base import Tokenizer
from lenity.policies import policy
from lenity.registry import join_spec
from lenity.types import Generation, TokenKind

STYLES = {
    TokenKind.ACCEPTED: "green",
    TokenKind.RELAXED: "bold black on yellow",
    TokenKind.RECOVERED: "magenta",
    TokenKind.BONUS: "cyan",
    TokenKind.SKIPPED: "underline blue",
    TokenKind.PLAIN: "default",
}
MEANINGS = {
    TokenKind.ACCEPTED: "draft token, the target's own choice",
    TokenKind.RELAXED: "draft token strict would have rejected",
    TokenKind.RECOVERED: "the target's token after a rejection",
    TokenKind.BONUS: "the target's token after a full draft",
    TokenKind.SKIPPED: "committed without a target pass",
    TokenKind.PLAIN: "the target's token, nothing drafted",
}
RANK = "rank (0 = best)"
_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def token_texts(token_ids: tuple[int, ...], tokenizer: Tokenizer | None) -> list[str]:
    """Return each token's share of the text; special tokens by name, ids without a tokenizer.

    A character that several tokens spell stands with the last of them.
    """
    if tokenizer is None:
        return [f" {token_id}" for token_id in token_ids]
    stream, texts = TextStream(tokenizer), []
    for token_id in token_ids:
        stream.push(token_id)
        texts.append(stream.take())
        if token_id in tokenizer.special_ids:
            texts[-1] += tokenizer.decode([token_id], skip_special=False)
    stream.close()
    if texts:
        texts[-1] += stream.take()
    return texts


def budget_of(generation: Generation) -> float | None:
    """Return the nats a request was allowed to give away; None for a rule without a budget."""
    return getattr(policy(generation.effective_policy), "budget", None)


def policy_knobs(generation: Generation) -> dict[str, Any]:
    """Return every knob of the rule that ran, defaults too; a spec leaves those out."""
    return policy(generation.effective_policy).model_dump(exclude={"type"})


def draw_receipt(generation: Generation, tokenizer: Tokenizer | None) -> RenderableType:
    """Return the coloured text, a legend, the relaxed tokens one by one, and the totals."""
    kinds = {item.kind for item in generation.receipt}
    parts: list[RenderableType] = [_coloured(generation, tokenizer), Text(""), _legend(kinds)]
    if TokenKind.RELAXED in kinds:
        parts.append(_relaxed_table(generation, tokenizer))
    parts.append(Text(summary(generation)))
    return Group(*parts)


def _coloured(generation: Generation, tokenizer: Tokenizer | None) -> Text:
    text, number = Text(), 0
    texts = token_texts(generation.token_ids, tokenizer)
    for item, piece in zip(generation.receipt, texts, strict=True):
        body = piece.rstrip("\n")  # a number stands before the line end it belongs to
        ends = len(piece) - len(body)
        text.append(body.replace("\n", "↵\n") + "↵" * ends, STYLES[item.kind])
        if item.kind is TokenKind.RELAXED:
            number += 1
            text.append(str(number).translate(_SUPERSCRIPT), "bold yellow")
        text.append("\n" * ends)
    return text


def _legend(kinds: set[TokenKind]) -> Text:
    text = Text()
    for kind in TokenKind:
        if kind in kinds:
            text.append(f" {kind} ", STYLES[kind])
            text.append(f" {MEANINGS[kind]}\n", "dim")
    return text


def _relaxed_table(generation: Generation, tokenizer: Tokenizer | None) -> Table:
    table = Table("", "token", "relaxed", "strict would have said", "regret, nats", RANK)
    for column in table.columns[:2] + table.columns[4:]:
        column.justify = "right"
    texts = token_texts(generation.token_ids, tokenizer)
    relaxed = [at for at, t in enumerate(generation.receipt) if t.kind is TokenKind.RELAXED]
    for number, at in enumerate(relaxed, start=1):
        item = generation.receipt[at]
        table.add_row(
            str(number).translate(_SUPERSCRIPT),
            str(at + 1),
            Text(repr(texts[at])),
            Text(repr(_choice(item.choice_id, tokenizer))),
            f"{item.regret:.3f}",
            "" if item.rank is None else str(item.rank),
        )
    return table


def _choice(token_id: int | None, tokenizer: Tokenizer | None) -> str:
    return "" if token_id is None else "".join(token_texts((token_id,), tokenizer))


def summary(generation: Generation) -> str:
    """Return the rule with all its knobs and the totals of a generation, a line each."""
    totals, budget = Totals.of([generation]), budget_of(generation)
    rule = join_spec(policy(generation.effective_policy).type, policy_knobs(generation))
    asked = f" instead of {generation.requested_policy} ({generation.fallback_reason})"
    lines = (
        f"policy {rule}{asked if generation.fallback_reason else ''}",
        f"drafter {generation.drafter} · gamma {generation.gamma}"
        f" · finished by {generation.finish_reason}",
        f"{totals.emitted} tokens in {totals.rounds} rounds and {totals.target_passes} target "
        f"passes: {totals.tokens_per_target_pass:.2f} tokens per target pass · "
        f"{totals.accepted} of {totals.evaluated} draft tokens accepted "
        f"({totals.acceptance_rate:.0%})",
    )
    if budget is None:
        return "\n".join(lines)
    return "\n".join(
        (
            *lines,
            f"{totals.relaxed} relaxed tokens ({generation.relaxed_share:.0%}) · "
            f"{totals.regret_spent:.3f} of {budget:g} nats of regret spent",
        )
    )


def document(generation: Generation, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Return a generation as plain values for JSON: text, totals and the receipt."""
    totals = Totals.of([generation])
    repeated, ngrams = repeated_ngrams(generation.token_ids)
    return {
        "text": generation.text,
        "token_ids": list(generation.token_ids),
        "finish_reason": str(generation.finish_reason),
        "stop_match": generation.stop_match,
        "requested_policy": generation.requested_policy,
        "effective_policy": generation.effective_policy,
        "policy_knobs": policy_knobs(generation),
        "fallback_reason": generation.fallback_reason,
        "drafter": generation.drafter,
        "gamma": generation.gamma,
        "prompt_tokens": len(generation.prompt_ids),
        "prefill_seconds": generation.prefill_seconds,
        "totals": {
            "emitted": totals.emitted,
            "rounds": totals.rounds,
            "target_passes": totals.target_passes,
            "tokens_per_target_pass": totals.tokens_per_target_pass,
            "drafted": totals.drafted,
            "evaluated": totals.evaluated,
            "accepted": totals.accepted,
            "acceptance_rate": totals.acceptance_rate,
            "relaxed": totals.relaxed,
            "skipped": totals.skipped,
            "regret_spent_nats": totals.regret_spent,
            "budget_nats": budget_of(generation),
            "repeated_4grams": repeated,
            "4grams": ngrams,
        },
        "receipt": [
            {
                "token_id": item.token_id,
                "text": text,
                "kind": str(item.kind),
                "regret_nats": item.regret,
                "logprob_nats": item.logprob,
                "rank": item.rank,
                "strict_token_id": item.choice_id,
                "strict_text": None
                if item.choice_id is None
                else _choice(item.choice_id, tokenizer),
            }
            for item, text in zip(
                generation.receipt, token_texts(generation.token_ids, tokenizer), strict=True
            )
        ],
    }
