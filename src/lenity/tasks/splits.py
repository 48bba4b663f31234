"""Which items are for discovery and which for audit: a fixed function of what they ask.

    side(item) = discovery  iff  SHA-256(seed : split_hash) / 2^256 < share

So a question is on the same side in every run, whatever else is loaded and in whatever order, and
two items that ask the same are never on both sides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lenity.errors import ConfigError, ProtocolError
from lenity.tasks.base import Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Two disjoint parts, each in the order given; ids left out because they ask the same again."""

    discovery: tuple[Item, ...]
    audit: tuple[Item, ...]
    duplicates: tuple[str, ...]


def split(items: Iterable[Item], *, seed: int = 0, share: float = 0.5) -> Split:
    """Return the parts of some items; ``share`` of all possible items is for discovery.

    The first of several that ask the same is kept. Raises ConfigError for a share outside 0..1.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"Expected a share from 0 to 1 for discovery, got {share}.")
    sides: tuple[list[Item], list[Item]] = ([], [])
    duplicates: list[str] = []
    seen: set[str] = set()
    for item in items:
        digest = item.split_hash
        if digest in seen:
            duplicates.append(item.id)
            continue
        seen.add(digest)
        sides[0 if is_discovery(digest, seed=seed, share=share) else 1].append(item)
    return Split(discovery=tuple(sides[0]), audit=tuple(sides[1]), duplicates=tuple(duplicates))


def is_discovery(split_hash: str, *, seed: int, share: float) -> bool:
    """Return whether what has this hash is for discovery."""
    digest = hashlib.sha256(f"{seed}:{split_hash}".encode()).digest()
    # 53 bits, so that the quotient is exact and never rounds up to 1
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53 < share


def check_disjoint(discovery_hashes: Iterable[str], audit: Sequence[Item]) -> None:
    """Raise ProtocolError when an audit item asks what was asked in discovery."""
    known = set(discovery_hashes)
    shared = [item.id for item in audit if item.split_hash in known]
    if shared:
        raise ProtocolError(
            f"Expected audit prompts that no knob was chosen on, got {len(shared)} of discovery: "
            f"{', '.join(shared[:3])}{', …' if len(shared) > 3 else ''}. Take the audit side of "
            f"the same split."
        )
