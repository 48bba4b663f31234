"""What ``lenity draft-check`` asks of a masked-diffusion drafter: is it read at the right place?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lenity.drafters.base import Drafter
    from lenity.models.base import LanguageModel
    from lenity.types import Generation

MAX_TEXTS = 8
MAX_LENGTH = 256
"""Texts, and tokens of each, that are masked at most: eight passes over each."""
EVERY = 4
"""One token in so many is masked at a time."""


def is_masked(config: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint's config is that of a masked-diffusion language model."""
    from lenity.models.masked_formats import MaskedFormat

    return str(config.get("model_type", "")).lower() in tuple(MaskedFormat)


def check_shift(
    drafter: Drafter, target: LanguageModel, generations: Sequence[Generation]
) -> dict[str, Any] | None:
    """Return how often each reading predicts the tokens of the target's own texts.

    ``measured`` is what the texts say: read one place to the left (True), in place (False), or
    neither surely (None). Texts that the drafter cannot read or that are too short are left out.
    None for drafters that are no masked-diffusion model.
    """
    from lenity.drafters.masked_diffusion import MaskedDiffusion
    from lenity.models.masked import ShiftCheck, measure_shift

    if not isinstance(drafter, MaskedDiffusion):
        return None
    model = drafter.loaded(target)
    vocabulary, longest = drafter.vocabulary(target, model), min(MAX_LENGTH, model.max_positions)
    read = (vocabulary.translate([*g.prompt_ids, *g.token_ids]) for g in generations[:MAX_TEXTS])
    texts = [ids[-longest:] for ids in read if ids is not None and len(ids) > EVERY]
    found = [measure_shift(model, ids, every=EVERY) for ids in texts]
    count = sum(check.num_tokens for check in found)

    def rate(name: str) -> float:
        return sum(getattr(c, name) * c.num_tokens for c in found) / max(1, count)

    whole = ShiftCheck(shifted=rate("shifted"), unshifted=rate("unshifted"), num_tokens=count)
    return {
        "used": model.config.is_shifted,
        "measured": whole.is_shifted,
        "shifted": whole.shifted,
        "unshifted": whole.unshifted,
        "num_tokens": count,
    }


def is_contradicted(shift: Mapping[str, Any] | None) -> bool:
    """Return whether the texts say that logits are read at the wrong place."""
    return shift is not None and shift["measured"] not in (None, shift["used"])


def shift_words(shift: Mapping[str, Any] | None) -> list[str]:
    """Return the verdict on the shift in sentences; nothing where there is none."""
    if shift is None:
        return []
    rates = (
        f"Of {shift['num_tokens']} tokens of these texts, masked in turn, it predicts "
        f"{shift['shifted']:.0%} read one place to the left and {shift['unshifted']:.0%} read in "
        f"place"
    )
    used = "to the left" if shift["used"] else "in place"
    if shift["measured"] is None:
        return [f"{rates}: neither is surely right. It is read {used}."]
    if not is_contradicted(shift):
        return [f"{rates}: it is read {used}, which is right."]
    wanted = str(shift["measured"]).lower()
    return [f"{rates}, but it is read {used}: set shift={wanted}."]
