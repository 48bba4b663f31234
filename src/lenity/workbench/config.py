"""What is run: arms, and the settings of the two protocols. Frozen, stored with every run."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, StringConstraints

from lenity.workbench.records import Frozen

_IN_NAMES = "A-Za-z0-9_.:=,+ -"
ArmName = Annotated[str, StringConstraints(pattern=rf"^[A-Za-z0-9][{_IN_NAMES}]*$")]
"""Stands in records, legends and file names."""
MAX_GAMMA = 1024
"""Draft tokens that an arm may ask for per round."""


def arm_name(spec: str) -> str:
    """Return a spec as an arm may be called: ``_`` for what no file name has, such as a slash."""
    return re.sub(f"[^{_IN_NAMES}]", "_", spec)


class Arm(Frozen):
    """One configuration compared: a drafter, a policy, and how they are run."""

    name: ArmName
    """Within the run, such as strict-a or relaxed"""
    drafter: str | None = None
    """Spec of the drafter, such as ngram:max_match=4; none is plain decoding"""
    policy: str = "strict"
    """Spec of the policy, such as asd:budget=8,gate=0.25,block_cap=2"""
    gamma: int = Field(default=5, ge=0, le=MAX_GAMMA)
    """Draft tokens asked for per round; 0 is plain decoding"""
    batch_size: int = Field(default=1, ge=1)
    """Requests decoded together"""
    skip: str | None = None
    """Spec of the rule that commits drafts without a target pass; none verifies everything"""
    shadow: bool = False
    """Whether a pass that changes nothing says what strict would have accepted of skipped drafts;
    it costs the time that skipping saves"""

    def renamed(self, name: str, **changes: object) -> Arm:
        """Return the arm under another name, with changes."""
        return Arm.model_validate({**self.model_dump(), **changes, "name": name})


class FixedWork(Frozen):
    """Throughput: stop ids ignored, the same number of new tokens for every request and arm."""

    new_tokens: int = Field(default=256, ge=1)
    """New tokens of every request, exactly"""
    repeats: int = Field(default=4, ge=1)
    """Times the whole is run; each repeat is a triplet where strict stands around the arm"""
    block_size: int = Field(default=8, ge=1)
    """Prompts an arm runs before the next arm takes its turn"""
    warmup_tokens: int = Field(default=16, ge=0)
    """New tokens each arm decodes, unrecorded, before anything is measured; 0 is no warm-up"""
    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Divides the logits; 0 chooses the argmax"""
    seed: int = Field(default=0, ge=0, lt=2**62)
    """Of the requests' coins; request i uses seed + i in every arm and repeat"""


class NaturalEos(Frozen):
    """Quality: every request stops by itself, and the task scores what it said."""

    max_new_tokens: int | None = Field(default=None, ge=1)
    """New tokens at most, none for what each task allows; a request that needs more is truncated,
    and counted as such"""
    repeats: int = Field(default=1, ge=1)
    """Times each prompt is asked; more than one says something new only above temperature 0"""
    block_size: int = Field(default=16, ge=1)
    """Prompts an arm runs before the next arm takes its turn; they enter its batch as others end"""
    warmup_tokens: int = Field(default=0, ge=0)
    """New tokens each arm decodes, unrecorded, before the first turn; 0 is no warm-up"""
    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Divides the logits; 0 chooses the argmax"""
    stop: tuple[str, ...] = ()
    """Strings that end a request, such as the beginning of the next few-shot question"""
    seed: int = Field(default=0, ge=0, lt=2**62)
    """Of the requests' coins; request i of n uses seed + repeat * n + i in every arm"""


PLAIN, STRICT, STRICT_A, STRICT_B = "plain", "strict", "strict-a", "strict-b"
"""Names of the arms a relaxed one is compared with."""


def triplet(relaxed: Arm, *, with_plain: bool = False) -> tuple[Arm, ...]:
    """Return the arms of fixed work in their order: strict-a, the arm, strict-b.

    Both stricts are the arm's own drafter under strict. ``with_plain`` puts plain decoding in
    front: where it differs from strict is the noise floor.
    """
    arms = (strict_of(relaxed, STRICT_A), relaxed, strict_of(relaxed, STRICT_B))
    return (plain_of(relaxed), *arms) if with_plain else arms


def pair(relaxed: Arm, *, with_plain: bool = False) -> tuple[Arm, ...]:
    """Return the arms of natural EOS in their order: strict, the arm; plain first if asked."""
    arms = (strict_of(relaxed, STRICT), relaxed)
    return (plain_of(relaxed), *arms) if with_plain else arms


def strict_of(arm: Arm, name: str = STRICT) -> Arm:
    """Return the arm's drafter under strict, everything verified."""
    return arm.renamed(name, policy="strict", skip=None, shadow=False)


def plain_of(arm: Arm, name: str = PLAIN) -> Arm:
    """Return plain decoding in the arm's batch size."""
    return strict_of(arm, name).renamed(name, drafter=None, gamma=0)
