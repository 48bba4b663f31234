"""A frozen choice: target, drafter, policy and knobs, what chose them, and what an audit said.

``lenity tune`` writes the file, ``lenity audit`` judges it, whatever generates reads it. A verdict
holds for what was judged: another target, drafter, template or knob is refused by name. Reading a
file needs no torch; ``decoder_arguments`` does.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import Field, JsonValue, ValidationError, field_validator

from lenity.errors import ConfigError, ModelMismatchError
from lenity.registry import explain_file, split_spec
from lenity.workbench.facts import DrafterFacts, TargetFacts
from lenity.workbench.manifest import first_difference, utc_now
from lenity.workbench.provenance import Checkout, Hardware, Provenance, Versions
from lenity.workbench.records import Frozen

if TYPE_CHECKING:
    from lenity.drafters import Drafter
    from lenity.policies import Policy

POINT_VERSION = 1
"""Of operating-point files; readers refuse a newer one."""

NOT_COMPARED = ("device",)
"""Facts of a target that move its speed, not its output."""


class DataSplit(Frozen):
    """The prompts a point was chosen on; an audit's may share none of them."""

    tasks: tuple[str, ...]
    """Names and versions, such as gsm8k@1"""
    revision: str | None = None
    """Of the data"""
    seed: int = 0
    """Of the split"""
    share: float = Field(default=0.5, gt=0, le=1)
    """Of the prompts that went to discovery"""
    num_prompts: int = Field(ge=0)
    """Prompts in discovery"""
    digest: str
    """Over the sorted content hashes of the discovery prompts"""


class Choice(Frozen):
    """Why this point and no other."""

    rule: str
    """In words, with its margin"""
    numbers: dict[str, JsonValue] = Field(default_factory=dict)
    """What the rule looked at"""
    run_id: str | None = None
    """Run the numbers are from"""


class AuditVerdict(Frozen):
    """What an audit said of the point, and of which point it said so."""

    verdict: str
    """non-inferior, inferior or inconclusive"""
    run_id: str
    """Run of the audit"""
    date: str
    """ISO 8601, UTC"""
    numbers: dict[str, JsonValue] = Field(default_factory=dict)
    """Gain, differences and intervals"""
    judged: dict[str, JsonValue]
    """The deciding fields of the point that was judged"""


class OperatingPoint(Frozen):
    """How to decode, frozen. Of what is None nothing is known, and nothing is compared."""

    schema_version: int = POINT_VERSION
    """Of this file"""
    target: TargetFacts
    """The model; a name alone will do"""
    drafter: DrafterFacts | None = None
    """The drafter; a spec alone will do; none is plain decoding"""
    policy: str = "strict"
    """Spec of the policy, such as asd:budget=8,gate=0.25,block_cap=2"""
    knobs: dict[str, JsonValue] | None = None
    """All knobs of the policy, so that another version's defaults change nothing"""
    gamma: int = Field(default=5, ge=0, le=1024)
    """Draft tokens asked for per round; 0 is plain decoding"""
    skipping: str | None = None
    """Spec of the rule that commits without a target pass; none verifies everything"""
    batch_size: int = Field(default=1, ge=1)
    """Requests decoded together; the point was tuned at this number"""
    context_tokens: int | None = Field(default=None, ge=1)
    """Longest prompt and reply, together, that it was tuned on"""
    template_hash: str | None = None
    """Of the rendering of prompts"""
    data: DataSplit | None = None
    """What it was chosen on"""
    chosen_by: Choice | None = None
    """Why it was chosen"""
    versions: Versions | None = None
    """Of what measured it"""
    git: Checkout | None = None
    """Commit of what measured it"""
    hardware: Hardware | None = None
    """Machine it was measured on"""
    audit: AuditVerdict | None = None
    """Once there is one"""

    @field_validator("knobs")
    @classmethod
    def _spell_infinity(cls, value: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        """Write an infinite knob as JSON can, so that a point equals itself read back."""
        if value is None:
            return None
        return {k: "Infinity" if v == inf else v for k, v in value.items()}

    @property
    def is_off(self) -> bool:
        """Whether the point is plain decoding: speculation did not pay."""
        return self.drafter is None or self.gamma == 0

    def deciding(self) -> dict[str, JsonValue]:
        """Return what decides the output, and the batch it is decoded in."""
        kept = {"target", "drafter", "gamma", "skipping", "batch_size", "template_hash"}
        fields: dict[str, JsonValue] = self.model_dump(mode="json", include=kept)
        fields["target"] = self.target.model_dump(mode="json", exclude=set(NOT_COMPARED))
        name, written = split_spec(self.policy)
        knobs: Mapping[str, JsonValue] = written if self.knobs is None else self.knobs
        return {**fields, "policy": {"type": name, **knobs}}

    @property
    def digest(self) -> str:
        """Return 16 hex digits over the deciding fields."""
        text = json.dumps(self.deciding(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def judged(
        self, verdict: str, run_id: str, numbers: Mapping[str, JsonValue] | None = None
    ) -> OperatingPoint:
        """Return the point with an audit's verdict on it, as it stands."""
        found = AuditVerdict(
            verdict=verdict,
            run_id=run_id,
            date=utc_now(),
            numbers=dict(numbers or {}),
            judged=self.deciding(),
        )
        return self.model_copy(update={"audit": found})

    def without_verdict(self) -> OperatingPoint:
        """Return the point as if nobody had audited it."""
        return self.model_copy(update={"audit": None})

    def differences(
        self,
        *,
        target: TargetFacts | None = None,
        drafter: DrafterFacts | None = None,
        template_hash: str | None = None,
    ) -> tuple[str, ...]:
        """Return what differs here from the point, a line each; what is not known does not."""
        lines = []
        if target is not None:
            lines += _differences("target", self.target, target, NOT_COMPARED)
        if drafter is not None:
            own = self.drafter or DrafterFacts(spec="none")
            lines += _differences("drafter", own, drafter)
        if None not in (template_hash, self.template_hash) and template_hash != self.template_hash:
            lines.append(f"template_hash: {self.template_hash!r} there, {template_hash!r} here")
        return tuple(lines)

    def check_against(
        self,
        *,
        target: TargetFacts | None = None,
        drafter: DrafterFacts | None = None,
        template_hash: str | None = None,
    ) -> None:
        """Check that what is loaded is what the point stands for.

        Raises ModelMismatchError with every field that differs; a verdict it has is then void.
        """
        found = self.differences(target=target, drafter=drafter, template_hash=template_hash)
        if found:
            verdict = self.audit.verdict if self.audit is not None else None
            void = f" Its verdict, {verdict!r}, does not hold here." if verdict else ""
            raise ModelMismatchError(
                f"Expected what the operating point was made for, but {'; '.join(found)}.{void} "
                f"Load what it names, or tune and audit again for what is here."
            )


def freeze(
    provenance: Provenance,
    policy: Policy,
    *,
    drafter: str | None,
    gamma: int,
    batch_size: int = 1,
    **more: Any,
) -> OperatingPoint:
    """Return the point of a policy as a run's provenance saw its target, drafter and template.

    ``drafter`` is the spec of one of the provenance's drafters; ``more`` are further fields, such
    as ``data`` and ``chosen_by``. Raises ConfigError for a target or drafter the run did not have.
    """
    known = {facts.spec: facts for facts in provenance.drafters}
    if drafter is not None and drafter not in known:
        drafter = _drafter(drafter).spec  # spelled with what is a default anyway
    if provenance.target is None or (drafter is not None and drafter not in known):
        raise ConfigError(
            f"Expected a run with a target and the drafter {drafter!r}, got target "
            f"{provenance.target and provenance.target.name!r} and drafters "
            f"{', '.join(known) or 'none'}. Freeze a point from the run that measured it."
        )
    return OperatingPoint(
        target=provenance.target,
        drafter=None if drafter is None else known[drafter],
        policy=policy.spec,
        knobs=json.loads(policy.model_dump_json(exclude={"type"})),
        gamma=gamma,
        batch_size=batch_size,
        template_hash=provenance.template_hash,
        versions=provenance.versions,
        git=provenance.git,
        hardware=provenance.hardware,
        **more,
    )


def save_operating_point(point: OperatingPoint, path: str | Path) -> None:
    """Write a point: JSON for ``.json``, YAML for any other name; whole or not at all."""
    path, values = Path(path), json.loads(point.model_dump_json())
    if path.suffix == ".json":
        text = json.dumps(values, indent=1) + "\n"
    else:
        text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def load_operating_point(path: str | Path) -> OperatingPoint:
    """Return the point in a YAML or JSON file.

    Raises ConfigError for a file that is none, and for one whose verdict was given to another
    point: a knob changed by hand takes its audit with it.
    """
    path = Path(path)
    point = _validate(_read(path), path)
    if point.audit is not None:
        changed = first_difference(point.audit.judged, point.deciding())
        if changed is not None:
            name, judged, now = changed
            raise ConfigError(
                f"Expected in {path} the point that run {point.audit.run_id} audited, with "
                f"{name}={judged!r}, got {now!r}: the verdict {point.audit.verdict!r} does not "
                f"hold for it. Remove the audit block, and audit the new point."
            )
    return point


def load_arguments(point: OperatingPoint) -> dict[str, Any]:
    """Return the arguments of ``lenity.load`` for the point's target."""
    target = point.target
    named = {
        "dtype": target.dtype,
        "revision": target.revision,
        "attn_implementation": target.attention,
    }
    return {"name": target.name, **{k: v for k, v in named.items() if v is not None}}


def decoder_arguments(point: OperatingPoint) -> dict[str, Any]:
    """Return drafter, policy, skip rule and max_batch_size for ``lenity.Decoder``.

    Raises ConfigError where policy and knobs contradict each other.
    """
    return {
        "drafter": None if point.drafter is None else point.drafter.spec,
        "policy": _policy(point),
        "skip": point.skipping,
        "max_batch_size": point.batch_size,
    }


def generation_changes(point: OperatingPoint) -> dict[str, Any]:
    """Return the fields of GenerationSettings the point decides."""
    return {"gamma": point.gamma}


def _drafter(spec: str) -> Drafter:
    from lenity.drafters import drafter

    return drafter(spec)


def _policy(point: OperatingPoint) -> Policy:
    """Return the rule with every knob as frozen."""
    from lenity.policies import policy

    written = policy(point.policy)
    if point.knobs is None:
        return written
    frozen = policy(written.type, **point.knobs)
    for name in split_spec(point.policy)[1]:
        if getattr(written, name) != getattr(frozen, name):
            raise ConfigError(
                f"Expected policy and knobs of the operating point to agree, got {name}="
                f"{getattr(written, name)!r} in {point.policy!r} and {getattr(frozen, name)!r} "
                f"among its knobs. Change both, or remove the knobs."
            )
    return frozen


def _differences(
    owner: str,
    there: TargetFacts | DrafterFacts,
    here: TargetFacts | DrafterFacts,
    skip: tuple[str, ...] = (),
) -> list[str]:
    """Return a line for each fact that both know and that differs, the most telling first."""
    names = [name for name in type(there).model_fields if name not in skip]
    found = []
    for name in names:
        before, now = getattr(there, name), getattr(here, name)
        if before and now and before != now:
            found.append(f"{owner}.{name}: {before!r} there, {now!r} here")
    return found


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"Expected an operating point in {path}, got: {reason}. Give the YAML or JSON file "
            f"that `lenity tune` wrote."
        ) from None


def _validate(values: Any, path: Path) -> OperatingPoint:
    version = values.get("schema_version") if isinstance(values, Mapping) else None
    if isinstance(version, int) and version > POINT_VERSION:
        raise ConfigError(
            f"Expected an operating point of schema version {POINT_VERSION} or older in {path}, "
            f"got {version}. Read it with the lenity that wrote it, or a newer one."
        )
    try:
        return OperatingPoint.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            f"Expected an operating point, got something else. "
            f"{explain_file(error, OperatingPoint, path)} Correct it, or tune again."
        ) from None
