"""Signals: from a draft to per-position scores, and from those to the score of a prefix.

raw: q_j is the drafter's probability of its token when it was chosen (Draft.confidence) and C_k the
geometric mean of q_1..q_k, which may fall and rise again: every k is looked at (arXiv 2608.14787,
Table 1).
marginal: q_j estimates P(L >= j) and C_k = min_{j<=k} q_j, the local score itself: the two gates
are one, at the larger of ``local`` and ``prefix``.
conditional: q_j estimates P(L >= j | L >= j-1) and C_k = prod_{j<=k} q_j, the probability that
strict accepts the whole prefix; ``prefix`` is 1 - epsilon, and from ``prefix >= local`` on the
local gate says nothing more.
L counts the draft tokens that strict would accept (survival.py).
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, PrivateAttr, field_serializer, model_validator
from torch import Tensor

from lenity.errors import ConfigError
from lenity.skipping.base import GatedRule, SkipContext, local_scores
from lenity.skipping.calibration import Calibration, read_calibration, tempered
from lenity.skipping.survival import SurvivalPredictor, load_predictor

CONFIDENCE = "confidence"
"""Stands for a predictor where the drafter's confidence is itself a conditional survival."""


class Raw(GatedRule):
    """The drafter's own confidence; nothing is learned."""

    idea: ClassVar[str] = "skip while the drafter is sure of every token and of the whole prefix"
    paper: ClassVar[str] = "raw confidence of arXiv 2608.14787"

    type: Literal["raw"] = "raw"

    def signal(self, context: SkipContext) -> Float[Tensor, "B G"]:
        """Return Draft.confidence. Raises ConfigError when the drafter gives none."""
        return _confidence(context, self.type)

    def prefix_scores(self, scores: Float[Tensor, "B G"]) -> Float[Tensor, "B G"]:
        """Return the geometric mean of q_1..q_k."""
        return geometric_mean(scores)


def geometric_mean(scores: Float[Tensor, "B G"]) -> Float[Tensor, "B G"]:
    """Return (prod_{j<=k} q_j)^(1/k), summed as logarithms."""
    count = torch.arange(1, scores.shape[-1] + 1, device=scores.device)
    return (scores.log().cumsum(-1) / count).exp()


def _confidence(context: SkipContext, rule: str) -> Float[Tensor, "B G"]:
    if context.draft.confidence is None:
        raise ConfigError(
            f"Skip rule {rule!r} expects a drafter that gives a confidence per token, got a draft "
            f"without. Use masked_diffusion, autoregressive or ngram, or the rule 'periodic'."
        )
    return context.draft.confidence


class SurvivalRule(GatedRule):
    """A rule whose scores a trained predictor gives; it is read when first asked for."""

    local: float = Field(default=0.9, ge=0)
    """eta_b, the least survival any token of the prefix may have; above 1 never skips"""
    prefix: float = Field(default=0.9, ge=0)
    """eta_c, the least score of the prefix as a whole; above 1 never skips"""
    predictor: str | SurvivalPredictor = Field(examples=["run/marginal"])
    """Survival predictor: a folder that `lenity train survival` wrote, or a loaded one"""
    family: Literal["code", "maths"] | None = None
    """What the prompts are, where the predictor was told: code or maths; none says nothing"""

    _loaded: dict[torch.device, SurvivalPredictor] = PrivateAttr(default_factory=dict)

    @field_serializer("predictor")
    def _name_predictor(self, predictor: str | SurvivalPredictor) -> str:
        return predictor if isinstance(predictor, str) else predictor.name

    def signal(self, context: SkipContext) -> Float[Tensor, "B G"]:
        """Return the predictor's estimates. Raises ConfigError or ModelMismatchError."""
        families = [self.family] * len(context.num_emitted)
        predictor = self.loaded(context.draft.token_ids.device)
        return predictor.scores(context.draft, context.num_emitted, families)

    def load(self, device: torch.device) -> None:
        """Read the predictor. Raises ConfigError."""
        self.loaded(device)

    def loaded(self, device: torch.device) -> SurvivalPredictor:
        """Return the predictor, read once per device.

        Raises ConfigError when there is none, or one of the other estimand.
        """
        if device not in self._loaded:
            given = self.predictor
            found = load_predictor(given) if isinstance(given, str) else given
            if found.description.estimand != self.type:
                raise ConfigError(
                    f"Skip rule {self.type!r} expects a predictor of {self.type} survival, got "
                    f"{found.name}, which estimates {found.description.estimand} survival. Use "
                    f"the rule {found.description.estimand!r}, or train the other one."
                )
            self._loaded[device] = found.to(device)
        return self._loaded[device]


class Marginal(SurvivalRule):
    """Trained P(L >= j): both gates ask for the least of them."""

    idea: ClassVar[str] = "skip while strict is likely to get as far as every token"
    paper: ClassVar[str] = "marginal survival of arXiv 2608.14787"

    type: Literal["marginal"] = "marginal"

    def prefix_scores(self, scores: Float[Tensor, "B G"]) -> Float[Tensor, "B G"]:
        """Return min_{j<=k} q_j."""
        return local_scores(scores)


class Conditional(SurvivalRule):
    """Trained P(L >= j | L >= j-1): the prefix gate asks for their product.

    With ``predictor=confidence`` the drafter's own confidence stands for it, which is DSpark's
    confidence head by its definition: a token is accepted given that those before it were.
    """

    idea: ClassVar[str] = "skip while strict is likely to accept the whole prefix"
    paper: ClassVar[str] = "conditional survival of arXiv 2608.14787"

    type: Literal["conditional"] = "conditional"
    calibration: str | None = None
    """For predictor=confidence: a file of temperatures, confidence.json of a training run"""

    _calibration: list[Calibration] = PrivateAttr(default_factory=list)

    @model_validator(mode="after")
    def _check_calibration(self) -> Self:
        if self.calibration is not None and self.predictor != CONFIDENCE:
            raise ValueError(
                f"calibration is for predictor={CONFIDENCE}, got predictor={self.predictor}, which "
                f"has temperatures of its own; leave calibration out"
            )
        return self

    def load(self, device: torch.device) -> None:
        """Read the predictor, or the calibration of a confidence. Raises ConfigError."""
        if self.predictor != CONFIDENCE:
            super().load(device)
        else:
            self._temperatures()

    def signal(self, context: SkipContext) -> Float[Tensor, "B G"]:
        """Return the predictor's estimates, or Draft.confidence, calibrated where asked.

        Raises ConfigError.
        """
        if self.predictor != CONFIDENCE:
            return super().signal(context)
        confidence = _confidence(context, self.type)
        temperatures = self._temperatures()
        return tempered(confidence, temperatures) if temperatures else confidence

    def _temperatures(self) -> tuple[float, ...]:
        """Return those of the calibration, read once; none without one."""
        if self.calibration is None:
            return ()
        if not self._calibration:
            self._calibration.append(read_calibration(self.calibration))
        return self._calibration[0].temperatures

    def prefix_scores(self, scores: Float[Tensor, "B G"]) -> Float[Tensor, "B G"]:
        """Return prod_{j<=k} q_j, summed as logarithms."""
        return scores.log().cumsum(-1).exp()
