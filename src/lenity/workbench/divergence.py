"""Why two outputs part: a label for the first token in which they differ.

    policy  the arm's ledger has an entry there: strict would have rejected the token
    tie     the target's two best tokens there are these two, closer than epsilon in float32
    shape   a control without a drafter, which scores the same prefix as one batch, says the same
    defect  none of these: the run has failed

The first that applies is the label: a ledger entry is a record of what happened, the others are
explanations. Only plain data is read here; whoever has the model fills in Evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

from pydantic import Field

from lenity.errors import ProtocolError
from lenity.workbench.pairing import Pairs
from lenity.workbench.records import KIND_LETTERS, Frozen, SampleRecord

EPSILON = 1e-3
"""Nats between two logits that differently shaped products in float32 may swap.

Float32 logits of some tens carry errors of about 1e-5 a layer; 1e-3 leaves room for depth. Half
precision swaps more: state an epsilon for it.
"""


class Label(StrEnum):
    """Why two outputs part."""

    POLICY = "policy"
    TIE = "tie"
    SHAPE = "shape"
    DEFECT = "defect"


class Evidence(Frozen):
    """What is known of the place where an arm's output leaves the reference's."""

    top_ids: tuple[int, int] | None = None
    """The target's two best tokens there, by a float32 re-score of the common prefix"""
    gap: float | None = Field(default=None, ge=0)
    """Nats between their logits"""
    control_ids: tuple[int, ...] = ()
    """What a control without a drafter puts at each position, scoring the arm's text as a batch"""


class Divergence(Frozen):
    """The first token in which an arm's output differs from the reference's, and why."""

    task: str
    item_id: str
    repeat: int = 0
    position: int = Field(ge=0)
    """Index among the new tokens"""
    reference_id: int | None
    """Token of the reference; none where it had ended"""
    arm_id: int | None
    """Token of the arm; none where it had ended"""
    label: Label
    gap: float | None = None
    """Nats between the target's two best there; none where not re-scored"""


def first_difference(reference: Sequence[int], arm: Sequence[int]) -> int | None:
    """Return the index of the first token that differs, none for equal sequences.

    Where one is the beginning of the other, it is the length of the shorter.
    """
    for position, (left, right) in enumerate(zip(reference, arm, strict=False)):
        if left != right:
            return position
    return None if len(reference) == len(arm) else min(len(reference), len(arm))


def policy_positions(record: SampleRecord) -> frozenset[int]:
    """Return where the policy, not strict, decided: relaxed tokens and skipped ones."""
    skipped = (i for i, kind in enumerate(record.kinds) if kind == KIND_LETTERS["skipped"])
    return frozenset([*(entry.position for entry in record.relaxed), *skipped])


def classify(
    position: int,
    ids: tuple[int | None, int | None],
    policy: Iterable[int],
    evidence: Evidence | None = None,
    *,
    epsilon: float = EPSILON,
) -> Label:
    """Return the label of a difference at ``position``; ``ids`` are reference's and arm's token.

    ``policy`` are the arm's policy_positions. Without evidence, what is not policy is a defect.
    """
    found = evidence or Evidence()
    if position in frozenset(policy):
        return Label.POLICY
    if None in ids:
        return Label.DEFECT  # nothing that was scored ends a text on one side only
    is_close = found.gap is not None and found.gap < epsilon
    if is_close and found.top_ids is not None and set(found.top_ids) == set(ids):
        return Label.TIE
    if found.control_ids[position : position + 1] == ids[1:]:
        return Label.SHAPE
    return Label.DEFECT


def label_divergence(
    reference: SampleRecord,
    arm: SampleRecord,
    evidence: Evidence | None = None,
    *,
    epsilon: float = EPSILON,
) -> Divergence | None:
    """Return where and why an arm's output leaves the reference's, none for equal outputs."""
    position = first_difference(reference.token_ids, arm.token_ids)
    if position is None:
        return None
    ids = _at(reference.token_ids, position), _at(arm.token_ids, position)
    label = classify(position, ids, policy_positions(arm), evidence, epsilon=epsilon)
    return Divergence(
        task=arm.task,
        item_id=arm.item_id,
        repeat=arm.repeat,
        position=position,
        reference_id=ids[0],
        arm_id=ids[1],
        label=label,
        gap=evidence.gap if evidence else None,
    )


def _at(token_ids: Sequence[int], position: int) -> int | None:
    return token_ids[position] if position < len(token_ids) else None


class DivergenceSummary(Frozen):
    """All divergences of an arm from the reference."""

    num_pairs: int
    """Pairs of requests compared: ended well in both arms"""
    divergences: tuple[Divergence, ...]
    excluded: tuple[str, ...] = ()
    """Pairs left out, each with its reason"""

    @property
    def share(self) -> float | None:
        """Hash divergence: pairs whose ids differ / pairs compared; none without a pair."""
        return len(self.divergences) / self.num_pairs if self.num_pairs else None

    @property
    def counts(self) -> dict[Label, int]:
        """Divergences by label, every label named."""
        found = Counter(divergence.label for divergence in self.divergences)
        return {label: found[label] for label in Label}

    @property
    def defects(self) -> tuple[Divergence, ...]:
        """Divergences nothing explains; one of them fails the run."""
        return tuple(d for d in self.divergences if d.label is Label.DEFECT)

    def check(self) -> None:
        """Raise ProtocolError if there is a defect, naming the first."""
        if self.defects:
            first = self.defects[0]
            raise ProtocolError(
                f"Expected every divergence from strict to be a ledger entry, a tie or the "
                f"batch's shape, got {len(self.defects)} that are none, first {first.task} "
                f"{first.item_id}, repeat {first.repeat}, token {first.position}: "
                f"{first.arm_id} for {first.reference_id}. The run has failed; look at the "
                f"target's cache and the drafter's positions there."
            )


EvidenceKey = tuple[str, str, int]
"""Task, item, repeat."""


def summarise_divergences(
    pairs: Pairs,
    evidence: dict[EvidenceKey, Evidence] | None = None,
    *,
    epsilon: float = EPSILON,
) -> DivergenceSummary:
    """Return all divergences of the second of each pair from the first, labelled."""
    known = evidence or {}
    labelled = [
        label_divergence(
            reference, arm, known.get((arm.task, arm.item_id, arm.repeat)), epsilon=epsilon
        )
        for reference, arm in pairs.pairs
    ]
    return DivergenceSummary(
        num_pairs=len(pairs.pairs),
        divergences=tuple(found for found in labelled if found is not None),
        excluded=pairs.excluded,
    )
