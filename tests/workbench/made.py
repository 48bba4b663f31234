"""Records and manifests to put into runs, complete and small."""

from __future__ import annotations

from lenity.workbench.manifest import Manifest, begin
from lenity.workbench.provenance import Hardware, Provenance, Versions
from lenity.workbench.records import RoundCounts, SampleRecord


def provenance(**changes: object) -> Provenance:
    """Where a run might come from."""
    base = {
        "versions": Versions(lenity="0", python="3"),
        "hardware": Hardware(cpu="abacus", cores=2),
        "template_hash": "t" * 16,
    }
    return Provenance(**{**base, **changes})


def manifest(kind: str = "audit", settings: dict | None = None, **changes: object) -> Manifest:
    """A run that starts now."""
    return begin(kind, {"gamma": 5} if settings is None else settings, provenance(**changes))


def record(item: str = "1", arm: str = "relaxed", repeat: int = 0, **changes: object):
    """One request of two plain tokens."""
    base = {
        "arm": arm,
        "repeat": repeat,
        "task": "toy@1",
        "item_id": item,
        "prompt_ids": (1, 2),
        "token_ids": (3, 4),
        "kinds": "pp",
        "logprobs": (-0.5, -0.25),
        "rounds": tuple(
            RoundCounts(drafted=0, evaluated=0, accepted=0, emitted=1, relaxed=0, regret_units=0)
            for _ in range(2)
        ),
        "finish_reason": "length",
    }
    return SampleRecord(**{**base, **changes})
