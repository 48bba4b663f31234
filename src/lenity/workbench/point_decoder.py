"""From an operating point to a decoder that is the one it stands for, or to a refusal."""

from __future__ import annotations

from lenity.drafters import Drafter, drafter
from lenity.engine.decode import Decoder
from lenity.models.base import LanguageModel
from lenity.workbench.facts import drafter_facts, target_facts
from lenity.workbench.operating_point import OperatingPoint, decoder_arguments, load_arguments


def decoder_at(
    point: OperatingPoint,
    *,
    target: LanguageModel | None = None,
    device: str | None = None,
) -> Decoder:
    """Return a decoder at the point; loads its target unless one is given.

    The caller adds ``generation_changes(point)`` to the settings. Raises ModelMismatchError where
    target or drafter are no longer what the point was made for, and what loading raises.
    """
    if target is None:
        from lenity.models import load

        target = load(**load_arguments(point), device=device)
    point.check_against(target=target_facts(target))
    arguments = decoder_arguments(point)
    drafts: Drafter | None = None
    if point.drafter is not None:
        drafts = drafter(point.drafter.spec)
        point.check_against(drafter=drafter_facts(drafts, target))
    return Decoder(target=target, **{**arguments, "drafter": drafts})
