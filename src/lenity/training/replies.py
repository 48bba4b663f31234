"""A model's own replies as training text: batched, resumable, one JSON line per reply.

A drafter learns to predict what its target says, so it is trained on the target's greedy text.
Replies are appended as they end; a run that was killed goes on with the prompts that are missing,
and a torn last line is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from lenity.engine.decode import Decoder
from lenity.models.base import LanguageModel
from lenity.requests import GenerationSettings


def read_replies(path: Path) -> list[dict[str, object]]:
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
    progress: Callable[[int], None] = lambda tokens: None,
) -> int:
    """Append the target's greedy replies to (family, prompt) pairs; return new tokens written.

    Each line holds family, prompt, prompt_ids and token_ids. Prompts already there are skipped.
    ``progress`` is told the tokens of every finished reply.
    """
    assert target.tokenizer is not None
    done = read_replies(path)
    _rewrite(path, done)
    seen = {item["prompt"] for item in done}
    todo = [(family, text) for family, text in pairs if text not in seen]
    chats = [target.tokenizer.encode_chat([{"role": "user", "content": t}]) for _, t in todo]
    decoder = Decoder(target=target, max_batch_size=batch_size)
    settings = GenerationSettings(max_new_tokens=max_new_tokens, gamma=0)
    written = 0
    with path.open("a") as file:
        for chunk in decoder.stream(chats, settings) if chats else ():
            if chunk.generation is None:
                continue
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
    return written


def _rewrite(path: Path, records: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records))
    os.replace(partial, path)
