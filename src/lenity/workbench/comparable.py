"""Whether two arms may be compared: field by field, before any number is put beside another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from pydantic import Field

from lenity.errors import ProtocolError
from lenity.workbench.divergence import first_difference
from lenity.workbench.metrics import COUNTERS_VERSION
from lenity.workbench.provenance import Provenance
from lenity.workbench.records import Frozen, SampleRecord, hash_ids

Prompts: TypeAlias = Mapping[tuple[str, str], tuple[int, ...]]
"""Task and item -> the rendered prompt's ids."""

UNKNOWN_IS_EQUAL = ("target_revision", "target_fingerprint")
"""Fields that not every target has: compared only where both arms know them."""


class ArmIdentity(Frozen):
    """What has to be equal in two arms for their numbers to mean the same."""

    template_hash: str | None = None
    """Of the rendering of prompts; none for prompts without a template"""
    prompt_ids_hash: str
    """Of every prompt's token ids, see hash_prompts"""
    dtype: str | None = None
    """Of the target's weights; none where not known, which equals only itself"""
    target: str
    """Its name as it was asked for"""
    target_revision: str | None = None
    """Commit on the hub; none where not known"""
    target_fingerprint: str | None = None
    """Hash of its weights; none where not known"""
    counters_version: int = COUNTERS_VERSION
    """Of the definitions in ``metrics``"""

    @classmethod
    def of(cls, provenance: Provenance, records: Iterable[SampleRecord]) -> ArmIdentity:
        """Return the identity of an arm of a run. Raises ProtocolError without a target."""
        target = provenance.target
        if target is None:
            raise ProtocolError(
                "Expected a run that says which target it was made with, got none. Compare runs "
                "that lenity wrote."
            )
        return cls(
            template_hash=provenance.template_hash,
            prompt_ids_hash=hash_prompts(prompts_of(records)),
            dtype=target.dtype,
            target=target.name,
            target_revision=target.revision,
            target_fingerprint=target.fingerprint,
            counters_version=provenance.counters_version,
        )


class Difference(Frozen):
    """One field in which two arms differ."""

    field: str
    """Of ArmIdentity"""
    left: str
    right: str
    detail: str = Field(default="")
    """For prompts: the first that differs, and in which token id"""

    @property
    def words(self) -> str:
        """The difference in one line."""
        text = f"{self.field}: {self.left} and {self.right}"
        return f"{text} ({self.detail})" if self.detail else text


def prompts_of(records: Iterable[SampleRecord]) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return each prompt's ids, failed requests included: their prompts were rendered too.

    A failed request without ids is left out. Raises ProtocolError where an arm renders one item
    in two ways.
    """
    prompts: dict[tuple[str, str], tuple[int, ...]] = {}
    for record in records:
        key, ids = (record.task, record.item_id), record.prompt_ids
        if not ids and record.status == "failed":
            continue
        known = prompts.setdefault(key, ids)
        if known != ids:
            raise ProtocolError(
                f"Expected one rendering of {record.task} {record.item_id}, got two: they differ "
                f"{_where(known, ids)}. Give the records of runs with one template."
            )
    return prompts


def hash_prompts(prompts: Prompts) -> str:
    """Return 16 hex digits that stand for prompts, whatever their order."""
    numbers = (
        int(hash_ids([*map(ord, f"{t} {i}"), -1, *prompts[t, i]]), 16) for t, i in sorted(prompts)
    )
    return hash_ids(numbers)


def differences(
    left: ArmIdentity,
    right: ArmIdentity,
    left_prompts: Prompts | None = None,
    right_prompts: Prompts | None = None,
) -> tuple[Difference, ...]:
    """Return the fields in which two arms differ, prompts with the first differing token id."""
    found = []
    for name in ArmIdentity.model_fields:
        ours, theirs = getattr(left, name), getattr(right, name)
        is_unknown = name in UNKNOWN_IS_EQUAL and None in (ours, theirs)
        if ours == theirs or is_unknown:
            continue
        is_told = (
            name == "prompt_ids_hash" and left_prompts is not None and right_prompts is not None
        )
        detail = first_prompt_difference(left_prompts or {}, right_prompts or {}) if is_told else ""
        found.append(Difference(field=name, left=str(ours), right=str(theirs), detail=detail))
    return tuple(found)


def first_prompt_difference(left: Prompts, right: Prompts) -> str:
    """Return in words where the prompts of two arms first differ; empty where they do not."""
    for key in dict.fromkeys([*left, *right]):
        name = " ".join(key)
        if key not in left or key not in right:
            return f"{name} is only in the {'first' if key in left else 'second'}"
        if left[key] != right[key]:
            return f"{name} {_where(left[key], right[key])}"
    return ""


def _where(left: tuple[int, ...], right: tuple[int, ...]) -> str:
    """Return in words at which token two different prompts part."""
    position = first_difference(left, right)
    assert position is not None, "called for prompts that differ"
    ours = left[position] if position < len(left) else "no token"
    theirs = right[position] if position < len(right) else "no token"
    return f"at token {position}: id {ours} and {theirs}"


def check_comparable(
    left: ArmIdentity,
    right: ArmIdentity,
    left_prompts: Prompts | None = None,
    right_prompts: Prompts | None = None,
    *,
    force: bool = False,
) -> tuple[Difference, ...]:
    """Return no differences; raise ProtocolError, naming them, where two arms differ.

    ``force`` returns them instead: the report has to say "not comparable" and list them.
    """
    found = differences(left, right, left_prompts, right_prompts)
    if found and not force:
        listed = "; ".join(difference.words for difference in found)
        raise ProtocolError(
            f"Expected two arms that differ in nothing but their policy, got {listed}. Run both "
            f"on the same prompts, template and target, or force the comparison, which marks the "
            f"report as not comparable."
        )
    return found
