"""A model's own replies as training text: batched, resumable, one JSON line per reply.

A drafter learns to predict what its target says, so it is trained on the target's greedy text.
Replies are appended as they end; a run that was killed goes on with the prompts that are missing,
and a torn last line is dropped.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lenity.engine.decode import Decoder
from lenity.errors import ConfigError
from lenity.models.base import LanguageModel
from lenity.requests import GenerationSettings


def read_replies(path: Path) -> list[dict[str, Any]]:
    """Return the complete replies of a file; a torn last line is left out."""
    if not path.exists():
        return []
    out = []
    for line in path.read_text().splitlines():
        try:
            out.append(json.loads(line))
        except json.JSONDecodeError:
            break  # a killed run tears the last line only
    return out


def write_replies(
    target: LanguageModel,
    pairs: Iterable[tuple[str, str]],
    path: Path,
    *,
    max_new_tokens: int = 256,
    batch_size: int = 32,
    num_tokens: int | None = None,
    progress: Callable[[int], None] = lambda tokens: None,
) -> int:
    """Append the target's greedy replies to (family, prompt) pairs; return new tokens written.

    Each line holds family, prompt, prompt_ids and token_ids. Prompts already there are skipped. It
    ends when all prompts are answered, or when the file holds ``num_tokens`` new tokens in all;
    replies that Ctrl-C cuts short are left out. ``progress`` is told the tokens of every finished
    reply. Raises ConfigError for a target without a tokenizer.
    """
    if target.tokenizer is None:
        raise ConfigError(
            f"Expected a target with a tokenizer to answer prompts, got {target.name} without one. "
            f"Load it with its tokenizer."
        )
    done = read_replies(path)
    _rewrite(path, done)
    seen = {item["prompt"] for item in done}
    room = math.inf if num_tokens is None else num_tokens - count_tokens(done)
    todo = [(family, text) for family, text in pairs if text not in seen]
    chats = [target.tokenizer.encode_chat([{"role": "user", "content": t}]) for _, t in todo]
    decoder = Decoder(target=target, max_batch_size=batch_size)
    settings = GenerationSettings(max_new_tokens=max_new_tokens, gamma=0)
    written = 0
    with path.open("a") as file:
        for chunk in decoder.stream(chats, settings) if chats and room > 0 else ():
            if chunk.generation is None:
                continue
            if chunk.generation.finish_reason == "interrupted":
                raise KeyboardInterrupt  # which the decoder took for its own; half a reply is none
            family, text = todo[chunk.index]
            record = {
                "family": family,
                "prompt": text,
                "prompt_ids": list(chunk.generation.prompt_ids),
                "token_ids": list(chunk.generation.token_ids),
            }
            file.write(json.dumps(record, separators=(",", ":")) + "\n")
            file.flush()
            written += len(chunk.generation.token_ids)
            progress(len(chunk.generation.token_ids))
            if written >= room:
                break
    return written


def count_tokens(replies: Iterable[Mapping[str, Any]]) -> int:
    """Return the new tokens of replies, those of their prompts not counted."""
    return sum(len(reply["token_ids"]) for reply in replies)


def _rewrite(path: Path, records: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records))
    os.replace(partial, path)
