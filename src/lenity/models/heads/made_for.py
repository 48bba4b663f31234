"""Which target a drafter was trained for: lenity.json, beside the files of the published layout.

No published layout says enough to tell a target from its fine-tunes, which have its shapes. So what
lenity trains carries a file of its own, which other readers ignore: name and sizes of the target,
and hashes of its tokens and of its chat template.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from lenity.errors import ModelMismatchError
from lenity.models.base import LanguageModel
from lenity.models.tokenizers import template_hash, vocabulary_hash
from lenity.registry import read_file

FILE = "lenity.json"
"""Beside config.json."""


class MadeFor(BaseModel):
    """What a drafter was trained for; None where the target had no tokenizer or no template."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    version: int = 1
    """Of this file's layout"""
    target: str
    """Name the target was loaded by"""
    hidden_size: int
    """Numbers in one of its hidden states"""
    num_layers: int
    """Layers"""
    vocab_size: int
    """Rows of its LM head"""
    vocabulary_hash: str | None = None
    """First 16 hex digits of a SHA-256 over its tokens"""
    template_hash: str | None = None
    """The same over its chat template"""

    @classmethod
    def of(cls, target: LanguageModel) -> MadeFor:
        """Return what is known of a target."""
        return cls(
            target=target.name,
            hidden_size=target.hidden_size,
            num_layers=target.num_layers,
            vocab_size=target.vocab_size,
            vocabulary_hash=vocabulary_hash(target.tokenizer),
            template_hash=template_hash(target.tokenizer),
        )

    def differences(self, target: LanguageModel) -> dict[str, tuple[object, object]]:
        """Return what differs, as (trained for, given); names and unknown hashes do not count.

        Sizes of vocabularies, which padding changes, count where their tokens cannot be compared.
        """
        ours = MadeFor.of(target)
        names = ["hidden_size", "num_layers", "vocabulary_hash", "template_hash"]
        if None in (self.vocabulary_hash, ours.vocabulary_hash):
            names.insert(2, "vocab_size")
        pairs = {name: (getattr(self, name), getattr(ours, name)) for name in names}
        return {
            name: pair for name, pair in pairs.items() if None not in pair and pair[0] != pair[1]
        }

    def is_known_to_fit(self, target: LanguageModel) -> bool:
        """Return whether tokens and chat template of both are known, and everything is alike."""
        both = (self, MadeFor.of(target))
        hashes = [found for known in both for found in (known.vocabulary_hash, known.template_hash)]
        return None not in hashes and not self.differences(target)

    def check(self, name: str, target: LanguageModel) -> None:
        """Refuse another target for the drafter ``name``. Raises ModelMismatchError."""
        found = self.differences(target)
        if not found:
            return
        said = ", ".join(f"{key} {trained}" for key, (trained, _) in found.items())
        got = ", ".join(f"{key} {given}" for key, (_, given) in found.items())
        raise ModelMismatchError(
            f"Expected for {name} the target it was trained for ({self.target}: {said}), got "
            f"{target.name} ({got}). Use that target, or a drafter trained for {target.name}; to "
            f"try it all the same, take {FILE} out of the drafter's folder."
        )


def read_made_for(folder: Path) -> MadeFor | None:
    """Return what a checkpoint's folder says, None without the file. Raises ConfigError."""
    file = folder / FILE
    if not file.is_file():
        return None
    return read_file(
        MadeFor,
        file,
        expected="the target a drafter was trained for, got something else",
        advice="Copy the file again, or take it out to go without that check.",
    )
